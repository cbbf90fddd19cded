from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.report.blocks import LineChart, Reference, Series
from workflows.report.curves import MOST_POINTS, choose_ticks, draw_curves, sample_rows, thin

FINITE = st.floats(-1e12, 1e12, allow_subnormal=False)


def _chart(*series: Series, references: tuple[Reference, ...] = (), number: str = ".3g") -> LineChart:
    return LineChart("caption", "step", series, references, number)


def _line(*values: float | None) -> Series:
    return Series("line", tuple((float(n), value) for n, value in enumerate(values)))


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.0, 10.0, [0, 2.5, 5, 7.5, 10]),
        (1.384, 8.32, [0, 2, 4, 6, 8, 10]),
        (0.31, 0.74, [0.2, 0.4, 0.6, 0.8]),
        (20_000, 41_000, [20_000, 30_000, 40_000, 50_000]),
        (-1.0, 1.0, [-1, -0.5, 0, 0.5, 1]),
        (5.0, 5.0, [2, 4, 6, 8]),
        (0.0, 0.0, [-0.5, -0.25, 0, 0.25, 0.5]),
    ],
)
def test_ticks(low: float, high: float, ticks: list[float]) -> None:
    assert choose_ticks(low, high) == pytest.approx(ticks)


@given(FINITE, FINITE)
def test_ticks_enclose_any_range(one: float, other: float) -> None:
    low, high = sorted((one, other))
    ticks = choose_ticks(low, high)
    step = ticks[1] - ticks[0]
    assert 2 <= len(ticks) <= 7
    assert ticks[0] <= low + 1e-6 * step
    assert ticks[-1] >= high - 1e-6 * step


def test_a_short_curve_is_left_as_it_is() -> None:
    points = [(float(n), 1.0) for n in range(MOST_POINTS)]
    assert thin(points) == points


def test_thinning_keeps_spikes_dips_ends_and_gaps() -> None:
    points: list[tuple[float, float | None]] = [(float(n), math.sin(n / 999)) for n in range(100_000)]
    points[31_234] = (31_234.0, 50.0)
    points[77_777] = (77_777.0, -50.0)
    for n in range(50_000, 52_000):
        points[n] = (float(n), None)
    kept = thin(points)
    assert len(kept) <= MOST_POINTS
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert {(31_234.0, 50.0), (77_777.0, -50.0)} <= set(kept)
    assert [position for position, _ in kept] == sorted(position for position, _ in kept)
    assert all(value is None for position, value in kept if 50_400 < position < 51_600)
    assert any(value is None for _, value in kept)


@given(st.lists(st.none() | FINITE, min_size=1, max_size=300), st.integers(6, 60))
def test_thinning_keeps_the_extremes_of_any_curve(values: list[float | None], most: int) -> None:
    points = [(float(n), value) for n, value in enumerate(values)]
    kept = thin(points, most)
    assert len(kept) <= max(most, 2)
    finite = [value for value in values if value is not None]
    kept_finite = [value for _, value in kept if value is not None]
    if finite:
        assert (min(kept_finite), max(kept_finite)) == (min(finite), max(finite))
    assert {point for point in kept if point[1] is not None} <= set(points)


def test_a_curve_goes_from_corner_to_corner(read_page: Callable[[str], Any]) -> None:
    read = read_page(draw_curves(_chart(_line(0.0, 10.0, 5.0)), "a drawing"))
    (path,) = read.attributes_of("path")
    # Positions 0 to 2 over 10,000 units, values 10 to 0 downwards.
    assert path["d"] == "M0 10000L5000 0L10000 5000"
    outer, inner = read.attributes_of("svg")
    assert (outer["role"], outer["aria-label"], inner["aria-hidden"]) == ("img", "a drawing", "true")
    assert inner["preserveaspectratio"] == "none"


def test_a_gap_breaks_the_line_and_a_lone_point_is_seen(read_page: Callable[[str], Any]) -> None:
    read = read_page(draw_curves(_chart(_line(1.0, 2.0, None, 3.0, None, 2.0, 1.0)), "a drawing"))
    assert [path["d"].count("L") for path in read.attributes_of("path")] == [1, 1]
    (circle,) = read.attributes_of("circle")
    assert circle["cx"] == "50.000%"


def test_dotted_values_are_points_with_titles(read_page: Callable[[str], Any]) -> None:
    held_out = Series("held out", ((0.0, 0.5), (1000.0, 0.25)), "random", dotted=True)
    read = read_page(draw_curves(_chart(held_out, number=".1%"), "a drawing"))
    assert [point["cx"] for point in read.attributes_of("circle")] == ["0.000%", "100.000%"]
    assert "held out at 1,000: 25.0%" in read.text
    assert read.attributes_of("path") == []
    assert "30%" in read.text


def test_a_reference_lies_within_the_axes(read_page: Callable[[str], Any]) -> None:
    chart = _chart(_line(4.0, 3.0), references=(Reference("to reach", 1.384),), number=".3f")
    read = read_page(draw_curves(chart, "a drawing"))
    (line,) = [a for a in read.attributes_of("line") if a["class"] == "reference"]
    assert 16 < float(line["y1"]) < 186
    assert "to reach: 1.384" in read.text


@pytest.mark.parametrize("second", [9.0, 5.0, 9.9])
def test_the_labels_of_references_are_crossed_by_none_of_their_lines(
    second: float, read_page: Callable[[str], Any]
) -> None:
    references = (Reference("near", second), Reference("far", 10.0))
    read = read_page(draw_curves(_chart(_line(10.0, 0.0), references=references), "a drawing"))
    lines = [float(a["y1"]) for a in read.attributes_of("line") if a["class"] == "reference"]
    baselines = [float(a["y"]) for a in read.attributes_of("text") if a["class"] == "tick label"]
    assert (len(lines), len(baselines)) == (2, 2)
    for baseline in baselines:
        # Letters of 12 pixels reach about 10 above their baseline and 3 below it.
        assert not any(baseline - 10 <= y <= baseline + 3 for y in lines)
    assert abs(baselines[0] - baselines[1]) >= 13


@pytest.mark.parametrize("value", [0.0, -3.0, 1e-9, 1e12])
def test_a_single_value_is_drawn(value: float, read_page: Callable[[str], Any]) -> None:
    read = read_page(draw_curves(_chart(_line(value)), "a drawing"))
    assert len(read.attributes_of("circle")) == 1
    assert not re.search("nan|inf", read.text)


@given(
    st.lists(st.none() | FINITE, min_size=1, max_size=50).filter(
        lambda values: any(v is not None for v in values)
    )
)
def test_any_curve_is_drawn_within_its_frame(values: list[float | None]) -> None:
    drawn = draw_curves(_chart(_line(*values)), "a drawing")
    numbers = [int(n) for path in re.findall(r' d="([^"]*)"', drawn) for n in re.findall(r"-?\d+", path)]
    assert all(0 <= number <= 10_000 for number in numbers)
    assert "nan" not in drawn
    assert "inf" not in drawn


def test_rows_of_a_table_are_spread_evenly() -> None:
    rows = sample_rows(_chart(_line(*map(float, range(100)))))
    assert [row[0] for row in rows] == ["0", "9", "18", "27", "36", "45", "54", "63", "72", "81", "90", "99"]
    assert sample_rows(_chart(_line(1.0, None))) == [("0", "1"), ("1", "-")]
