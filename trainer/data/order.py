"""Which examples come when: arithmetic on the manifest's counts, a seed and a number of lanes.

In: how many examples each shard holds. Out: for every epoch and lane the windows it reads, and within a
window the microbatches. Deterministic, and independent of how many ranks or threads do the reading:

    unit          a whole shard, or a run of blocks of one shard where there are few shards
    window        a few units, their examples permuted together; what is in memory at one time for a lane
    lane          a virtual rank, which belongs to the run and not to the machine
    global step   one microbatch of every lane; rank r of w owns the lanes r, r + w, r + 2w, …

`mixture` says which units an epoch has, where there are several datasets. For 6 shards a … f and 2 lanes, one
epoch might be

    permuted units    d a f b e c
    windows           0: d a   1: f   2: b   3: e   …       dealt to the lanes 0, 1, 0, 1, …

A lane that has come to the end of its windows goes on with those of the next epoch, without waiting for the
others. Each example is in exactly one window of an epoch (unless datasets are mixed by weights), and in
exactly one microbatch of its window. How many microbatches a packed window gives depends on the lengths of
its examples, so a lane's place is known to the rank that reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.errors import UsageError
from schemas.seeding import RandomStream
from trainer.data.microbatches import Microbatch, cut_by_examples, cut_by_rows
from trainer.data.mixture import DataSchedule, Mixture, WindowSizing, plan_mixtures
from trainer.data.units import BlockRun, ShardSize

WINDOW_EXAMPLES = 65_536


class Window(NamedTuple):
    """Runs of blocks whose examples are permuted together; `name` keys that permutation."""

    name: str
    runs: tuple[BlockRun, ...]
    num_examples: int


class Cursor(NamedTuple):
    """Where a lane stands: the microbatch `offset` of the window at `position` in its list for `epoch`."""

    epoch: int
    position: int
    offset: int


START = Cursor(0, 0, 0)


# Compared and hashed by identity: the tuples of units are long, and the cache of `_deal_windows` asks often.
@dataclass(frozen=True, eq=False)
class Order:
    """The order of a run. Made by `plan_order`; everything else follows from it.

    Attributes:
        seed: of the run.
        num_lanes: microbatches in a global step.
        microbatch_size: examples in a microbatch at most, or rows where they are packed.
        mixtures: what epochs are made of, in turn.
        row_length: tokens of a row into which examples are packed; None where each has a row of its own.
    """

    seed: int
    num_lanes: int
    microbatch_size: int
    mixtures: tuple[Mixture, ...]
    row_length: int | None = None

    def windows_per_lane(self, epoch: int) -> int:
        """How many windows each lane reads in an epoch; at least one."""
        return self.mixtures[epoch % len(self.mixtures)].num_windows // self.num_lanes

    def windows_of_lane(self, lane: int, epoch: int) -> tuple[Window, ...]:
        """The windows that a lane reads in an epoch, in this order."""
        return _deal_windows(self, epoch)[lane :: self.num_lanes]

    def window_at(self, lane: int, cursor: Cursor) -> Window:
        """The window at a cursor."""
        return _deal_windows(self, cursor.epoch)[lane + cursor.position * self.num_lanes]

    def has(self, lane: int, cursor: Cursor) -> bool:
        """Whether a cursor can be that of a microbatch; how many a window gives only its reader knows."""
        if min(cursor) < 0 or cursor.position >= self.windows_per_lane(cursor.epoch):
            return False
        return cursor.offset < self.window_at(lane, cursor).num_examples

    def next_window(self, cursor: Cursor) -> Cursor:
        """The first microbatch of the window after that of a cursor."""
        if cursor.position + 1 < self.windows_per_lane(cursor.epoch):
            return Cursor(cursor.epoch, cursor.position + 1, 0)
        return Cursor(cursor.epoch + 1, 0, 0)

    def microbatches(self, window: Window, lengths: NDArray[np.int64]) -> list[Microbatch]:
        """The microbatches of a window, in the order in which they come.

        Args:
            window: which window.
            lengths: int64 [num_examples], tokens of its examples in stored order.
        """
        stream = RandomStream(self.seed, "order/examples", window.name)
        if self.row_length is None:
            return cut_by_examples(lengths, self.microbatch_size, stream)
        return cut_by_rows(lengths, self.microbatch_size, self.row_length, stream)


def lanes_of_rank(num_lanes: int, rank: int, world_size: int) -> range:
    """The lanes that a rank owns.

    Raises:
        UsageError: there are more ranks than lanes, so that some would have nothing to do.
    """
    if num_lanes < world_size:
        raise UsageError(
            f"{world_size} ranks can't share {num_lanes} lanes: a rank needs one at least.\n"
            f"Train on {num_lanes} ranks at most, or begin a run with more lanes."
        )
    return range(rank, num_lanes, world_size)


def plan_order(
    shards: Sequence[ShardSize],
    *,
    seed: int,
    num_lanes: int,
    microbatch_size: int,
    row_length: int | None = None,
    window_examples: int = WINDOW_EXAMPLES,
    schedule: DataSchedule = "together",
    weights: Sequence[float] | None = None,
) -> Order:
    """Cut shards into units and settle how many windows there are.

    Args:
        shards: sizes, in the order of the datasets and their manifests.
        seed: of the run.
        num_lanes: microbatches in a global step, at least 1.
        microbatch_size: examples in a microbatch at most, or rows where they are packed; at least 1.
        row_length: pack examples into rows of so many tokens.
        window_examples: about how many examples are permuted together, where there are enough of them for
            `WINDOWS_PER_LANE` windows a lane of a microbatch each; a shard that is larger makes a window
            alone.
        schedule: whether epochs read all datasets or one after the other.
        weights: of the datasets, where they are mixed.

    Raises:
        UsageError: there are fewer blocks than lanes.
    """

    def count_microbatches(num_examples: int, num_tokens: int) -> int:
        if row_length is None:
            return num_examples // microbatch_size
        return num_tokens // (microbatch_size * row_length)

    sizing = WindowSizing(num_lanes, window_examples, count_microbatches)
    mixtures = plan_mixtures(shards, sizing, schedule, weights)
    return Order(seed, num_lanes, microbatch_size, mixtures, row_length)


@lru_cache(maxsize=8)
def _deal_windows(order: Order, epoch: int) -> tuple[Window, ...]:
    turn, number = divmod(epoch, len(order.mixtures))
    mixture = order.mixtures[number]
    units = mixture.take(order.seed, turn)
    windows = []
    for window, members in enumerate(np.array_split(np.arange(len(units)), mixture.num_windows)):
        runs = tuple(units[member] for member in members.tolist())
        num_examples = sum(run.num_examples for run in runs)
        windows.append(Window(f"epoch-{epoch}/window-{window}", runs, num_examples))
    return tuple(windows)
