import pytest
from scipy.stats import binomtest

from workflows.report.intervals import wilson_interval


def test_by_hand() -> None:
    # 5 of 10: centre 1/2; half width z / (1 + z²/10) · sqrt(1/40 + z²/400) = 0.26341 with z = 1.959964.
    assert wilson_interval(5, 10) == pytest.approx((0.2365931, 0.7634069), abs=1e-7)


@pytest.mark.parametrize(
    ("count", "total"), [(0, 1), (1, 1), (0, 50), (3, 7), (8012, 10_000), (10**9, 10**10)]
)
def test_against_scipy(count: int, total: int) -> None:
    expected = binomtest(count, total).proportion_ci(0.95, method="wilson")
    assert wilson_interval(count, total) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_nothing_drawn() -> None:
    assert wilson_interval(0, 0) is None
