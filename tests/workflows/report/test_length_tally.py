from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.report.length_tally import LengthTally, choose_edges, make_histogram


def _tally(*lengths: int) -> LengthTally:
    tally = LengthTally()
    tally.add(np.array(lengths, dtype=np.int64))
    return tally


def test_figures_by_hand() -> None:
    tally = _tally(3, 1, 2)
    tally.add(np.array([10, 2], dtype=np.uint16))
    assert tally.as_json() == {"count": 5, "mean": 3.6, "median": 2, "p95": 10, "longest": 10}
    assert [tally.count_between(low, low + 2) for low in (1, 3, 9)] == [3, 1, 1]


def test_nothing_counted() -> None:
    assert LengthTally().as_json() == {"count": 0, "mean": 0, "median": 0, "p95": 0, "longest": 0}


@given(st.lists(st.integers(1, 500), min_size=1), st.floats(0.01, 1))
def test_quantiles_are_those_of_numpy(lengths: list[int], share: float) -> None:
    expected = np.quantile(lengths, share, method="inverted_cdf")
    assert _tally(*lengths).quantile(share) == expected


def test_even_columns_end_at_the_limit() -> None:
    histogram = make_histogram("c", "tokens", _tally(5, 128, 128), limit=128)
    assert (histogram.bins[0].label, histogram.bins[-1].label) == ("1 to 4", "125 to 128")
    assert (histogram.bins[-1].tick, histogram.bins[-1].count, len(histogram.bins)) == ("128", 2, 32)
    assert histogram.note == ""
    assert histogram.remark == ("Median 128, mean 87.0, 95% have at most 128, the longest has 128 tokens.")


def test_columns_of_one() -> None:
    assert [one.label for one in make_histogram("c", "tokens", _tally(1, 4)).bins] == ["1", "2", "3", "4"]


def test_a_long_tail_doubles_the_columns() -> None:
    histogram = make_histogram("c", "tokens", _tally(*[9] * 99, 1000))
    assert choose_edges(_tally(*[9] * 99, 1000)) == [8, 16, 32, 64, 128, 256, 512, 1024]
    assert [one.count for one in histogram.bins] == [99, 0, 0, 0, 0, 0, 1]
    assert (histogram.bins[0].label, histogram.bins[0].tick) == ("8 to 15", "8")
    assert "twice" in histogram.note


@pytest.mark.parametrize("limit", [None, 1 << 20])
@given(lengths=st.lists(st.integers(1, 1 << 20), min_size=1, max_size=30))
def test_every_length_lies_in_one_column(lengths: list[int], limit: int | None) -> None:
    tally = _tally(*lengths)
    histogram = make_histogram("c", "tokens", tally, limit)
    assert sum(one.count for one in histogram.bins) == len(lengths)
    assert 1 <= len(histogram.bins) <= 32
    edges = choose_edges(tally, limit)
    assert all(low < high for low, high in pairwise(edges))
