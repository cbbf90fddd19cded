"""Where the examples of a global step lie in the shards.

In: an order, the position in the stream that a run began at, and how many steps it has made since. Out: for
each lane the shard, block and row of its examples. Deterministic: the arithmetic of `order`, done again; the
only thing read is the window of each lane, since microbatches depend on lengths. Nothing is carried along with
the batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from trainer.data.dataset import Dataset
from trainer.data.order import START, Cursor, Order
from trainer.data.shard_source import ShardSource


class ExampleOrigin(NamedTuple):
    """Row `row` of block `block` of the shard at `shard`; both count from 0."""

    shard: str
    block: int
    row: int


def locate_examples(
    datasets: Sequence[Dataset], order: Order, state: Mapping[str, Any] | None, num_steps: int
) -> list[list[ExampleOrigin]]:
    """The examples of one global step.

    Args:
        datasets: what the run trains on; their training shards are taken.
        order: of the run.
        state: a state of the loader; None for the start of the data.
        num_steps: steps between that state and the one that is asked for; 0 for the one that it stands at.

    Returns:
        For each lane the examples of its microbatch, in the order of its rows.

    Raises:
        ClozelineError: a shard can't be read or is not what its manifest says.
    """
    source = ShardSource(datasets, "train")
    found = []
    for lane in range(order.num_lanes):
        start = Cursor(*state["cursors"][str(lane)]) if state is not None else START
        found.append(_locate_microbatch(datasets, source, order, lane, order.advance(lane, start, num_steps)))
    return found


def _locate_microbatch(
    datasets: Sequence[Dataset], source: ShardSource, order: Order, lane: int, cursor: Cursor
) -> list[ExampleOrigin]:
    window = order.window_at(lane, cursor)
    indices = order.microbatches(window, source.read_window(window).lengths)[cursor.offset]
    shards = [(dataset, shard) for dataset in datasets for shard in dataset.require_split("train")]
    ends = np.cumsum([run.num_examples for run in window.runs])
    origins = []
    for index in indices.tolist():
        number = int(np.searchsorted(ends, index, side="right"))
        run = window.runs[number]
        within_run = index - int(ends[number]) + run.num_examples
        dataset, shard = shards[run.shard]
        block, row = divmod(within_run, dataset.manifest.config.examples_per_block)
        origins.append(ExampleOrigin(dataset.shard_url(shard), run.first_block + block, row))
    return origins
