from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from schemas.errors import UsageError
from trainer.data.order import START, Cursor, Order, lanes_of_rank, plan_order
from trainer.data.units import BlockRun, ShardSize


def shard(num_examples: int, examples_per_block: int = 10, mean_length: int = 20) -> ShardSize:
    num_blocks = -(-num_examples // examples_per_block)
    return ShardSize(num_examples, num_blocks, examples_per_block, num_tokens=num_examples * mean_length)


def plan(shards: list[ShardSize], num_lanes: int, **options: Any) -> Order:
    return plan_order(shards, **{"seed": 1, "num_lanes": num_lanes, "microbatch_size": 8, **options})


@st.composite
def shard_lists(draw: st.DrawFn) -> list[ShardSize]:
    block = draw(st.integers(1, 12))
    sizes = draw(st.lists(st.integers(1, 150), min_size=1, max_size=20))
    return [shard(size, block) for size in sizes]


class TestUnitsAndWindows:
    @pytest.mark.parametrize(
        ("num_shards", "blocks_per_shard", "num_lanes", "window_examples", "num_units", "num_windows"),
        [
            # shards x blocks, lanes, window -> units, windows        in words
            pytest.param(64, 3, 2, 240, 64, 8, id="whole shards, eight a window: 8 windows, 4 a lane"),
            pytest.param(64, 3, 2, 90, 64, 22, id="1,920 examples in windows of about 90: 22, 11 a lane"),
            pytest.param(64, 3, 2, 30, 64, 64, id="a shard is as large as a window"),
            pytest.param(64, 3, 2, 5, 64, 64, id="a shard larger than a window makes one alone"),
            pytest.param(64, 3, 2, 10**6, 64, 8, id="never fewer than 4 windows a lane"),
            pytest.param(9, 3, 2, 30, 9, 8, id="nine shards, two lanes: one window takes two shards"),
            pytest.param(4, 3, 1, 10**6, 4, 4, id="just enough whole shards for one lane"),
            pytest.param(3, 8, 1, 10**6, 6, 4, id="too few shards: halves of them, 6 units in 4 windows"),
            pytest.param(1, 64, 2, 10**6, 8, 8, id="one shard in 8 runs of 8 blocks"),
            pytest.param(2, 4, 4, 10**6, 8, 8, id="8 blocks for 4 lanes: one a unit, 2 windows a lane"),
            pytest.param(1, 5, 5, 10**6, 5, 5, id="as many lanes as blocks"),
            pytest.param(1, 7, 5, 10**6, 7, 5, id="7 blocks for 5 lanes: two windows of two blocks"),
        ],
    )
    def test_table(
        self,
        num_shards: int,
        blocks_per_shard: int,
        num_lanes: int,
        window_examples: int,
        num_units: int,
        num_windows: int,
    ) -> None:
        order = plan([shard(10 * blocks_per_shard)] * num_shards, num_lanes, window_examples=window_examples)
        ((supply,), found_windows) = order.mixtures[0]
        assert (len(supply.units), found_windows) == (num_units, num_windows)

    def test_runs_of_a_shard_written_out(self) -> None:
        # One lane wants 4 windows; runs of 2 blocks would be 2 + 1 of them, so it is runs of one block.
        (supply,) = plan([shard(33), shard(20)], 1).mixtures[0].supplies
        assert supply.units == (
            BlockRun(shard=0, first_block=0, num_blocks=1, num_examples=10),
            BlockRun(shard=0, first_block=1, num_blocks=1, num_examples=10),
            BlockRun(shard=0, first_block=2, num_blocks=1, num_examples=10),
            BlockRun(shard=0, first_block=3, num_blocks=1, num_examples=3),
            BlockRun(shard=1, first_block=0, num_blocks=1, num_examples=10),
            BlockRun(shard=1, first_block=1, num_blocks=1, num_examples=10),
        )

    def test_windows_of_an_epoch_written_out(self) -> None:
        order = plan([shard(10), shard(20), shard(30), shard(40), shard(50)], 1, seed=3)
        windows = order.windows_of_lane(0, 0)
        assert [window.name for window in windows] == [f"epoch-0/window-{i}" for i in range(4)]
        assert sorted(run.shard for window in windows for run in window.runs) == [0, 1, 2, 3, 4]
        assert [len(window.runs) for window in windows] == [2, 1, 1, 1]
        assert all(w.num_examples == sum(10 * (run.shard + 1) for run in w.runs) for w in windows)

    def test_more_lanes_than_blocks_is_refused_with_the_numbers(self) -> None:
        with pytest.raises(UsageError, match=r"6 lanes need 6 blocks of examples at least; the data has 5"):
            plan([shard(20), shard(30)], 6)

    def test_another_epoch_or_seed_deals_otherwise(self) -> None:
        shards = [shard(10)] * 40
        first = [plan(shards, 2, seed=1).windows_of_lane(0, epoch) for epoch in (0, 0, 1)]
        other = plan(shards, 2, seed=2).windows_of_lane(0, 0)
        assert first[0] == first[1]
        assert [w.runs for w in first[0]] != [w.runs for w in first[2]]
        assert [w.runs for w in first[0]] != [w.runs for w in other]

    @given(shard_lists(), st.integers(1, 8), st.integers(1, 300), st.integers(0, 3))
    def test_each_block_is_in_one_window_of_one_lane_each_epoch(
        self, shards: list[ShardSize], num_lanes: int, window_examples: int, epoch: int
    ) -> None:
        blocks = [(number, block) for number, size in enumerate(shards) for block in range(size.num_blocks)]
        assume(len(blocks) >= num_lanes)
        order = plan(shards, num_lanes, window_examples=window_examples)
        windows = [w for lane in range(num_lanes) for w in order.windows_of_lane(lane, epoch)]
        runs = [run for window in windows for run in window.runs]
        dealt = Counter((run.shard, run.first_block + i) for run in runs for i in range(run.num_blocks))
        assert dealt == Counter(blocks)
        assert sum(w.num_examples for w in windows) == sum(size.num_examples for size in shards)
        assert all(run.num_examples > 0 for run in runs)
        counts = {len(order.windows_of_lane(lane, epoch)) for lane in range(num_lanes)}
        assert len(counts) == 1
        num_examples = sum(size.num_examples for size in shards)
        assert counts.pop() >= min(4, len(blocks) // num_lanes, max(1, num_examples // (8 * num_lanes)))

    @pytest.mark.parametrize(
        ("microbatch_size", "num_windows"), [(8, 4), (12, 4), (13, 3), (24, 2), (26, 1), (50, 1), (64, 1)]
    )
    def test_windows_hold_a_microbatch_each_on_average(self, microbatch_size: int, num_windows: int) -> None:
        # 50 examples in 5 blocks: a batch of 64 is then all of them, not one block.
        order = plan([shard(30), shard(20)], 1, microbatch_size=microbatch_size)
        assert order.windows_per_lane(0) == num_windows

    @pytest.mark.parametrize(("num_rows", "num_windows"), [(2, 4), (7, 4), (8, 3), (15, 2), (16, 1), (90, 1)])
    def test_packed_windows_hold_a_microbatch_of_rows_each_on_average(
        self, num_rows: int, num_windows: int
    ) -> None:
        # 50 examples of 20 tokens fill 31 rows of 32.
        order = plan([shard(30), shard(20)], 1, microbatch_size=num_rows, row_length=32)
        assert order.windows_per_lane(0) == num_windows


class TestMicrobatches:
    def test_by_examples_or_by_rows(self) -> None:
        lengths = np.arange(100) % 7 + 1
        padded, packed = plan([shard(100)], 1), plan([shard(100)], 1, row_length=16)
        window = padded.windows_of_lane(0, 0)[0]
        by_examples, by_rows = (order.microbatches(window, lengths) for order in (padded, packed))
        assert all(batch.offsets is None for batch in by_examples)
        assert {len(batch.examples) for batch in by_examples} == {7, 8}
        # 397 tokens in 25 rows of 16, at most 8 in a microbatch.
        assert sorted(max(np.asarray(batch.offsets)) // 16 + 1 for batch in by_rows) == [6, 6, 6, 7]

    def test_same_window_same_batches_other_window_other_batches(self) -> None:
        order = plan([shard(100)], 1)
        lengths = np.arange(100) % 7
        one, two = order.windows_of_lane(0, 0)[:2]
        again = order.microbatches(one, lengths)
        pairs = zip(order.microbatches(one, lengths), again, strict=True)
        assert all((a.examples == b.examples).all() for a, b in pairs)
        other = order.microbatches(two._replace(num_examples=one.num_examples), lengths)
        assert not all(np.array_equal(a.examples, b.examples) for a, b in zip(again, other, strict=True))


class TestCursor:
    def test_walks_window_by_window_into_the_next_epoch(self) -> None:
        # Blocks of 10, 10, 5, 10, 10, 5 for two lanes: three windows a lane.
        order = plan([shard(25), shard(25)], 2, microbatch_size=4)
        cursor, walked = START, []
        for _ in range(7):
            walked.append(cursor)
            cursor = order.next_window(cursor._replace(offset=1))
        assert walked == [Cursor(n // 3, n % 3, 0) for n in range(7)]

    def test_in_sequence_epochs_differ_in_their_windows(self) -> None:
        # 60 and 20 examples, so 4 windows and 2 of a block each, by turns.
        shards = [shard(60), shard(20)._replace(dataset=1)]
        order = plan(shards, 1, schedule="sequence")
        assert [order.windows_per_lane(epoch) for epoch in range(4)] == [4, 2, 4, 2]
        cursor, walked = START, []
        for _ in range(12):
            walked.append((cursor.epoch, cursor.position))
            assert order.has(0, cursor)
            assert {run.shard for run in order.window_at(0, cursor).runs} == {cursor.epoch % 2}
            cursor = order.next_window(cursor)
        assert walked == [(e, p) for e, count in enumerate((4, 2, 4, 2)) for p in range(count)]
        assert not order.has(0, Cursor(1, 2, 0))
        names = [window.name for epoch in range(4) for window in order.windows_of_lane(0, epoch)]
        assert len(set(names)) == 12

    @pytest.mark.parametrize(
        ("cursor", "expected"),
        [
            ((0, 0, 0), True),
            ((7, 2, 4), True),
            ((0, 3, 0), False),
            ((0, 0, 10), False),
            ((-1, 0, 0), False),
            ((0, -1, 0), False),
            ((0, 0, -1), False),
        ],
    )
    def test_only_what_can_be_is_one(self, cursor: tuple[int, int, int], expected: bool) -> None:
        order = plan([shard(25), shard(25)], 2, microbatch_size=4)
        assert order.has(0, Cursor(*cursor)) is expected


class TestLanesOfRank:
    @pytest.mark.parametrize(
        ("num_lanes", "world_size", "expected"),
        [
            (4, 1, [[0, 1, 2, 3]]),
            (4, 2, [[0, 2], [1, 3]]),
            (4, 3, [[0, 3], [1], [2]]),
            (4, 4, [[0], [1], [2], [3]]),
        ],
    )
    def test_table(self, num_lanes: int, world_size: int, expected: list[list[int]]) -> None:
        assert [list(lanes_of_rank(num_lanes, rank, world_size)) for rank in range(world_size)] == expected

    def test_a_rank_without_a_lane_is_refused(self) -> None:
        with pytest.raises(UsageError, match=r"8 ranks can't share 4 lanes"):
            lanes_of_rank(4, 0, 8)
