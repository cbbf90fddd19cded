"""From a `Page` to HTML.

In: a page of blocks. Out: one document that needs nothing else: styles and drawings are within, there is no
script, and a policy in it forbids the browser any request. Deterministic: the same page gives the same text.
"""

from __future__ import annotations

from functools import singledispatch

from workflows.report.blocks import (
    Bar,
    BarTable,
    Block,
    Command,
    Example,
    ExampleList,
    Figure,
    FigureRow,
    Histogram,
    LineChart,
    Page,
    Paragraph,
    Section,
    SideBySide,
    Span,
    Strip,
    Table,
)
from workflows.report.charts import draw_bar, draw_histogram, draw_strip
from workflows.report.curves import draw_curves, sample_rows
from workflows.report.markup import Markup, element, join
from workflows.report.stylesheet import STYLESHEET

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_SPOKEN = {"random": "random", "kept": "kept"}


def render_page(page: Page) -> str:
    """The whole document."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name_="color-scheme", content="light dark"),
        element("title", f"{page.title}: {page.kind}"),
        element("style", Markup(STYLESHEET)),
    )
    links = [element("a", section.title, href=f"#{section.anchor}") for section in page.sections]
    header = element(
        "header",
        element("p", f"clozeline {page.kind}", class_="kind"),
        element("h1", page.title),
        element("p", page.location, class_="location"),
        render_block(FigureRow(page.figures)),
        element("nav", *links, aria_label="Sections"),
    )
    footer = element("footer", *(element("p", line) for line in page.footer))
    sections = [_render_section(section) for section in page.sections]
    body = element("body", element("main", header, *sections), footer)
    return "<!DOCTYPE html>\n" + element("html", head, body, lang="en") + "\n"


@singledispatch
def render_block(block: Block) -> Markup:
    """One block; each kind registers its own renderer below."""
    raise TypeError(f"no renderer for {type(block).__name__}")


@render_block.register
def _(block: Paragraph) -> Markup:
    return element("p", block.text, class_="note")


@render_block.register
def _(block: FigureRow) -> Markup:
    return element("dl", *(_render_figure(figure) for figure in block.figures), class_="figures")


@render_block.register
def _(block: Table) -> Markup:
    rows = [
        element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:]))
        for row in block.rows
    ]
    kind = "numeric" if block.numeric else "words"
    return _render_table(block.caption, block.headings, rows, kind)


@render_block.register
def _(block: BarTable) -> Markup:
    columns = max(1, min(block.columns, len(block.bars)))
    size = -(-len(block.bars) // columns)
    tables = []
    for start in range(0, len(block.bars), size):
        rows = [_render_bar(bar) for bar in block.bars[start : start + size]]
        places = f", {start + 1} to {start + len(rows)}" if columns > 1 else ""
        caption = f"{block.caption}{places}"
        tables.append(_render_table(caption, block.headings, rows, "numeric bars"))
    note = element("p", block.note, class_="note") if block.note else Markup()
    return element("div", element("div", *tables, class_=f"columns-{columns}"), note, class_="block")


@render_block.register
def _(block: Strip) -> Markup:
    described = ", ".join(f"{part.label} {part.share:.1%}" for part in block.parts)
    legend = [
        element(
            "li",
            element("span", class_=f"swatch tone-{part.tone}", aria_hidden="true"),
            f"{part.label} ",
            element("b", f"{part.share:.1%}"),
        )
        for part in block.parts
    ]
    return element(
        "figure",
        element("figcaption", block.caption),
        draw_strip(block.parts, f"{block.caption}: {described}"),
        element("ul", *legend, class_="legend"),
    )


@render_block.register
def _(block: Histogram) -> Markup:
    total = sum(one.count for one in block.bins)
    rows = [
        element(
            "tr",
            element("th", one.label, scope="row"),
            element("td", f"{one.count:,}"),
            element("td", f"{one.count / max(1, total):.1%}"),
        )
        for one in block.bins
    ]
    heading = block.unit[:1].upper() + block.unit[1:]
    table = _render_table(block.caption, (heading, "Count", "Share"), rows, "numeric")
    return element(
        "figure",
        element("figcaption", block.caption),
        element("p", " ".join(part for part in (block.remark, block.note) if part), class_="note"),
        draw_histogram(block.bins, f"Histogram. {block.caption}. {block.remark}"),
        element("p", block.unit, class_="unit"),
        element("details", element("summary", "The same as a table"), table),
        class_="histogram",
    )


@render_block.register
def _(block: LineChart) -> Markup:
    legend = [
        element(
            "li",
            element(
                "span",
                class_=f"swatch tone-{series.tone}{' dot' if series.dotted else ''}",
                aria_hidden="true",
            ),
            series.label,
        )
        for series in block.series
    ]
    rows = [
        element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:]))
        for row in sample_rows(block)
    ]
    headings = (block.unit[:1].upper() + block.unit[1:], *(series.label for series in block.series))
    table = _render_table(block.caption, headings, rows, "numeric")
    return element(
        "figure",
        element("figcaption", block.caption),
        element("p", block.remark, class_="note") if block.remark else Markup(),
        draw_curves(block, f"Curves. {block.caption}. {block.remark}"),
        element("p", block.unit, class_="unit"),
        element("ul", *legend, class_="legend") if len(legend) > 1 else Markup(),
        element("details", element("summary", "Some of it as a table"), table),
        class_="histogram",
    )


@render_block.register
def _(block: ExampleList) -> Markup:
    legend = [element("li", _render_span(span), f" {meaning}") for span, meaning in block.legend]
    listed = element("ul", *legend, class_="legend") if legend else Markup()
    return element("div", listed, *(_render_example(example) for example in block.examples), class_="block")


@render_block.register
def _(block: SideBySide) -> Markup:
    return element("div", *(render_block(one) for one in block.blocks), class_="block columns-2")


@render_block.register
def _(block: Command) -> Markup:
    text = " \\\n    ".join(block.lines)
    return element(
        "figure",
        element("figcaption", "Command"),
        element("pre", element("code", text), tabindex="0", role="region", aria_label="Command"),
        element("p", block.caption, class_="note"),
    )


def _render_section(section: Section) -> Markup:
    lead = element("p", section.lead, class_="lead") if section.lead else Markup()
    heading = element("h2", section.title, id=f"{section.anchor}-title")
    blocks = [render_block(block) for block in section.blocks]
    return element(
        "section", heading, lead, *blocks, id=section.anchor, aria_labelledby=f"{section.anchor}-title"
    )


def _render_figure(figure: Figure) -> Markup:
    detail = element("dd", figure.detail, class_="detail") if figure.detail else Markup()
    return element("div", element("dt", figure.label), element("dd", figure.value, class_="value"), detail)


def _render_table(caption: str, headings: tuple[str, ...], rows: list[Markup], kind: str) -> Markup:
    head = element("tr", *(element("th", heading, scope="col") for heading in headings))
    parts = (element("caption", caption), element("thead", head), element("tbody", *rows))
    table = element("table", *parts, class_=kind)
    # It may be wider than a phone, and then scrolls by itself, by keyboard too.
    return element("div", table, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _render_bar(bar: Bar) -> Markup:
    label = element("code", element("bdi", bar.label)) if bar.code else element("span", bar.label)
    drawn = draw_bar(bar.fraction, bar.tone, bar.interval, bar.expected)
    both = element("div", label, drawn, class_="beside") if bar.code else join(label, drawn)
    return element("tr", element("th", both, scope="row"), *(element("td", cell) for cell in bar.cells))


def _render_example(example: Example) -> Markup:
    badge = (
        element("span", example.badge, class_=f"badge tone-{example.badge_tone}")
        if example.badge
        else Markup()
    )
    heading = element("h3", element("bdi", example.heading), badge)
    lines = [
        element(
            "div",
            element("span", line.name, class_="name"),
            element("p", *_render_spans(line.spans), dir="auto"),
            class_=f"line line-{number % 2}",
        )
        for number, line in enumerate(example.lines)
    ]
    return element("article", heading, element("p", example.remark, class_="note"), *lines, class_="example")


def _render_spans(spans: tuple[Span, ...]) -> list[Markup]:
    rendered = []
    for number, span in enumerate(spans):
        space = " " if number and not span.glued else ""
        rendered.append(join(space, _render_span(span)))
    return rendered


def _render_span(span: Span) -> Markup:
    if span.kind == "text":
        return join(span.text)
    if span.kind in ("unknown", "note"):
        return element("span", span.text, class_=f"span-{span.kind}")
    spoken = element("small", _SPOKEN[span.kind]) if span.kind in _SPOKEN else Markup()
    if not span.stood:
        return element("mark", element("bdi", span.text), spoken, class_=f"span-{span.kind}")
    stood = element("span", "← ", element("bdi", span.stood), class_="stood")
    return element("mark", element("bdi", span.text), " ", stood, spoken, class_=f"span-{span.kind}")
