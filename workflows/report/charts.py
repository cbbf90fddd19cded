"""Inline SVG: bars, strips and histograms.

In: numbers. Out: `Markup`. Widths are percentages and heights pixels, so that a drawing fills whatever room
it gets and its text keeps its size, on a phone too. Colours come from the style sheet, by class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from workflows.report.blocks import Bin, Part, Tone
from workflows.report.markup import Markup, element

_PLOT_TOP, _PLOT_HEIGHT, _AXIS_HEIGHT = 14, 150, 24
_MOST_TICKS = 6
_BAR_HEIGHT, _STRIP_HEIGHT = 8, 22
_WIDTH_OF_BIN = 0.84
# With more, the outer columns are too narrow for a number to be centred below them.
_FEW_BINS = 8
# A bar of anything at all shows at least this share of its track.
_LEAST_SEEN = 0.005


def draw_histogram(bins: Sequence[Bin], description: str) -> Markup:
    """Columns over an axis, with two lines of reference.

    Args:
        bins: at least one.
        description: read out in place of the drawing.
    """
    top = nice_ceiling(max(one.count for one in bins))
    baseline = _PLOT_TOP + _PLOT_HEIGHT
    step = 100 / len(bins)
    drawn: list[str] = []
    for fraction in (0.5, 1.0):
        y = baseline - _PLOT_HEIGHT * fraction
        drawn.append(element("line", x1="0", x2="100%", y1=y, y2=y, class_="grid"))
        drawn.append(element("text", compact_count(top * fraction), x="0", y=y - 4, class_="tick"))
    total = sum(one.count for one in bins)
    for number, one in enumerate(bins):
        height = max(_PLOT_HEIGHT * one.count / top, 1.0 if one.count else 0.0)
        title = element("title", f"{one.label}: {one.count:,} ({one.count / max(1, total):.1%})")
        left = step * (number + (1 - _WIDTH_OF_BIN) / 2)
        drawn.append(
            element(
                *("rect", title),
                x=f"{left:.3f}%",
                width=f"{step * _WIDTH_OF_BIN:.3f}%",
                y=baseline - height,
                height=height,
                class_="column",
            )
        )
    drawn.append(element("line", x1="0", x2="100%", y1=baseline, y2=baseline, class_="axis"))
    every = math.ceil(len(bins) / _MOST_TICKS)
    for number in range(0, len(bins), every):
        x, anchor = f"{step * (number + 0.5):.3f}%", "middle"
        if number in (0, len(bins) - 1) and len(bins) > _FEW_BINS:
            x, anchor = ("0", "start") if number == 0 else ("100%", "end")
        drawn.append(
            element("text", bins[number].tick, x=x, y=baseline + 17, text_anchor=anchor, class_="tick")
        )
    return _drawing(_PLOT_TOP + _PLOT_HEIGHT + _AXIS_HEIGHT, description, *drawn)


def draw_bar(
    fraction: float, tone: Tone, interval: tuple[float, float] | None = None, expected: float | None = None
) -> Markup:
    """A bar of a table row; the numbers stand in the row, so that it needs no description."""
    drawn = [
        element("rect", width="100%", height=_BAR_HEIGHT, rx=2, class_="track"),
        element(
            "rect",
            width=_percent(max(fraction, _LEAST_SEEN if fraction else 0)),
            height=_BAR_HEIGHT,
            rx=2,
            class_=f"fill tone-{tone}",
        ),
    ]
    if expected is not None:
        x = _percent(expected)
        drawn.append(element("line", x1=x, x2=x, y1=-3, y2=_BAR_HEIGHT + 3, class_="expected"))
    if interval is not None:
        low, high = (_percent(end) for end in interval)
        middle = _BAR_HEIGHT / 2
        drawn.append(element("line", x1=low, x2=high, y1=middle, y2=middle, class_="whisker"))
        drawn += [
            element("line", x1=x, x2=x, y1=middle - 3, y2=middle + 3, class_="whisker") for x in (low, high)
        ]
    return element("svg", *drawn, class_="bar", height=_BAR_HEIGHT, aria_hidden="true", focusable="false")


def draw_strip(parts: Sequence[Part], description: str) -> Markup:
    """A bar cut into parts, from left to right."""
    drawn, left = [], 0.0
    for part in parts:
        drawn.append(
            element(
                *("rect", element("title", f"{part.label}: {part.share:.2%}")),
                x=_percent(left),
                width=_percent(part.share),
                height=_STRIP_HEIGHT,
                class_=f"fill tone-{part.tone}",
            )
        )
        left += part.share
    return _drawing(_STRIP_HEIGHT, description, *drawn, kind="strip")


def nice_ceiling(number: float) -> float:
    """The least of 1, 2, 3, 4, 5, 6, 8 times a power of ten that is no less: 1 for 0, 400 for 312."""
    if number <= 1:
        return 1
    power = 10.0 ** math.floor(math.log10(number))
    for factor in (1, 2, 3, 4, 5, 6, 8, 10):
        if factor * power >= number:
            return factor * power
    return 10 * power


def compact_count(number: float) -> str:
    """A count in a few characters: 950, 1.5k, 20M."""
    for size, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{suffix}"
    return f"{number:g}"


def _drawing(height: int, description: str, *drawn: str, kind: str = "chart") -> Markup:
    return element("svg", *drawn, class_=kind, height=height, role="img", aria_label=description)


def _percent(fraction: float) -> str:
    return f"{100 * min(max(fraction, 0.0), 1.0):.3f}%"
