from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.benchmarks import __main__ as command
from tests.benchmarks import bench_gpu
from tests.benchmarks.measuring import Measurement, Watch
from tests.benchmarks.training_runs import Layout, RunSettings, busy_share, run_training, summarise
from trainer.loop_state import Metrics
from trainer.stepping import Stepper

SIZES = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2}


def settings_of(dataset: str, folder: Path, layout: Layout = "packed", compiled: bool = False) -> RunSettings:
    (folder / "model.json").write_text(json.dumps(SIZES))
    return RunSettings(
        dataset=dataset,
        model=str(folder / "model.json"),
        output=str(folder),
        layout=layout,
        tokens_per_step=128,
        row_length=32,
        steps_per_window=2,
        num_windows=2,
        is_warmed_up=True,
        is_probed=True,
        device="cpu",
        compile=compiled,
    )


def measurement_of(value: dict[str, Any]) -> Measurement:
    return Measurement(
        wall_seconds=1, cpu_seconds=1, process_seconds=1, peak_bytes=0, child_peak_bytes=0, value=value
    )


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_a_run_says_what_its_timed_steps_did(small_dataset: str, tmp_path: Path, layout: Layout) -> None:
    torch.set_num_threads(1)
    watch = Watch()
    found = run_training(watch, settings_of(small_dataset, tmp_path, layout))
    lines = [json.loads(line) for line in (tmp_path / "run-128" / "metrics.jsonl").open()]
    # Steps 2, 4, 6 and 8 were logged: the second and the third line are timed.
    assert [line["step"] for line in lines] == [2, 4, 6, 8]
    assert found["num_tokens"] == lines[2]["num_tokens"] - lines[0]["num_tokens"]
    assert found["seconds"] == pytest.approx(lines[2]["seconds"] - lines[0]["seconds"])
    assert 0 < found["waited_seconds"] < found["seconds"] < watch.wall_seconds
    assert (found["num_probed_steps"], found["num_host_syncs"], found["busy_share"]) == (2, 0, None)
    assert (found["utilisation"], found["tokens_per_step"]) == (None, 128)


def test_lines_are_put_together_by_their_time() -> None:
    lines: list[Metrics] = [
        {"num_tokens": 10, "seconds": 9.0, "data_wait_seconds": 5.0, "utilisation": 0.1, "memory_bytes": 50},
        {"num_tokens": 30, "seconds": 10.0, "data_wait_seconds": 0.1, "utilisation": 0.2, "memory_bytes": 60},
        {"num_tokens": 90, "seconds": 13.0, "data_wait_seconds": 0.2, "utilisation": 0.6, "memory_bytes": 70},
        {"num_tokens": 95, "seconds": 99.0, "data_wait_seconds": 9.0, "utilisation": 0.0, "memory_bytes": 99},
    ]
    settings = RunSettings(
        dataset="",
        model="",
        output="",
        layout="packed",
        tokens_per_step=1,
        row_length=1,
        steps_per_window=1,
        num_windows=2,
        is_warmed_up=True,
        is_probed=True,
    )
    assert settings.num_steps == 4
    assert summarise(lines, settings) == {
        "num_tokens": 80,
        "seconds": 4.0,
        "waited_seconds": pytest.approx(0.3),
        # A second at 0.2 and three at 0.6.
        "utilisation": pytest.approx(0.5),
        "memory_bytes": 70,
    }


@pytest.mark.parametrize(
    ("intervals", "share"),
    [
        ([], None),
        ([(3, 5)], 1.0),
        ([(0, 1), (3, 4)], 0.5),
        ([(3, 4), (0, 2), (1, 3)], 1.0),
        ([(0, 10), (2, 3), (18, 20)], 0.6),
    ],
    ids=["none", "one", "gap", "overlapping", "nested"],
)
def test_the_busy_share_is_that_of_the_union(
    intervals: list[tuple[float, float]], share: float | None
) -> None:
    assert busy_share(intervals) == share


