from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainer.calibration import count_steps
from trainer.config import TrainConfig
from trainer.loop import resume, train


@pytest.mark.parametrize(
    ("available", "per_step", "per_evaluation", "evaluate_every", "expected"),
    [
        (100.0, 0.5, 0.0, None, 200),
        (100.0, 0.3, 0.0, None, 333),
        # Two evaluations of 5 s leave 90 s; each step carries a tenth of another: 0.5 + 0.5 s.
        (100.0, 0.5, 5.0, 10, 90),
        (1.0, 2.0, 0.0, None, 1),
        (-3.0, 2.0, 0.0, None, 1),
    ],
)
def test_steps_that_fit(
    available: float, per_step: float, per_evaluation: float, evaluate_every: int | None, expected: int
) -> None:
    assert count_steps(available, per_step, per_evaluation, evaluate_every) == expected


def test_a_run_of_minutes_settles_its_steps_once(
    tmp_path: Path, tiny_dataset_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.calibration.SHORTEST_MEASURE_SECONDS", 0.05)
    sizes = tmp_path / "sizes.json"
    sizes.write_text(
        json.dumps(
            {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
        )
    )

    def config(output: str, **length: float) -> TrainConfig:
        return TrainConfig(
            data=(str(tiny_dataset_path),),
            output=str(tmp_path / output),
            model=str(sizes),
            batch_size=8,
            precision="fp32",
            device="cpu",
            evaluate_every=20,
            **length,  # type: ignore[arg-type]
        )

    summary = train(config("measured", minutes=0.004))
    assert summary.steps >= 1
    assert resume(summary.output).steps == train(config("measured", minutes=0.004)).steps == summary.steps
    # The measuring itself leaves no trace: the run is that of the same number of steps given by hand.
    given = train(config("given", steps=summary.steps))
    assert (given.loss, given.last_evaluation) == (summary.loss, summary.last_evaluation)
