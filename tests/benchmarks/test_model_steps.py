"""Both sides of the comparison train the same thing: a side that did less would be fast."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.benchmarks import bench_model
from tests.benchmarks.measuring import Measurement, Watch
from tests.benchmarks.model_steps import (
    Layout,
    Workload,
    _cut,
    choose,
    pad_for_transformers,
    train_ours,
    train_transformers,
)
from tests.benchmarks.rows import Goal
from tests.benchmarks.training_data import MIXES


@pytest.fixture
def work(small_dataset: str) -> Workload:
    torch.set_num_threads(1)
    return Workload(dataset=small_dataset, model="tiny", mix="short", batch_size=5, num_steps=2)


def _run_of(wall: float, **value: Any) -> Measurement:
    value = {"num_tokens": 100, "loss": 11.0, "precision": "fp32"} | value
    return Measurement(
        wall_seconds=wall, cpu_seconds=1, process_seconds=1, peak_bytes=0, child_peak_bytes=0, value=value
    )


def test_all_sides_start_from_the_same_loss_on_the_same_tokens(work: Workload) -> None:
    watch = Watch()
    theirs = train_transformers(watch, work, "fp32")
    ours = [train_ours(Watch(), work, layout, "fp32") for layout in ("padded", "packed")]
    num_tokens = int(choose(work).lengths.sum())
    for side in (theirs, *ours):
        assert side["loss"] == pytest.approx(theirs["loss"], abs=1e-5)
        assert (side["num_tokens"], side["num_steps"]) == (num_tokens, 2)
    # One pass is counted and one is not.
    assert watch.wall_seconds > 0


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_batches_hold_every_chosen_example_once(work: Workload, layout: Layout) -> None:
    chosen = choose(work)
    batches = _cut(chosen, chosen.numbers, layout, work.num_steps)
    lengths = np.concatenate([batch.lengths.numpy() for batch in batches])
    assert sorted(lengths.tolist()) == sorted(chosen.lengths.tolist())
    if layout == "packed":
        assert {batch.input_ids.shape[1] for batch in batches} == {chosen.row_length}


def test_transformers_gets_whole_rows_with_labels_at_masked_positions(work: Workload) -> None:
    chosen = choose(work)
    batch = pad_for_transformers(chosen, chosen.numbers[:3])
    assert {tensor.shape for name, tensor in batch.items() if name != "next_sentence_label"} == {(3, 32)}
    for row, number in enumerate(chosen.numbers[:3]):
        start, count = chosen.pool.masked_starts[number], chosen.pool.masked_counts[number]
        there = torch.nonzero(batch["labels"][row] != -100).flatten().tolist()
        assert there == chosen.pool.masked_lm_positions[start : start + count].tolist()
        labels = batch["labels"][row][there].tolist()
        assert labels == chosen.pool.masked_lm_ids[start : start + count].tolist()
        assert int(batch["attention_mask"][row].sum()) == chosen.pool.lengths[number]
        assert int((batch["token_type_ids"][row] == 0).sum()) == 32 - (
            chosen.pool.lengths[number] - chosen.pool.segment_a_lengths[number]
        )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"num_tokens": 99}, "99 tokens"),
        ({"loss": 11.01}, "loss 11.01"),
        ({"loss": float("nan")}, "loss nan"),
        ({"loss": 11.2, "precision": "bf16"}, "loss 11.2"),
    ],
    ids=["tokens", "loss", "nan", "bf16"],
)
def test_sides_that_compute_different_things_are_refused(value: dict[str, Any], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        bench_model.check_sides({"theirs": [_run_of(1.0)], "ours": [_run_of(1.0, **value)]}, "theirs")


def test_bfloat16_may_differ_a_little() -> None:
    runs = {"theirs": [_run_of(1.0)], "ours": [_run_of(1.0, loss=11.01, precision="bf16")]}
    bench_model.check_sides(runs, "theirs")


def test_a_row_has_tokens_a_second_on_both_sides() -> None:
    runs = {"theirs": [_run_of(4.0), _run_of(8.0)], "packed, auto": [_run_of(2.0), _run_of(2.0)]}
    row, by_processor = bench_model.compare_rates("mini", runs, "packed, auto", "theirs", Goal("at least", 2))
    # 50 a second by the median of 25 and 12.5.
    assert row.ratio.value == pytest.approx(50 / 18.75)
    assert (row.ratio.lowest, row.ratio.highest) == (2, 4)
    assert row.compared == "mini: packed, auto (fp32) / theirs"
    assert row.medians == "50 tokens/s / 19 tokens/s"
    # All took a second of the processor's time.
    assert (by_processor.measured_by, by_processor.ratio.value) == ("processor", 1)


def test_every_model_and_mix_has_aims() -> None:
    assert set(bench_model._AIMS) == {(model, mix) for model in bench_model._SIZES for mix in MIXES}
