"""Which examples come when: arithmetic on the manifest's counts, a seed and a number of lanes.

In: how many examples each shard holds. Out: for every epoch and lane the windows it reads, and within a
window the microbatches. Deterministic, and independent of how many ranks or threads do the reading:

    unit          a whole shard, or a run of blocks of one shard where there are few shards
    window        a few units, their examples permuted together; what is in memory at one time for a lane
    lane          a virtual rank, which belongs to the run and not to the machine
    global step   one microbatch of every lane; rank r of w owns the lanes r, r + w, r + 2w, …

For 6 shards a … f and 2 lanes, one epoch might be

    permuted units    d a f b e c
    windows           0: d a   1: f   2: b   3: e   …       dealt to the lanes 0, 1, 0, 1, …

A lane that has come to the end of its windows goes on with those of the next epoch, without waiting for the
others. Each example is in exactly one window of an epoch, and in exactly one microbatch of its window. How
many microbatches a packed window gives depends on the lengths of its examples, so a lane's place is known to
the rank that reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.errors import UsageError
from schemas.seeding import RandomStream
from trainer.data.microbatches import Microbatch, cut_by_examples, cut_by_rows

WINDOW_EXAMPLES = 65_536
WINDOWS_PER_LANE = 4


class ShardSize(NamedTuple):
    """What the order needs to know of a shard: all blocks but the last hold `examples_per_block` examples."""

    num_examples: int
    num_blocks: int
    examples_per_block: int
    num_tokens: int


class BlockRun(NamedTuple):
    """The blocks `first_block` … `first_block + num_blocks - 1` of the shard of this number."""

    shard: int
    first_block: int
    num_blocks: int
    num_examples: int


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


# Compared and hashed by identity: the tuple of units is long, and the cache of `_deal_windows` asks often.
@dataclass(frozen=True, eq=False)
class Order:
    """The order of a run. Made by `plan_order`; everything else follows from it.

    Attributes:
        seed: of the run.
        num_lanes: microbatches in a global step.
        microbatch_size: examples in a microbatch at most, or rows where they are packed.
        units: every block of every shard, in exactly one of them.
        num_windows: a multiple of `num_lanes`, so that each lane gets as many.
        row_length: tokens of a row into which examples are packed; None where each has a row of its own.
    """

    seed: int
    num_lanes: int
    microbatch_size: int
    units: tuple[BlockRun, ...]
    num_windows: int
    row_length: int | None = None

    @property
    def windows_per_lane(self) -> int:
        """How many windows each lane reads in an epoch; at least one."""
        return self.num_windows // self.num_lanes

    def windows_of_lane(self, lane: int, epoch: int) -> tuple[Window, ...]:
        """The windows that a lane reads in an epoch, in this order."""
        return _deal_windows(self, epoch)[lane :: self.num_lanes]

    def window_at(self, lane: int, cursor: Cursor) -> Window:
        """The window at a cursor."""
        return _deal_windows(self, cursor.epoch)[lane + cursor.position * self.num_lanes]

    def has(self, lane: int, cursor: Cursor) -> bool:
        """Whether a cursor can be that of a microbatch; how many a window gives only its reader knows."""
        if min(cursor) < 0 or cursor.position >= self.windows_per_lane:
            return False
        return cursor.offset < self.window_at(lane, cursor).num_examples

    def next_window(self, cursor: Cursor) -> Cursor:
        """The first microbatch of the window after that of a cursor."""
        if cursor.position + 1 < self.windows_per_lane:
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
) -> Order:
    """Cut shards into units and settle how many windows there are.

    Args:
        shards: sizes, in the order of the manifest.
        seed: of the run.
        num_lanes: microbatches in a global step, at least 1.
        microbatch_size: examples in a microbatch at most, or rows where they are packed; at least 1.
        row_length: pack examples into rows of so many tokens.
        window_examples: about how many examples are permuted together, where there are enough of them for
            `WINDOWS_PER_LANE` windows a lane of a microbatch each; a shard that is larger makes a window
            alone.

    Raises:
        UsageError: there are fewer blocks than lanes.
    """
    num_blocks = sum(shard.num_blocks for shard in shards)
    if num_blocks < num_lanes:
        raise UsageError(
            f"{num_lanes} lanes need {num_lanes} blocks of examples at least; the data has {num_blocks}.\n"
            f"Use fewer lanes (less gradient accumulation or fewer ranks), or build with a smaller "
            f"examples_per_block."
        )
    units = _cut_units(shards, num_lanes * WINDOWS_PER_LANE)
    num_examples = sum(shard.num_examples for shard in shards)
    wanted = max(num_lanes * WINDOWS_PER_LANE, -(-num_examples // window_examples))
    windows_per_lane = min(-(-wanted // num_lanes), len(units) // num_lanes)
    # Windows of less than a microbatch would make every batch smaller than was asked for.
    num_microbatches = num_examples // microbatch_size
    if row_length is not None:
        num_microbatches = sum(shard.num_tokens for shard in shards) // (microbatch_size * row_length)
    windows_per_lane = max(1, min(windows_per_lane, num_microbatches // num_lanes))
    return Order(seed, num_lanes, microbatch_size, units, windows_per_lane * num_lanes, row_length)


def _cut_units(shards: Sequence[ShardSize], num_units: int) -> tuple[BlockRun, ...]:
    # Whole shards where there are enough, else the longest runs of blocks that are enough, else single
    # blocks.
    longest = max(shard.num_blocks for shard in shards)
    low, high = 1, longest
    while low < high:
        middle = (low + high + 1) // 2
        if sum(-(-shard.num_blocks // middle) for shard in shards) >= num_units:
            low = middle
        else:
            high = middle - 1
    return tuple(run for number, shard in enumerate(shards) for run in _cut_shard(number, shard, low))


def _cut_shard(number: int, shard: ShardSize, blocks_per_run: int) -> list[BlockRun]:
    num_runs = -(-shard.num_blocks // blocks_per_run)
    bounds = [shard.num_blocks * run // num_runs for run in range(num_runs + 1)]
    return [
        BlockRun(
            shard=number,
            first_block=first,
            num_blocks=end - first,
            num_examples=min(shard.num_examples, end * shard.examples_per_block)
            - first * shard.examples_per_block,
        )
        for first, end in pairwise(bounds)
    ]


@lru_cache(maxsize=8)
def _deal_windows(order: Order, epoch: int) -> tuple[Window, ...]:
    permuted = RandomStream(order.seed, "order/windows", f"epoch-{epoch}").permutation(len(order.units))
    windows = []
    for number, members in enumerate(np.array_split(permuted, order.num_windows)):
        runs = tuple(order.units[member] for member in members)
        num_examples = sum(run.num_examples for run in runs)
        windows.append(Window(f"epoch-{epoch}/window-{number}", runs, num_examples))
    return tuple(windows)
