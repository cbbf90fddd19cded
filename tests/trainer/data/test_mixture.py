from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import accumulate, chain

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from schemas.errors import UsageError
from trainer.data.mixture import Mixture, Supply, WindowSizing, count_passes, plan_mixtures
from trainer.data.units import BlockRun, ShardSize

BLOCK = 10


def shards_of(*datasets: list[int]) -> list[ShardSize]:
    """Shards of so many examples each, in blocks of 10; examples of dataset i have 10 (i + 1) tokens."""
    return [
        ShardSize(size, -(-size // BLOCK), BLOCK, size * 10 * (number + 1), dataset=number)
        for number, sizes in enumerate(datasets)
        for size in sizes
    ]


def sizing(num_lanes: int = 1, window_examples: int = 10**6, microbatch_size: int = 1) -> WindowSizing:
    return WindowSizing(num_lanes, window_examples, lambda num_examples, _: num_examples // microbatch_size)


def blocks_of(runs: list[BlockRun]) -> Counter[tuple[int, int]]:
    return Counter((run.shard, run.first_block + i) for run in runs for i in range(run.num_blocks))


def count_by_dataset(runs: list[BlockRun], shards: list[ShardSize]) -> Counter[int]:
    """Examples of each dataset in some units."""
    counts: Counter[int] = Counter()
    for run in runs:
        counts[shards[run.shard].dataset] += run.num_examples
    return counts


@st.composite
def weighted(draw: st.DrawFn) -> tuple[list[ShardSize], list[float]]:
    num_datasets = draw(st.integers(1, 4))
    sizes = st.lists(st.integers(1, 90), min_size=1, max_size=6)
    datasets = [draw(sizes) for _ in range(num_datasets)]
    weight = st.sampled_from([0.05, 0.1, 0.3, 1.0, 2.5, 9.0])
    return shards_of(*datasets), [draw(weight) for _ in range(num_datasets)]


class TestSupply:
    UNITS = tuple(BlockRun(shard, 0, 1, BLOCK) for shard in range(5))

    @pytest.mark.parametrize(
        ("units_per_epoch", "counts"),
        [
            (Fraction(5), [5, 5, 5, 5]),
            (Fraction(5, 2), [2, 3, 2, 3]),
            (Fraction(1, 3), [0, 0, 1, 0]),
            (Fraction(12), [12, 12, 12, 12]),
            (Fraction(17, 4), [4, 4, 4, 5]),
        ],
    )
    def test_epochs_cut_one_endless_sequence_of_whole_passes(
        self, units_per_epoch: Fraction, counts: list[int]
    ) -> None:
        supply = Supply("", self.UNITS, units_per_epoch)
        taken = [supply.take(3, turn) for turn in range(60)]
        assert [len(units) for units in taken[:4]] == counts
        sequence = list(chain.from_iterable(taken))
        whole = len(sequence) // 5
        passes = [sequence[5 * number : 5 * number + 5] for number in range(whole)]
        assert all(sorted(one) == sorted(self.UNITS) for one in passes)
        assert len({tuple(one) for one in passes}) > min(whole, 120) // 3

    def test_name_and_seed_key_the_permutations(self) -> None:
        orders = {
            tuple(Supply(name, self.UNITS * 3, Fraction(15)).take(seed, 0))
            for name in ("dataset-0/", "dataset-1/")
            for seed in (1, 2)
        }
        assert len(orders) == 4


class TestTogether:
    def test_all_units_of_all_datasets_make_one_supply(self) -> None:
        shards = shards_of([30, 20], [50])
        (mixture,) = plan_mixtures(shards, sizing())
        for turn in range(3):
            assert blocks_of(mixture.take(1, turn)) == Counter(
                [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), *((2, block) for block in range(5))]
            )


class TestSequence:
    def test_a_mixture_for_each_dataset_with_windows_of_its_own(self) -> None:
        shards = shards_of([30, 20], [100, 50, 50], [10])
        mixtures = plan_mixtures(shards, sizing(window_examples=25), "sequence")
        # 50 examples want 4 windows of 5 units, 200 want 8: of shards cut into runs for 4 windows, there are
        # 3 + 2 + 2 or fewer; the last dataset has one block.
        assert [len(mixture.supplies[0].units) for mixture in mixtures] == [5, 4, 1]
        assert [mixture.num_windows for mixture in mixtures] == [4, 4, 1]
        for number, mixture in enumerate(mixtures):
            own = [place for place, shard in enumerate(shards) if shard.dataset == number]
            expected = Counter((place, block) for place in own for block in range(shards[place].num_blocks))
            assert all(blocks_of(mixture.take(1, turn)) == expected for turn in range(3))

    def test_a_dataset_with_too_few_blocks_is_named(self) -> None:
        with pytest.raises(UsageError, match=r"4 lanes need 4 blocks .* at least; dataset 2 of 3 has 3\.\n"):
            plan_mixtures(shards_of([40], [10, 20], [10]), sizing(num_lanes=4), "sequence")


class TestWeights:
    @pytest.mark.parametrize(
        ("datasets", "weights", "units_per_epoch"),
        [
            # 120 examples an epoch. Windows: 4 of 30.
            pytest.param(([80], [40]), (1.0, 1.0), [Fraction(6), Fraction(6)], id="small one 1.5 times"),
            pytest.param(([80], [40]), (2.0, 1.0), [Fraction(8), Fraction(4)], id="by their sizes"),
            pytest.param(([80], [40]), (0.1, 0.3), [Fraction(3), Fraction(9)], id="a quarter, exactly"),
            pytest.param(([80], [40]), (1.0, 99.0), [Fraction(12, 100), Fraction(2376, 200)], id="hardly"),
        ],
    )
    def test_table(
        self,
        datasets: tuple[list[int], ...],
        weights: tuple[float, ...],
        units_per_epoch: list[Fraction],
    ) -> None:
        (mixture,) = plan_mixtures(shards_of(*datasets), sizing(), weights=weights)
        blocks = [size[0] // BLOCK for size in datasets]
        # In blocks, whatever the units are.
        found = [
            supply.units_per_epoch * Fraction(number, len(supply.units))
            for supply, number in zip(mixture.supplies, blocks, strict=True)
        ]
        assert found == units_per_epoch

    def test_whole_shards_where_every_window_has_one(self) -> None:
        (mixture,) = plan_mixtures(shards_of([30] * 8, [30] * 8), sizing(), weights=(1.0, 1.0))
        assert {run.num_blocks for supply in mixture.supplies for run in supply.units} == {3}

    def test_a_large_shard_is_cut_so_that_every_window_has_of_every_dataset(self) -> None:
        shards = shards_of([1000], [1000, 1000])
        (mixture,) = plan_mixtures(shards, sizing(window_examples=100), weights=(1.0, 1.0))
        assert mixture.num_windows == 30
        for turn in range(5):
            units = mixture.take(7, turn)
            for window in np.array_split(np.arange(len(units)), 30):
                counts = count_by_dataset([units[number] for number in window], shards)
                assert set(counts) == {0, 1}

    def test_an_epoch_with_fewer_blocks_than_lanes_is_refused_with_the_numbers(self) -> None:
        # 8 blocks an epoch, 4.4 and 3.6 of the two: in some epochs 7.
        with pytest.raises(UsageError, match=r"8 lanes need 8 blocks .* these weights, has 7 in an epoch"):
            plan_mixtures(shards_of([40], [40]), sizing(num_lanes=8), weights=(1.1, 0.9))

    @settings(deadline=None, max_examples=30)
    @given(weighted(), st.integers(1, 4), st.integers(5, 200))
    @example((shards_of([10], [90, 90, 90]), [9.0, 0.05]), 1, 20)
    def test_shares_are_exact_but_for_a_unit_and_passes_whole(
        self, mixed: tuple[list[ShardSize], list[float]], num_lanes: int, window_examples: int
    ) -> None:
        shards, weights = mixed
        try:
            (mixture,) = plan_mixtures(shards, sizing(num_lanes, window_examples), weights=weights)
        except UsageError:
            assume(False)
        epochs = [mixture.take(1, epoch) for epoch in range(50)]
        assert min(map(len, epochs)) >= mixture.num_windows
        total = sum(shard.num_examples for shard in shards)
        for number, supply in enumerate(mixture.supplies):
            share = Fraction(str(weights[number])) / sum(Fraction(str(weight)) for weight in weights)
            of_dataset = [[run for run in epoch if shards[run.shard].dataset == number] for epoch in epochs]
            # In units of the dataset's mean size, of which a pass has a whole number.
            wanted = share * total * len(supply.units) / sum(run.num_examples for run in supply.units)
            ends = accumulate(len(units) for units in of_dataset)
            assert all(0 <= turn * wanted - end < 1 for turn, end in enumerate(ends, start=1))
            # Each block as often as another, but for the pass that is not yet done.
            own = {
                (place, block)
                for place, shard in enumerate(shards)
                if shard.dataset == number
                for block in range(shard.num_blocks)
            }
            counts = blocks_of(list(chain.from_iterable(of_dataset)))
            assert set(counts) <= own
            passes = math.floor(50 * wanted / len(supply.units))
            assert {counts[block] for block in own} <= {passes, passes + 1}

    @given(st.lists(st.integers(1, 60), min_size=1, max_size=4), st.integers(0, 5))
    def test_supplies_are_spread_evenly_over_an_epoch(self, counts: list[int], turn: int) -> None:
        supplies = tuple(
            Supply(f"{number}/", tuple(BlockRun(number, i, 1, BLOCK) for i in range(count)), Fraction(count))
            for number, count in enumerate(counts)
        )
        order = [run.shard for run in Mixture(supplies, 1).take(5, turn)]
        assert Counter(order) == Counter(dict(enumerate(counts)))
        for end in range(len(order) + 1):
            so_far = Counter(order[:end])
            for number, count in enumerate(counts):
                # By its own rounding and that of each of the others.
                assert abs(so_far[number] - count * end / len(order)) <= 1 + len(counts) * count / len(order)


class TestCountPasses:
    @pytest.mark.parametrize(
        ("seen", "schedule", "weights", "expected"),
        [
            (250, "together", None, [2.5, 2.5, 2.5]),
            (0, "sequence", None, [0.0, 0.0, 0.0]),
            (25, "sequence", None, [0.5, 0.0, 0.0]),
            (65, "sequence", None, [1.0, 0.5, 0.0]),
            (100, "sequence", None, [1.0, 1.0, 1.0]),
            (290, "sequence", None, [3.0, 3.0, 2.5]),
            (100, "together", [1.0, 1.0, 2.0], [0.5, 25 / 30, 2.5]),
        ],
    )
    def test_table(
        self, seen: int, schedule: str, weights: list[float] | None, expected: list[float]
    ) -> None:
        assert count_passes([50, 30, 20], seen, schedule, weights) == pytest.approx(expected)  # type: ignore[arg-type]
