from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainer.data.batches import Batch
from trainer.data.blocks import read_shard
from trainer.data.dataset import Dataset, open_dataset
from trainer.data.loader import StreamingLoader, merge_states
from trainer.data.origins import ExampleOrigin, locate_examples


def read_example(datasets: list[Dataset], origin: ExampleOrigin) -> list[int]:
    """The tokens at a place, read as any reader of the shard would."""
    for dataset in datasets:
        for shard in dataset.require_split("train"):
            if dataset.shard_url(shard) == origin.shard:
                tokens = read_shard(dataset, shard)[origin.block].column("input_ids")[origin.row].as_py()
                return list(map(int, tokens))
    raise AssertionError(origin)


def tokens_of(batch: Batch) -> list[list[int]]:
    """The examples of a batch, one after the other."""
    if batch.packing is None:
        return [row[:length].tolist() for row, length in zip(batch.input_ids, batch.lengths, strict=True)]
    flat, starts = batch.input_ids.flatten(), batch.packing.first_positions.tolist()
    lengths = batch.lengths.tolist()
    return [flat[start : start + length].tolist() for start, length in zip(starts, lengths, strict=False)]


@pytest.mark.parametrize(
    ("num_datasets", "options"),
    [
        (1, {"microbatch_size": 7}),
        (2, {"microbatch_size": 5, "window_examples": 40}),
        (1, {"microbatch_size": 3, "row_length": 64}),
    ],
    ids=["padded", "two datasets", "packed"],
)
def test_the_examples_of_every_step_are_found_where_they_were_stored(
    tiny_dataset_path: Path, num_datasets: int, options: dict[str, Any]
) -> None:
    datasets = [open_dataset(str(tiny_dataset_path)) for _ in range(num_datasets)]
    # Two ranks of two lanes each; more steps than an epoch has.
    ranks = [
        StreamingLoader(datasets, "train", lanes=4, seed=3, rank=rank, world_size=2, **options)
        for rank in range(2)
    ]
    for step in range(30):
        state = merge_states([rank.state_dict() for rank in ranks])
        batches = [next(rank) for rank in ranks]
        if step not in (0, 1, 7, 29):
            continue
        found = locate_examples(datasets, ranks[0].order, state)
        assert list(found) == [0, 1, 2, 3]
        for lane, origins in found.items():
            expected = tokens_of(batches[lane % 2][lane // 2])
            assert [read_example(datasets, origin) for origin in origins] == expected
    for rank in ranks:
        rank.close()
