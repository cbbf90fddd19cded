from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.seeding import RandomStream
from trainer.data.microbatches import Microbatch, cut_by_examples, cut_by_rows


def stream(seed: int = 0) -> RandomStream:
    return RandomStream(seed, "tests", "microbatches")


def pack(lengths: np.ndarray, seed: int = 0, most_rows: int = 4, row_length: int = 32) -> list[Microbatch]:
    return cut_by_rows(lengths, most_rows, row_length, stream(seed))


class TestByExamples:
    @given(st.integers(1, 400), st.integers(1, 40), st.integers(0, 5))
    def test_each_example_once_in_batches_of_nearly_equal_size_and_length(
        self, num_examples: int, most_examples: int, seed: int
    ) -> None:
        lengths = np.random.default_rng(seed).integers(5, 30, num_examples)
        batches = [batch.examples for batch in cut_by_examples(lengths, most_examples, stream(seed))]
        assert len(batches) == -(-num_examples // most_examples)
        assert sorted(np.concatenate(batches).tolist()) == list(range(num_examples))
        sizes = [len(batch) for batch in batches]
        assert max(sizes) <= most_examples
        assert max(sizes) - min(sizes) <= 1
        spans = sorted((lengths[batch].min(), lengths[batch].max()) for batch in batches)
        assert all(before[1] <= after[0] for before, after in pairwise(spans))

    def test_equally_long_examples_meet_at_random_and_batches_come_in_random_order(self) -> None:
        batches = [batch.examples for batch in cut_by_examples(np.full(1000, 7), 10, stream())]
        assert len({tuple(np.diff(batch)) for batch in batches}) > 90
        by_length = [batch.examples for batch in cut_by_examples(np.arange(1000), 10, stream())]
        firsts = [int(batch.min()) for batch in by_length]
        assert sorted(firsts) == list(range(0, 1000, 10))
        assert firsts != sorted(firsts)


class TestByRows:
    @given(st.integers(1, 300), st.integers(1, 9), st.integers(8, 40), st.integers(0, 5))
    def test_each_example_once_whole_within_a_row_and_overlapping_none(
        self, num_examples: int, most_rows: int, row_length: int, seed: int
    ) -> None:
        lengths = np.random.default_rng(seed).integers(1, row_length + 1, num_examples)
        batches = pack(lengths, seed, most_rows, row_length)
        examples = np.concatenate([batch.examples for batch in batches])
        assert sorted(examples.tolist()) == list(range(num_examples))
        num_rows = []
        for indices, offsets in batches:
            assert offsets is not None
            ends = offsets + lengths[indices]
            assert (offsets[1:] >= ends[:-1]).all()
            assert (offsets // row_length == (ends - 1) // row_length).all()
            rows = np.unique(offsets // row_length)
            assert rows.tolist() == list(range(len(rows)))
            num_rows.append(len(rows))
        assert max(num_rows) <= most_rows
        assert max(num_rows) - min(num_rows) <= 1
        assert len(batches) == -(-sum(num_rows) // most_rows)

    def test_microbatches_hold_about_as_many_examples_each(self) -> None:
        # Half of the rows hold one long example, the others sixteen short ones.
        lengths = np.array([32] * 400 + [2] * 6400)
        counts = [len(batch.examples) for batch in pack(lengths, most_rows=8)]
        assert len(counts) == 100
        assert set(counts) == {4 * 1 + 4 * 16}

    def test_equally_long_examples_lie_together_at_random_and_batches_come_in_random_order(self) -> None:
        batches = pack(np.full(800, 16), most_rows=2)
        assert len({tuple(np.diff(batch.examples)) for batch in batches}) > 190
        # One example a row, so that its length tells in which order rows were packed.
        lengths = np.arange(17, 33).repeat(4)
        means = [float(lengths[batch.examples].mean()) for batch in pack(lengths, most_rows=2)]
        assert means != sorted(means)
        assert means != sorted(means, reverse=True)

    def test_the_stream_alone_decides(self) -> None:
        lengths = np.random.default_rng(1).integers(4, 33, 100)
        one, again, other = pack(lengths), pack(lengths), pack(lengths, seed=1)
        assert all(
            (a.examples == b.examples).all() and np.array_equal(a.offsets, b.offsets)
            for a, b in zip(one, again, strict=True)
        )
        assert any(not np.array_equal(a.examples, b.examples) for a, b in zip(one, other, strict=False))

    @pytest.mark.parametrize("most_rows", [1, 3, 1000])
    def test_a_window_of_one_example(self, most_rows: int) -> None:
        (batch,) = pack(np.array([5]), most_rows=most_rows)
        assert (batch.examples.tolist(), np.asarray(batch.offsets).tolist()) == ([0], [0])
