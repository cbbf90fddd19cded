"""What a page consists of: sections of blocks, plain values without any HTML.

    Page      title, headline figures, sections
    Section   a heading, a sentence or two, blocks
    Block     one of the dataclasses below; `rendering` has one renderer for each

All text here is text: whatever it holds is escaped when it is rendered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Tone = Literal["accent", "mask", "random", "kept", "quiet", "good", "contrast"]
SpanKind = Literal["text", "mask", "random", "kept", "unknown", "note"]


@dataclass(frozen=True)
class Figure:
    """A number worth reading first: its name, the number as text, and what it is made of."""

    label: str
    value: str
    detail: str = ""


@dataclass(frozen=True)
class Paragraph:
    """A remark beside the numbers."""

    text: str


@dataclass(frozen=True)
class FigureRow:
    """A few figures side by side."""

    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Table:
    """Rows of cells; the first cell of a row names it, the others are aligned as numbers where asked."""

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: bool = True


@dataclass(frozen=True)
class Bar:
    """A row of a bar table.

    Attributes:
        label: names the row.
        cells: what stands in the columns after the first.
        fraction: length of the bar, 0 to 1.
        interval: lower and upper end of a confidence interval, on the scale of `fraction`.
        expected: a value to compare with, on the scale of `fraction`.
        tone: colour of the bar.
        code: whether the label is a token rather than prose.
    """

    label: str
    cells: tuple[str, ...]
    fraction: float
    interval: tuple[float, float] | None = None
    expected: float | None = None
    tone: Tone = "accent"
    code: bool = False


@dataclass(frozen=True)
class BarTable:
    """A table whose rows carry bars: the chart and its numbers in one.

    Attributes:
        caption: what it shows.
        headings: of all columns.
        bars: the rows.
        columns: in how many columns of the page a long list may be laid out.
        note: how to read the marks.
    """

    caption: str
    headings: tuple[str, ...]
    bars: tuple[Bar, ...]
    columns: int = 1
    note: str = ""


@dataclass(frozen=True)
class Part:
    """A piece of a whole, `share` from 0 to 1."""

    label: str
    share: float
    tone: Tone


@dataclass(frozen=True)
class Strip:
    """A whole cut into parts, drawn as one bar with a legend."""

    caption: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Bin:
    """A column of a histogram: `tick` stands below it, `label` names it in the table."""

    tick: str
    label: str
    count: int


@dataclass(frozen=True)
class Histogram:
    """How often which value occurs.

    Attributes:
        caption: what is counted.
        unit: of the horizontal axis.
        bins: from left to right.
        remark: the figures in words: median, longest.
        note: about the axis, where it isn't even.
    """

    caption: str
    unit: str
    bins: tuple[Bin, ...]
    remark: str = ""
    note: str = ""


@dataclass(frozen=True)
class Series:
    """Values over an axis that both may be thousands long.

    Attributes:
        label: names it in the legend.
        points: (position, value), positions ascending; None where there is no value: the line breaks there.
        tone: colour.
        dotted: drawn as single points rather than as a line.
    """

    label: str
    points: tuple[tuple[float, float | None], ...]
    tone: Tone = "accent"
    dotted: bool = False


@dataclass(frozen=True)
class Reference:
    """A value to compare a curve with, drawn as a line across."""

    label: str
    value: float


@dataclass(frozen=True)
class LineChart:
    """Curves over a common axis.

    Attributes:
        caption: what is drawn.
        unit: of the horizontal axis.
        series: each with a finite value somewhere.
        references: values to compare with.
        number: how a value is written, as `format` takes it.
        remark: what to see, in words.
    """

    caption: str
    unit: str
    series: tuple[Series, ...]
    references: tuple[Reference, ...] = ()
    number: str = ".3g"
    remark: str = ""


@dataclass(frozen=True)
class Span:
    """A piece of running text.

    Attributes:
        text: what stands there.
        kind: how it is shown.
        stood: what stood there before masking; empty where that is the same or nothing was masked.
        glued: whether it continues the word before it.
    """

    text: str
    kind: SpanKind = "text"
    stood: str = ""
    glued: bool = False


@dataclass(frozen=True)
class ExampleLine:
    """A segment or sentence: its name and its tokens."""

    name: str
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Example:
    """An example or a document."""

    heading: str
    badge: str
    badge_tone: Tone
    remark: str
    lines: tuple[ExampleLine, ...]


@dataclass(frozen=True)
class ExampleList:
    """Examples below each other, with a legend of the kinds of span that occur in them."""

    examples: tuple[Example, ...]
    legend: tuple[tuple[Span, str], ...] = ()


@dataclass(frozen=True)
class Command:
    """A command to type: the program with its subcommand, then one option with its values a line."""

    caption: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class SideBySide:
    """Blocks next to each other where the page is wide enough."""

    blocks: tuple[Block, ...]


Block = (
    Paragraph
    | FigureRow
    | Table
    | BarTable
    | Strip
    | Histogram
    | LineChart
    | ExampleList
    | Command
    | SideBySide
)


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it. `anchor` is its id: letters and hyphens."""

    title: str
    anchor: str
    lead: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Page:
    """The whole page.

    Attributes:
        kind: what it is about, in two words.
        title: its name.
        location: where that lies.
        figures: what to read first.
        sections: in order.
        footer: how the page came about.
    """

    kind: str
    title: str
    location: str
    figures: tuple[Figure, ...]
    sections: tuple[Section, ...]
    footer: tuple[str, ...] = field(default=())
