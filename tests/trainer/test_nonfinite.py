"""Steps that are not finite: skipped on the device, named, counted, and ended when there are too many."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from schemas.errors import ClozelineError, CorruptDataError
from trainer.config import TrainConfig
from trainer.data.batches import Batch
from trainer.loop import resume, train
from trainer.nonfinite import LARGEST_LISTED
from trainer.step_result import PendingResult
from trainer.stepping import Stepper

REPOSITORY = Path(__file__).parents[2]
ONE_BAD_RANK = """
import os, sys
import torch
from schemas.errors import ClozelineError
from trainer.config import TrainConfig
from trainer.loop import train
from trainer.stepping import Stepper

torch.set_num_threads(1)
for rank in range(2):
    if os.fork() == 0:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2",
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[2]}
        accumulate, calls = Stepper._accumulate, []
        def spoil(stepper, batch, divisors):
            calls.append(None)
            sums = accumulate(stepper, batch, divisors)
            if rank == 1 and len(calls) == 3:
                sums[0] = torch.nan
            return sums
        Stepper._accumulate = spoil
        try:
            train(TrainConfig.model_validate_json(sys.argv[1]))
        except ClozelineError as error:
            with open(f"{sys.argv[3]}/error-{rank}", "w") as file:
                file.write(str(error))
        os._exit(0)
for rank in range(2):
    os.wait()
