"""Several datasets in one run: which units an epoch takes of each, and how many windows that makes.

In: sizes of shards, a schedule or weights. Out: `Mixture`s, taken in turn by the epochs of a run, and the
units of each epoch. Deterministic: arithmetic on fractions, a seed and the number of the epoch.

    together    an epoch takes every unit of every dataset
    sequence    epoch e takes every unit of dataset e mod k
    weights     an epoch takes as many examples as there are, of each dataset its share of them

A dataset is an endless sequence of passes, each over all of its units in another order. Its share of an epoch
comes to q units, a fraction, and epoch e takes those from the number floor(e q) of that sequence up to
floor((e + 1) q). So shares are exact but for one unit, and each pass has each example exactly once. For
weights 1 and 3, 4 units a … d and 2 units u v of as many examples each,

    epoch    units of the first, q = 1.5    of the second, q = 4.5
    0        c                              v u u v
    1        a d                            u v v u v
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np

from schemas.errors import UsageError
from schemas.seeding import RandomStream
from trainer.data.units import BlockRun, ShardSize, cut_units

DataSchedule = Literal["together", "sequence"]
WINDOWS_PER_LANE = 4

_Numbered = Sequence[tuple[int, ShardSize]]


class WindowSizing(NamedTuple):
    """What decides how many windows an epoch has.

    Attributes:
        num_lanes: the number of windows is a multiple of it.
        window_examples: about so many examples in a window, where that gives each lane enough of them.
        count_microbatches: (examples, tokens) -> whole microbatches.
    """

    num_lanes: int
    window_examples: int
    count_microbatches: Callable[[int, int], int]

    def count_windows(self, num_examples: int, num_tokens: int, num_units: int | None = None) -> int:
        """Windows of an epoch, at most one a unit."""
        wanted = max(self.num_lanes * WINDOWS_PER_LANE, -(-num_examples // self.window_examples))
        # Windows of less than a microbatch would make every batch smaller than was asked for.
        most = self.count_microbatches(num_examples, num_tokens)
        most = most if num_units is None else min(most, num_units)
        return max(1, min(-(-wanted // self.num_lanes), most // self.num_lanes)) * self.num_lanes


class Supply(NamedTuple):
    """The units of one dataset, or of all together, as an endless sequence of passes.

    Attributes:
        name: keys its permutations.
        units: at least one.
        units_per_epoch: q, above 0.
    """

    name: str
    units: tuple[BlockRun, ...]
    units_per_epoch: Fraction

    def take(self, seed: int, turn: int) -> list[BlockRun]:
        """The units numbered floor(turn q) … floor((turn + 1) q) - 1 of the endless sequence."""
        first = math.floor(turn * self.units_per_epoch)
        end = math.floor((turn + 1) * self.units_per_epoch)
        taken: list[BlockRun] = []
        for number in range(first // len(self.units), -(-end // len(self.units))):
            stream = RandomStream(seed, "order/windows", f"{self.name}epoch-{number}")
            before = number * len(self.units)
            members = stream.permutation(len(self.units))[max(0, first - before) : end - before]
            taken += [self.units[member] for member in members]
        return taken


class Mixture(NamedTuple):
    """What an epoch is made of: so much of each supply, in so many windows."""

    supplies: tuple[Supply, ...]
    num_windows: int

    def take(self, seed: int, turn: int) -> list[BlockRun]:
        """The units of the mixture's epoch `turn`, each supply spread evenly over the whole epoch."""
        taken = [supply.take(seed, turn) for supply in self.supplies]
        units = [unit for of_supply in taken for unit in of_supply]
        # Where each supply begins within the distance of two of its units: else all would meet at the ends.
        begins = RandomStream(seed, "order/supplies", f"epoch-{turn}").floats(len(taken)).tolist()
        places = [
            (np.arange(len(of_supply)) + begin) / max(1, len(of_supply))
            for of_supply, begin in zip(taken, begins, strict=True)
        ]
        return [units[number] for number in np.argsort(np.concatenate(places), kind="stable")]


