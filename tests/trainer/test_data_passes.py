"""Runs on several datasets: how often each is gone through, and what is said of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from schemas.errors import UsageError
from trainer.config import TrainConfig, TrainPlan
from trainer.data.dataset import open_dataset
from trainer.data_passes import count_passes_made, describe_data, estimate_passes, format_passes
from trainer.export import export_checkpoint
from trainer.loop import resume, train
from trainer.model.config import preset_config
from trainer.run_folder import RunRecord

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
SMALL, LARGE = 20, 60


class CrashError(Exception):
    """What nobody expects."""


@pytest.fixture(scope="module")
def data(
    tmp_path_factory: pytest.TempPathFactory,
    write_tiny_dataset: Callable[..., Path],
    make_tiny_examples: Callable[[int, int], Any],
) -> tuple[str, str]:
    """Two datasets, of 20 and 60 examples in blocks of 5; the large one in two shards."""
    folder = tmp_path_factory.mktemp("data")
    shards = {"small": [SMALL], "large": [LARGE // 2, LARGE // 2]}
    for name, sizes in shards.items():
        examples = [make_tiny_examples(size, 7 * size + number) for number, size in enumerate(sizes)]
        write_tiny_dataset(folder / name, {"train": examples}, examples_per_block=5)
    return str(folder / "small"), str(folder / "large")


@pytest.fixture
def make_config(tmp_path: Path, data: tuple[str, str]) -> Callable[..., TrainConfig]:
    """(**values) -> the configuration of a run of 12 steps of 8 examples, in two lanes."""
    sizes = tmp_path / "sizes.json"
    sizes.write_text(json.dumps(SIZES))

    def make(**values: Any) -> TrainConfig:
        defaults = {
            "data": data,
            "output": str(tmp_path / "run"),
            "model": str(sizes),
            "steps": 12,
            "batch_size": 8,
            "gradient_accumulation": 2,
            "precision": "fp32",
            "device": "cpu",
            "save_every": 5,
            "log_every": 1,
        }
        return TrainConfig(**defaults | values)

    return make


def record_of(config: TrainConfig, **plan: Any) -> RunRecord:
    manifest = open_dataset(config.data[0]).manifest
    defaults = {"steps": 100, "warmup_steps": 1, "lanes": 2, "microbatch_size": 4}
    return RunRecord(
        created_by="tests",
        config=config,
        plan=TrainPlan(**defaults | plan),
        model=preset_config("tiny", manifest.tokenizer.vocab_size),
        precision="fp32",
        tokenizer=manifest.tokenizer,
        dataset_fingerprint="0" * 64,
    )


SCHEDULES = pytest.mark.parametrize(
    "schedule",
    [
        {"data_schedule": "sequence"},
        {"data_weights": (3.0, 1.0)},
        {"tokens_per_batch": 128, "batch_size": None},
    ],
    ids=["sequence", "weights", "packed"],
)


@SCHEDULES
def test_a_crashed_run_repeats_the_uninterrupted_one_with_the_data_moved(
    make_config: Callable[..., TrainConfig], data: tuple[str, str], schedule: dict[str, Any], tmp_path: Path
) -> None:
    whole, crashed = (make_config(output=str(tmp_path / name), **schedule) for name in ("whole", "crashed"))
    summary = train(whole)

    def crash(done: int, _total: int) -> None:
        if done == 8:
            raise CrashError

    with pytest.raises(CrashError):
        train(crashed, crash)
    moved = tmp_path / "moved"
    moved.mkdir()
    for url in data:
        (moved / Path(url).name).symlink_to(url)
    again = resume(crashed.output, data=(str(moved / "small"), str(moved / "large")))
    assert (again.resumed_from_step, again.num_examples) == (5, summary.num_examples)
    assert again.passes == summary.passes
    ours, theirs = (
        load_file(Path(config.output) / "checkpoints" / "step-00000012" / "model.safetensors")
        for config in (whole, crashed)
    )
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


def test_a_run_goes_on_with_its_own_data_in_its_own_order(
    make_config: Callable[..., TrainConfig], data: tuple[str, str]
) -> None:
    small, large = data
    run = make_config(data_weights=(3.0, 1.0), steps=1)
    train(run)
    with pytest.raises(
        UsageError, match=r"began with 2 datasets; 1 are given now\.\nGive each .*in the same"
    ):
        resume(run.output, data=(small,))
    with pytest.raises(UsageError, match="is not the data that the run in"):
        resume(run.output, data=(large, small))
    with pytest.raises(UsageError, match=r"data_weights \(3\.0, 1\.0\) there, \(1\.0, 3\.0\) now"):
        train(run.model_copy(update={"data_weights": (1.0, 3.0)}))


def test_more_microbatches_than_blocks_end_a_run_before_it_begins(
    make_config: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    # 4 and 12 blocks: together enough for 5 lanes, in sequence not.
    train(make_config(batch_size=10, gradient_accumulation=5, steps=1))
    config = make_config(
        batch_size=10, gradient_accumulation=5, data_schedule="sequence", output=str(tmp_path / "sequence")
    )
    with pytest.raises(
        UsageError, match=r"5 lanes need 5 blocks .*; dataset 1 of 2 has 4\.\nUse fewer lanes"
    ):
        train(config)
    assert not Path(config.output).exists()


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        pytest.param({}, (96 / 80, 96 / 80), id="together"),
        pytest.param({"data_schedule": "sequence"}, (1 + 16 / 20, 1.0), id="sequence"),
        pytest.param({"data_weights": (3.0, 1.0)}, (72 / 20, 24 / 60), id="weights"),
    ],
)
def test_passes_of_a_run_are_counted_and_named_in_its_card(
    make_config: Callable[..., TrainConfig],
    schedule: dict[str, Any],
    expected: tuple[float, ...],
    tmp_path: Path,
) -> None:
    config = make_config(**schedule)
    notes: list[str] = []
    summary = train(config, on_note=notes.append)
    manifests = [open_dataset(url).manifest for url in config.data]
    # Windows of five examples make microbatches of 3 and 2, so fewer than 12 steps of 8 were seen.
    assert 60 < summary.num_examples <= 96
    assert summary.passes == count_passes_made(config, manifests, summary.num_examples)
    planned = estimate_passes(record_of(config, steps=12), manifests)
    assert planned == pytest.approx(expected)
    numbers = ", ".join(f"{url} {format_passes(n)}" for url, n in zip(config.data, planned, strict=True))
    assert notes[0] == f"Passes over the data in this run, about: {numbers}."

    export_checkpoint(config.output, str(tmp_path / "exported"))
    card = (tmp_path / "exported" / "README.md").read_text()
    for number, passes in enumerate(summary.passes, start=1):
        assert f"| passes over dataset {number} | {format_passes(passes)} |" in card
    read = {
        (): "together, as one",
        ("data_schedule",): "one in each epoch, in turn",
        ("data_weights",): "mixed by weights 3 : 1",
    }
    assert f"| datasets read | {read[tuple(schedule)]} |" in card


def test_packed_passes_follow_from_the_lengths(make_config: Callable[..., TrainConfig]) -> None:
    config = make_config(tokens_per_batch=128, batch_size=None, data_weights=(3.0, 1.0))
    manifests = [open_dataset(url).manifest for url in config.data]
    small, large = (manifest.num_tokens / manifest.num_examples for manifest in manifests)
    num_seen = 100 * 2 * 2 * 32 / (0.75 * small + 0.25 * large)
    record = record_of(config, microbatch_size=2, row_length=32)
    expected = (0.75 * num_seen / SMALL, 0.25 * num_seen / LARGE)
    assert estimate_passes(record, manifests) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("values", "plan", "words"),
    [
        pytest.param(
            {"data": "small"},
            {"steps": 24, "lanes": 1, "microbatch_size": 8},
            [],
            id="9.6 passes over one dataset",
        ),
        pytest.param(
            {"data": "small"},
            {"steps": 25},
            ["small 10. Masks are the same in every pass: `clozeline build` with other seeds gives others"],
            id="10 passes over one dataset",
        ),
        pytest.param(
            {"data_weights": (1.0, 1e-3)},
            {"steps": 200},
            ["small 80, ", "large 0.027. Masks are the same"],
            id="a small one again and again",
        ),
        pytest.param(
            {"data": "large"},
            {"steps": 1, "lanes": 3},
            ["Shards are fewer than lanes (2, 3): lanes read runs of their blocks.", "--num-shards 12`"],
            id="fewer shards than lanes",
        ),
        pytest.param({}, {"steps": 1, "lanes": 3}, ["small 0.15, "], id="enough of them together"),
        pytest.param(
            {"data_schedule": "sequence"}, {"steps": 1}, ["fewer than lanes (1, 2)"], id="not in sequence"
        ),
    ],
)
def test_notes(
    make_config: Callable[..., TrainConfig],
    data: tuple[str, str],
    values: dict[str, Any],
    plan: dict[str, Any],
    words: list[str],
) -> None:
    if "data" in values:
        values = {"data": str(Path(data[0]).parent / values["data"])}
    config = make_config(**values)
    notes = describe_data(record_of(config, **plan), [open_dataset(url).manifest for url in config.data])
    assert all(word in " ".join(notes) for word in words)
    assert bool(notes) == bool(words)


@pytest.mark.parametrize(
    ("passes", "text"), [(0.0412, "0.041"), (1.0, "1"), (9.94, "9.9"), (9.96, "10"), (1234.4, "1,234")]
)
def test_passes_in_two_digits_or_whole(passes: float, text: str) -> None:
    assert format_passes(passes) == text