def test_a_step_that_waits_for_the_gpu_is_found_and_taken_again(
    small_dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torch does in its sync debug mode, on step 7 alone."""
    take = Stepper.take
    waited: list[int] = []

    def taking(self: Stepper, step: int, *arguments: object) -> object:
        if step == 7 and not waited:
            waited.append(step)
            raise RuntimeError("called a synchronizing CUDA operation\nat …")
        return take(self, step, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Stepper, "take", taking)
    found = run_training(Watch(), settings_of(small_dataset, tmp_path))
    assert (found["num_probed_steps"], found["num_host_syncs"]) == (2, 1)
    assert found["host_sync"] == "called a synchronizing CUDA operation"
    assert Stepper.take is taking


def test_a_step_is_halved_until_the_memory_is_enough(
    small_dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Stepper.take

    def taking(self: Stepper, step: int, microbatches: list[torch.Tensor], *rest: object) -> object:
        if microbatches[0].input_ids.numel() > 32:  # type: ignore[attr-defined]
            raise torch.OutOfMemoryError
        return take(self, step, microbatches, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Stepper, "take", taking)
    assert run_training(Watch(), settings_of(small_dataset, tmp_path))["tokens_per_step"] == 32


def test_the_gpu_benchmark_on_a_cpu(
    small_dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A process each would only import torch again.
    monkeypatch.setattr(
        bench_gpu, "measure", lambda task, settings, one_core: measurement_of(task(Watch(), settings))
    )
    case = bench_gpu.Case("tiny at 32", SIZES, 32, 128, 0.5)
    variants: tuple[tuple[Layout, bool], ...] = (("padded", False), ("packed", False))
    rows = bench_gpu.measure_case(case, small_dataset, tmp_path, 1, "cpu", 2, 1, variants)
    # No peak is known of a processor, so there is no utilisation.
    assert [row.compared for row in rows] == [
        "tiny at 32, padded / tiny at 32, padded",
        "tiny at 32, padded: waiting for data / all",
        "tiny at 32, padded: steps in which the host waits for the GPU / steps",
        "tiny at 32, packed / tiny at 32, padded",
        "tiny at 32, packed: waiting for data / all",
        "tiny at 32, packed: steps in which the host waits for the GPU / steps",
    ]
    assert rows[0].ratio.value == 1
    assert rows[5].ratio.value == 0
    written = [json.loads((tmp_path / f"tiny-at-32-{layout}.json").read_text()) for layout, _ in variants]
    # What the packed kernel of a GPU doesn't know.
    assert [one.get("attention_probs_dropout_prob") for one in written] == [None, 0.0]


def test_utilisation_has_a_row_with_its_aim_where_the_peak_is_known() -> None:
    value = {
        "num_tokens": 100,
        "seconds": 2.0,
        "waited_seconds": 0.01,
        "utilisation": 0.45,
        "memory_bytes": 3_000_000_000,
        "num_probed_steps": 4,
        "num_host_syncs": 0,
        "host_sync": None,
        "num_stream_syncs": 0,
        "busy_share": 0.987,
        "tokens_per_step": 65_536,
        "precision": "bf16",
    }
    runs = [measurement_of(value)]
    row = bench_gpu._rows("large", runs, "large", runs, 0.5)[0]
    assert str(row) == (
        "| large: model FLOPs / peak in bf16 | wall, loader included | 0.45 (0.45 to 0.45) | at least 0.5 | "
        "**no** | 50 tokens/s, 65,536 tokens a step at most, 3.00 GB, 0 waits for a stream in 4 steps, "
        "GPU busy 98.7% |"
    )


def test_without_a_gpu_the_command_says_so_and_exits_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "gpu"])
    with pytest.raises(SystemExit) as exit_:
        command.main()
    assert exit_.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "sees no CUDA device" in captured.err