"""
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture
def make_config(tmp_path: Path, tiny_dataset_path: Path) -> Callable[..., TrainConfig]:
    (tmp_path / "sizes.json").write_text(json.dumps(SIZES))
    torch.set_num_threads(1)

    def make(name: str = "run", **values: Any) -> TrainConfig:
        defaults = {
            "data": str(tiny_dataset_path),
            "output": str(tmp_path / name),
            "model": str(tmp_path / "sizes.json"),
            "steps": 9,
            "batch_size": 6,
            "gradient_accumulation": 2,
            "precision": "fp32",
            "device": "cpu",
            "save_every": 4,
            "log_every": 1,
        }
        return TrainConfig(**defaults | values)

    return make


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[int, list[Batch]]]:
    """(steps): their second microbatch gets a loss that is no number; the batches of all steps are kept."""
    take, accumulate = Stepper.take, Stepper._accumulate
    batches: dict[int, list[Batch]] = {}
    spoiled: set[int] = set()

    def take_noting(stepper: Stepper, step: int, microbatches: list[Batch], *rest: Any) -> PendingResult:
        batches[step] = microbatches
        return take(stepper, step, microbatches, *rest)

    def accumulate_spoiling(stepper: Stepper, batch: Batch, divisors: torch.Tensor) -> torch.Tensor:
        sums = accumulate(stepper, batch, divisors)
        step = max(batches)
        if step in spoiled and batch is batches[step][1]:
            next(stepper.model.parameters()).grad.fill_(torch.nan)  # type: ignore[union-attr]
            sums[0] = torch.nan
        return sums

    monkeypatch.setattr(Stepper, "take", take_noting)
    monkeypatch.setattr(Stepper, "_accumulate", accumulate_spoiling)

    def choose(*steps: int) -> dict[int, list[Batch]]:
        batches.clear()
        spoiled.clear()
        spoiled.update(steps)
        return batches

    return choose


def read_lines(run: str, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(run) / name).read_text().splitlines()]


def read_weights(run: str, step: int) -> dict[str, torch.Tensor]:
    return load_file(Path(run) / "checkpoints" / f"step-{step:08d}" / "model.safetensors")


def test_a_bad_step_ends_the_run_with_its_examples_named_and_the_checkpoint_before_kept(
    make_config: Callable[..., TrainConfig], spoil: Callable[..., dict[int, list[Batch]]]
) -> None:
    config, whole = make_config(), make_config("whole")
    spoil()
    train(whole)
    batches = spoil(6)
    with pytest.raises(ClozelineError) as caught:
        train(config)
    first, second = str(caught.value).splitlines()
    num_examples = sum(batch.num_examples for batch in batches[6])
    path = f"{config.output}/nonfinite.jsonl"
    assert first.startswith(f"Training diverged: the masked-LM loss of step 6 is nan; its {num_examples} ")
    assert first.endswith(f"(all in {path}).")
    assert f"--resume {config.output} --skip-nonfinite 10" in second
    (line,) = read_lines(config.output, "nonfinite.jsonl")
    assert (line["step"], line["masked_lm_loss"], line["gradient_norm"]) == (6, "nan", "nan")
    places = [
        (s, b, row) for s, blocks in line["examples"].items() for b, rows in blocks.items() for row in rows
    ]
    assert len(places) == num_examples <= LARGEST_LISTED
    for shard, block, row in places:
        assert shard in first
        assert any(
            f"block {block} rows {rows}" in first for rows in _lists_with(row, line["examples"][shard])
        )
    assert [entry["step"] for entry in read_lines(config.output, "metrics.jsonl")] == [1, 2, 3, 4, 5]
    assert sorted(p.name for p in (Path(config.output) / "checkpoints").iterdir()) == ["step-00000004"]
    ours, theirs = read_weights(config.output, 4), read_weights(whole.output, 4)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def _lists_with(row: int, blocks: dict[str, list[int]]) -> list[str]:
    return [", ".join(map(str, rows)) for rows in blocks.values() if row in rows]


def test_steps_may_be_skipped_are_counted_and_change_nothing(
    make_config: Callable[..., TrainConfig], spoil: Callable[..., dict[int, list[Batch]]]
) -> None:
    config = make_config(skip_nonfinite=2, save_every=1, keep_checkpoints=9)
    spoil(3, 7)
    summary = train(config)
    lines = read_lines(config.output, "metrics.jsonl")
    assert [line["num_skipped_steps"] for line in lines] == [0, 0, 1, 1, 1, 1, 2, 2, 2]
    assert [line["step"] for line in lines if line["loss"] is None] == [3, 7]
    assert [line["masked_lm_accuracy"] is None for line in lines] == [line["loss"] is None for line in lines]
    assert [line["step"] for line in read_lines(config.output, "nonfinite.jsonl")] == [3, 7]
    assert summary.num_examples == lines[-1]["num_examples"]
    for before, after, is_same in ((2, 3, True), (3, 4, False), (6, 7, True)):
        ours, theirs = read_weights(config.output, before), read_weights(config.output, after)
        assert all(torch.equal(ours[name], theirs[name]) for name in ours) == is_same


def test_one_step_too_many_ends_the_run_and_more_may_be_allowed_then(
    make_config: Callable[..., TrainConfig], spoil: Callable[..., dict[int, list[Batch]]]
) -> None:
    config = make_config(skip_nonfinite=1)
    spoil(3, 6)
    with pytest.raises(ClozelineError, match="of step 6 is nan after 1 skipped step; its"):
        train(config)
    # Step 6 is taken again, and noted once.
    spoil(6)
    assert resume(config.output, skip_nonfinite=2).resumed_from_step == 4
    assert [line["step"] for line in read_lines(config.output, "nonfinite.jsonl")] == [3, 6]
    assert read_lines(config.output, "metrics.jsonl")[-1]["num_skipped_steps"] == 2


def test_a_mean_over_a_window_leaves_the_skipped_step_out(
    make_config: Callable[..., TrainConfig], spoil: Callable[..., dict[int, list[Batch]]]
) -> None:
    config, single = make_config("many", steps=3, log_every=3, skip_nonfinite=1), make_config("one", steps=3)
    single = single.model_copy(update={"skip_nonfinite": 1})
    for one in (config, single):
        spoil(2)
        train(one)
    (line,) = read_lines(config.output, "metrics.jsonl")
    first, _, third = read_lines(single.output, "metrics.jsonl")
    for name in ("masked_lm_loss", "next_sentence_loss", "gradient_norm"):
        assert line[name] == pytest.approx((first[name] + third[name]) / 2, rel=1e-12)


def test_examples_that_can_not_be_read_any_more_do_not_hide_the_loss(
    make_config: Callable[..., TrainConfig],
    spoil: Callable[..., dict[int, list[Batch]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*arguments: Any) -> None:
        raise CorruptDataError("train-00000-of-00004.tar is missing\nCopy it anew.")

    monkeypatch.setattr("trainer.nonfinite.locate_examples", fail)
    spoil(1)
    with pytest.raises(
        ClozelineError, match=r"of step 1 is nan; its examples could not be found \(train-00000"
    ):
        train(make_config())


def test_what_one_rank_could_not_compute_ends_all_with_the_examples_of_all(
    make_config: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    config = make_config(gradient_accumulation=1)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = [config.model_dump_json(), str(port), str(tmp_path)]
    subprocess.run([sys.executable, "-c", ONE_BAD_RANK, *arguments], cwd=REPOSITORY, check=True)
    first, second = ((tmp_path / f"error-{rank}").read_text() for rank in range(2))
    assert first == second
    (line,) = read_lines(config.output, "nonfinite.jsonl")
    num_examples = sum(len(rows) for blocks in line["examples"].values() for rows in blocks.values())
    assert line["step"] == 3
    assert f"of step 3 is nan; its {num_examples} examples are" in first
    # Three in each of two lanes, but for the last microbatch of a window.
    assert 4 <= num_examples <= 6