def plan_mixtures(
    shards: Sequence[ShardSize],
    sizing: WindowSizing,
    schedule: DataSchedule = "together",
    weights: Sequence[float] | None = None,
) -> tuple[Mixture, ...]:
    """The mixtures of a run: epoch e is made of the one at e modulo their number.

    Args:
        shards: sizes, in the order of the datasets.
        sizing: of windows.
        schedule: for `sequence` there is a mixture for each dataset.
        weights: one for each dataset, each above 0; only with `together`.

    Raises:
        UsageError: an epoch has fewer units than there are lanes.
    """
    numbered = list(enumerate(shards))
    num_datasets = shards[-1].dataset + 1
    by_dataset = [[pair for pair in numbered if pair[1].dataset == number] for number in range(num_datasets)]
    if weights is not None:
        return (_mix_by_weights(by_dataset, weights, sizing),)
    if schedule == "sequence":
        return tuple(
            _take_all(one, sizing, f"dataset-{number}/", f"dataset {number + 1} of {num_datasets}")
            for number, one in enumerate(by_dataset)
        )
    return (_take_all(numbered, sizing, "", "the data"),)


def count_passes(
    num_examples: Sequence[int],
    num_seen: float,
    schedule: DataSchedule = "together",
    weights: Sequence[float] | None = None,
) -> list[float]:
    """How many times each dataset was gone through, once a run has seen so many examples.

    Exact to what the lanes differ by, a window each.

    Args:
        num_examples: of each dataset.
        num_seen: examples seen, an example counted each time.
        schedule: of the run.
        weights: of the run.
    """
    total = sum(num_examples)
    if weights is not None:
        return [
            num_seen * weight / sum(weights) / count
            for weight, count in zip(weights, num_examples, strict=True)
        ]
    if schedule == "together":
        return [num_seen / total] * len(num_examples)
    rounds, rest = divmod(num_seen, total)
    passes = []
    for count in num_examples:
        passes.append(rounds + min(max(rest, 0), count) / count)
        rest -= count
    return passes


def _take_all(shards: _Numbered, sizing: WindowSizing, name: str, subject: str) -> Mixture:
    num_blocks = sum(shard.num_blocks for _, shard in shards)
    if num_blocks < sizing.num_lanes:
        raise UsageError(
            f"{sizing.num_lanes} lanes need {sizing.num_lanes} blocks of examples at least; {subject} has "
            f"{num_blocks}.\n{_REMEDY}"
        )
    units = cut_units(shards, sizing.num_lanes * WINDOWS_PER_LANE)
    num_examples, num_tokens = _count(shards)
    num_windows = sizing.count_windows(num_examples, num_tokens, len(units))
    return Mixture((Supply(name, units, Fraction(len(units))),), num_windows)


def _mix_by_weights(
    by_dataset: Sequence[_Numbered], weights: Sequence[float], sizing: WindowSizing
) -> Mixture:
    counts = [_count(shards) for shards in by_dataset]
    total = sum(num_examples for num_examples, _ in counts)
    # As decimals: 0.1 is a tenth then.
    exact = [Fraction(repr(float(weight))) for weight in weights]
    passes = [
        weight / sum(exact) * total / num_examples
        for weight, (num_examples, _) in zip(exact, counts, strict=True)
    ]
    num_tokens = sum(each * tokens for each, (_, tokens) in zip(passes, counts, strict=True))
    num_windows = sizing.count_windows(total, int(num_tokens))
    supplies = []
    for number, (shards, each) in enumerate(zip(by_dataset, passes, strict=True)):
        # Pieces small enough that every window has one of every dataset.
        units = cut_units(shards, math.ceil(num_windows / each))
        supplies.append(Supply(f"dataset-{number}/", units, each * len(units)))
    fewest = sum(math.floor(supply.units_per_epoch) for supply in supplies)
    if fewest < sizing.num_lanes:
        raise UsageError(
            f"{sizing.num_lanes} lanes need {sizing.num_lanes} blocks of examples at least; the data, mixed "
            f"by these weights, has {fewest} in an epoch.\n{_REMEDY}"
        )
    return Mixture(tuple(supplies), min(num_windows, fewest // sizing.num_lanes * sizing.num_lanes))


_REMEDY = (
    "Use fewer lanes (less gradient accumulation or fewer ranks), or build with a smaller examples_per_block."
)


def _count(shards: _Numbered) -> tuple[int, int]:
    return sum(shard.num_examples for _, shard in shards), sum(shard.num_tokens for _, shard in shards)
