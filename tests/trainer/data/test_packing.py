from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.data.packing import pack_rows


def descending(lengths: list[int]) -> np.ndarray:
    return np.array(sorted(lengths, reverse=True), dtype=np.int64)


def pack_one_by_one(lengths: list[int], row_length: int) -> list[list[int]]:
    """Best-fit decreasing by its definition: the lengths in each row."""
    rows: list[list[int]] = []
    for length in sorted(lengths, reverse=True):
        rooms = [(row_length - sum(row), number) for number, row in enumerate(rows)]
        fitting = [(room, number) for room, number in rooms if room >= length]
        if fitting:
            rows[min(fitting)[1]].append(length)
        else:
            rows.append([length])
    return rows


def test_the_worked_example() -> None:
    placement = pack_rows(descending([1, 3, 7, 3, 5, 1]), 8)
    # 7, 5, 3, 3, 1, 1: the first 3 fills the row of the 5; a 1 fills that of the 7, the other joins the 3.
    assert placement.rows.tolist() == [0, 1, 1, 2, 0, 2]
    assert placement.columns.tolist() == [0, 0, 5, 0, 7, 3]
    assert placement.num_rows == 3


@pytest.mark.parametrize(
    ("lengths", "row_length", "num_rows"),
    [
        pytest.param([4] * 10, 4, 10, id="every example fills a row"),
        pytest.param([1] * 10, 4, 3, id="many in a row, the last one not full"),
        pytest.param([3] * 4, 4, 4, id="no two fit together"),
        pytest.param([6] * 3 + [2] * 2, 8, 3, id="fewer short ones than rows with room for them"),
        pytest.param([6] * 2 + [2] * 7, 8, 4, id="more short ones than rows with room for them"),
        pytest.param([5], 5, 1, id="one"),
    ],
)
def test_table(lengths: list[int], row_length: int, num_rows: int) -> None:
    assert pack_rows(descending(lengths), row_length).num_rows == num_rows


@given(st.integers(1, 40), st.data())
def test_as_full_as_best_fit_decreasing_and_nothing_overlaps(row_length: int, data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(1, row_length), min_size=1, max_size=120))
    ordered = descending(lengths)
    rows, columns, num_rows = pack_rows(ordered, row_length)
    taken = np.zeros((num_rows, row_length), dtype=int)
    for row, column, length in zip(rows, columns, ordered, strict=True):
        assert column + length <= row_length
        taken[row, column : column + length] += 1
    assert taken.max() == 1
    filled = taken.sum(axis=1)
    # Rows are filled from the left, so that padding lies at their ends only.
    assert all(taken[row, : filled[row]].all() for row in range(num_rows))
    # Of rows with equal room either may be taken, so contents may differ, but not how full rows are.
    assert sorted(filled.tolist()) == sorted(map(sum, pack_one_by_one(lengths, row_length)))


@pytest.mark.parametrize(("shortest", "filled"), [(5, 0.99), (20, 0.97)])
def test_mixed_lengths_leave_hardly_any_room(shortest: int, filled: float) -> None:
    lengths = np.sort(np.random.default_rng(0).integers(shortest, 129, 10_000))[::-1]
    assert lengths.sum() / (pack_rows(lengths, 128).num_rows * 128) > filled
