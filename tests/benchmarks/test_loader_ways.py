"""The ways that the loader is compared with give the same examples: a wrong one could be fast."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.benchmarks.bench_loader import compare_waiting, compare_ways
from tests.benchmarks.loader_ways import (
    OTHERS,
    collate,
    fingerprint_batches,
    is_installed,
    read_batches,
    write_examples,
)
from tests.benchmarks.measuring import Watch
from trainer.data.batches import assemble_batch
from trainer.data.blocks import read_shard
from trainer.data.dataset import open_dataset
from trainer.data.example_arrays import arrays_from_blocks

INSTALLED = [way for way in OTHERS if is_installed(way)]


def test_webdataset_comes_with_the_trainer() -> None:
    assert "WebDataset of .npy" in INSTALLED


def test_the_plain_collate_makes_the_loaders_batch(small_dataset: str) -> None:
    dataset = open_dataset(small_dataset)
    block = read_shard(dataset, dataset.require_split("train")[0])[0]
    arrays = arrays_from_blocks([block])
    ours = assemble_batch(arrays, torch.arange(len(arrays)).numpy(), dataset.manifest.tokenizer.pad_id)
    theirs = collate(block.to_pylist())
    for name in ("input_ids", "segment_ids", "attention_mask", "lengths", "masked_positions", "masked_ids"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
    assert torch.equal(ours.next_sentence_labels, theirs.next_sentence_labels)
    assert ours.num_tokens == theirs.num_tokens


@pytest.mark.parametrize("num_examples", [30, 70])
def test_all_ways_give_the_same_examples(small_dataset: str, tmp_path: Path, num_examples: int) -> None:
    ours = fingerprint_batches(Watch(), "padded", small_dataset, num_examples)
    assert ours["num_examples"] == {30: 40, 70: 70}[num_examples]
    assert fingerprint_batches(Watch(), "packed", small_dataset, num_examples) == ours
    for way in INSTALLED:
        folder = str(tmp_path / way)
        write_examples(Watch(), way, small_dataset, num_examples, folder)
        assert fingerprint_batches(Watch(), way, folder, num_examples) == ours, way
        assert read_batches(Watch(), way, folder, num_examples, 2) == {
            "num_examples": 2 * ours["num_examples"]
        }


def test_other_examples_have_another_fingerprint(small_dataset: str) -> None:
    head = fingerprint_batches(Watch(), "padded", small_dataset, 40)
    whole = fingerprint_batches(Watch(), "padded", small_dataset, 70)
    assert head["fingerprint"] != whole["fingerprint"]


@pytest.mark.parametrize("way", ["padded", "packed"])
def test_passes_are_whole(small_dataset: str, way: str) -> None:
    watch = Watch()
    assert read_batches(watch, way, small_dataset, 70, 3) == {"num_examples": 210}
    assert watch.wall_seconds > 0


@pytest.mark.slow
def test_the_rows_of_the_benchmark(small_dataset: str, tmp_path: Path) -> None:
    rows = compare_ways(small_dataset, tmp_path, 1, 70, 140)
    assert [row.compared for row in rows[:5:2]] == [
        "padded batches / bound",
        "packed batches / bound",
        "padded batches / WebDataset of .npy",
    ]
    assert all(row.ratio.value > 0 for row in rows)
    waiting = compare_waiting(small_dataset, "tiny", tmp_path, 1, 2, 32, 128)
    assert [row.compared for row in waiting] == [
        "tiny, padded: waiting for data / all",
        "tiny, packed: waiting for data / all",
    ]
    assert all(0 < row.ratio.value < 1 for row in waiting)
