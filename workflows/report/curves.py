"""Curves as inline SVG.

In: a `LineChart`. Out: `Markup`, and a few of its values as rows. A long curve is thinned to about a thousand
points so that each dip and each spike stays. The curves lie in a drawing of their own that is stretched to
whatever width there is; text and points lie around it and keep their size, numbers in the padding that the
style sheet gives to `.curves`. Deterministic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from workflows.report.blocks import LineChart, Series
from workflows.report.charts import compact_count
from workflows.report.markup import Markup, element

MOST_POINTS = 1000
_ROWS_IN_TABLE = 12
_PLOT_TOP, _PLOT_HEIGHT, _AXIS_HEIGHT = 16, 170, 24
# A line of text with some air.
_LABEL_HEIGHT = 20
# The drawing inside has a grid of this many units each way.
_UNITS = 10_000
_X_TICKS = 4

Points = Sequence[tuple[float, float | None]]
Scale = Callable[[float], float]


def draw_curves(chart: LineChart, description: str) -> Markup:
    """Curves, points and lines of reference over one pair of axes.

    Args:
        chart: with a finite value at least.
        description: read out in place of the drawing.
    """
    ticks = choose_ticks(*_range_of_values(chart))
    low, high = ticks[0], ticks[-1]
    first, last = _range_of_positions(chart)

    def down(value: float) -> float:
        return (high - value) / (high - low)

    def across(position: float) -> float:
        return (position - first) / (last - first) if last > first else 0.5

    drawn: list[str] = []
    for tick in ticks:
        y = _PLOT_TOP + _PLOT_HEIGHT * down(tick)
        drawn.append(element("line", x1="0", x2="100%", y1=y, y2=y, class_="grid"))
        text = _write(tick, ticks, chart.number)
        drawn.append(element("text", text, x=-8, y=y + 4, text_anchor="end", class_="tick"))
    drawn += _references(chart, down)
    curves = [
        element("path", d=path, class_=f"curve tone-{series.tone}")
        for series in chart.series
        if not series.dotted
        for path in _paths(thin(series.points), across, down)
    ]
    stretched = {"viewBox": f"0 0 {_UNITS} {_UNITS}", "preserveAspectRatio": "none"}
    drawn.append(
        element(
            "svg", *curves, y=_PLOT_TOP, width="100%", height=_PLOT_HEIGHT, aria_hidden="true", **stretched
        )
    )
    for series in chart.series:
        drawn += _lone_points(series, chart, across, down)
    drawn += _x_axis(first, last)
    height = _PLOT_TOP + _PLOT_HEIGHT + _AXIS_HEIGHT
    return element("svg", *drawn, class_="chart curves", height=height, role="img", aria_label=description)


def thin(points: Points, most: int = MOST_POINTS) -> list[tuple[float, float | None]]:
    """At most about so many points of a curve: of each stretch its lowest and its highest.

    The first and the last point stay, and a stretch without any value stays a gap.
    """
    if len(points) <= most:
        return list(points)
    num_stretches = most // 2 - 1
    inner = points[1:-1]
    kept = [points[0]]
    for number in range(num_stretches):
        stretch = inner[number * len(inner) // num_stretches : (number + 1) * len(inner) // num_stretches]
        finite = [(value, position) for position, value in stretch if value is not None]
        if finite:
            ends = sorted({(position, value) for value, position in (min(finite), max(finite))})
            kept += ends
        else:
            kept.append((stretch[0][0], None))
    return [*kept, points[-1]]


def choose_ticks(low: float, high: float) -> list[float]:
    """Round values at even distances, three to six of them, the first and last of which enclose a range."""
    if high <= low:
        margin = abs(low) / 2 or 0.5
        low, high = low - margin, high + margin
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    # A value that lies on a tick needs none beyond it, whatever its last bit says.
    begin, end = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(begin, max(end, begin + 1) + 1)]


def sample_rows(chart: LineChart, most: int = _ROWS_IN_TABLE) -> list[tuple[str, ...]]:
    """Positions evenly spread over the chart with the values of every series, as text; `-` for none."""
    columns = [dict(series.points) for series in chart.series]
    positions = sorted({position for column in columns for position, value in column.items()})
    if len(positions) > most:
        spread = range(most)
        positions = [positions[round(number * (len(positions) - 1) / (most - 1))] for number in spread]
    return [
        (f"{position:,.10g}", *(_cell(column.get(position), chart.number) for column in columns))
        for position in positions
    ]


def _cell(value: float | None, number: str) -> str:
    return "-" if value is None else f"{value:{number}}"


def _range_of_values(chart: LineChart) -> tuple[float, float]:
    values = [value for series in chart.series for _, value in series.points if value is not None]
    values += [reference.value for reference in chart.references]
    return min(values), max(values)


def _range_of_positions(chart: LineChart) -> tuple[float, float]:
    ends = [position for series in chart.series for position, _ in (series.points[0], series.points[-1])]
    return min(ends), max(ends)


def _paths(points: Points, across: Scale, down: Scale) -> Iterator[str]:
    for has_value, stretch in groupby(points, key=lambda point: point[1] is not None):
        corners = [(across(x), down(y)) for x, y in stretch if y is not None]
        if has_value and len(corners) > 1:
            yield "M" + "L".join(f"{_UNITS * x:.0f} {_UNITS * y:.0f}" for x, y in corners)


def _lone_points(series: Series, chart: LineChart, across: Scale, down: Scale) -> list[Markup]:
    """Points drawn one by one: all of a dotted series, and those of a line that have no neighbour."""
    points = thin(series.points)
    drawn = []
    for number, (position, value) in enumerate(points):
        neighbours = points[max(0, number - 1) : number] + points[number + 1 : number + 2]
        alone = all(neighbour is None for _, neighbour in neighbours)
        if value is not None and (series.dotted or alone):
            title = element("title", f"{series.label} at {position:,.10g}: {value:{chart.number}}")
            x, y = f"{100 * across(position):.3f}%", _PLOT_TOP + _PLOT_HEIGHT * down(value)
            drawn.append(element("circle", title, cx=x, cy=y, r=4, class_=f"point tone-{series.tone}"))
    return drawn


def _references(chart: LineChart, down: Scale) -> list[Markup]:
    """Lines across, and over all of them their labels: above its line each, or below where no room is."""
    lines, labels = [], []
    above = -math.inf
    for reference in sorted(chart.references, key=lambda one: -one.value):
        y = _PLOT_TOP + _PLOT_HEIGHT * down(reference.value)
        lines.append(element("line", x1="0", x2="100%", y1=y, y2=y, class_="reference"))
        text = f"{reference.label}: {reference.value:{chart.number}}"
        baseline = y - 5 if y - above > _LABEL_HEIGHT else y + 14
        labels.append(element("text", text, x="100%", y=baseline, text_anchor="end", class_="tick label"))
        above = y
    return lines + labels


def _x_axis(first: float, last: float) -> list[Markup]:
    baseline = _PLOT_TOP + _PLOT_HEIGHT
    drawn = [element("line", x1="0", x2="100%", y1=baseline, y2=baseline, class_="axis")]
    for number in range(_X_TICKS + 1 if last > first else 1):
        share = number / _X_TICKS
        anchor = {0: "start", _X_TICKS: "end"}.get(number, "middle")
        text = compact_count(float(f"{first + share * (last - first):.3g}"))
        drawn.append(
            element("text", text, x=f"{100 * share:g}%", y=baseline + 17, text_anchor=anchor, class_="tick")
        )
    return drawn


def _write(tick: float, ticks: Sequence[float], number: str) -> str:
    """A tick with no more places than tell it from the next."""
    scale, sign = (100.0, "%") if number.endswith("%") else (1.0, "")
    step, tick = scale * (ticks[1] - ticks[0]), scale * tick
    if max(abs(ticks[0]), abs(ticks[-1])) >= 1000:
        return compact_count(tick)
    if step < 1e-3:
        return f"{tick:.3g}{sign}"
    places = max(0, -math.floor(math.log10(step) + 1e-9))
    # A step of 2.5, or of 0.25, needs one place more.
    places += not math.isclose(round(step, places), step)
    return f"{tick:.{places}f}{sign}"
