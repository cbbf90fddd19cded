"""Where the examples of a global step lie in the shards.

In: an order, and where the lanes stood before the step. Out: for each lane the shard, block and row of its
examples. Deterministic: the arithmetic of `order`, done again; the only thing read is the window of each
lane, since microbatches depend on lengths. Nothing is carried along with the batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from trainer.data.dataset import Dataset
from trainer.data.order import Cursor, Order
from trainer.data.shard_source import ShardSource


class ExampleOrigin(NamedTuple):
    """Row `row` of block `block` of the shard at `shard`; both count from 0."""

    shard: str
    block: int
    row: int


def locate_examples(
    datasets: Sequence[Dataset], order: Order, state: Mapping[str, Any]
) -> dict[int, list[ExampleOrigin]]:
    """The examples of one global step.

    Args:
        datasets: what the run trains on; their training shards are taken.
        order: of the run.
        state: of the loader before that step; of one rank, or of several merged.

    Returns:
        For each lane of the state the examples of its microbatch, in its order.

    Raises:
        ClozelineError: a shard can't be read or is not what its manifest says.
    """
    source = ShardSource(datasets, "train")
    return {
        int(lane): _locate_microbatch(datasets, source, order, int(lane), Cursor(*cursor))
        for lane, cursor in state["cursors"].items()
    }


def _locate_microbatch(
    datasets: Sequence[Dataset], source: ShardSource, order: Order, lane: int, cursor: Cursor
) -> list[ExampleOrigin]:
    window = order.window_at(lane, cursor)
    microbatch = order.microbatches(window, source.read_window(window).lengths)[cursor.offset]
    shards = [(dataset, shard) for dataset in datasets for shard in dataset.require_split("train")]
    ends = np.cumsum([run.num_examples for run in window.runs])
    origins = []
    for index in microbatch.examples.tolist():
        number = int(np.searchsorted(ends, index, side="right"))
        run = window.runs[number]
        within_run = index - int(ends[number]) + run.num_examples
        dataset, shard = shards[run.shard]
        block, row = divmod(within_run, dataset.manifest.config.examples_per_block)
        origins.append(ExampleOrigin(dataset.shard_url(shard), run.first_block + block, row))
    return origins
