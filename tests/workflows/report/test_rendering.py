import re
from collections.abc import Callable
from typing import Any

import pytest

from workflows.report.blocks import (
    Bar,
    BarTable,
    Bin,
    Block,
    Command,
    Example,
    ExampleLine,
    ExampleList,
    Figure,
    FigureRow,
    Histogram,
    LineChart,
    Page,
    Paragraph,
    Part,
    Reference,
    Section,
    Series,
    SideBySide,
    Span,
    Strip,
    Table,
)
from workflows.report.rendering import render_block, render_page
from workflows.report.stylesheet import STYLESHEET

EVIL = "</style><script>alert('x')</script>\" onload=\"alert(1)"
SPANS = (
    Span(EVIL),
    Span(EVIL, glued=True),
    Span(EVIL, "mask", EVIL),
    Span(EVIL, "random", EVIL),
    Span(EVIL, "kept"),
    Span(EVIL, "unknown"),
    Span(EVIL, "note"),
)
HISTOGRAM = Histogram(EVIL, EVIL, (Bin(EVIL, EVIL, 3),), EVIL, EVIL)
BLOCKS: dict[str, Block] = {
    "paragraph": Paragraph(EVIL),
    "figures": FigureRow((Figure(EVIL, EVIL, EVIL),)),
    "table": Table(EVIL, (EVIL, EVIL), ((EVIL, EVIL),)),
    "bars": BarTable(
        EVIL, (EVIL, EVIL), (Bar(EVIL, (EVIL,), 0.5), Bar(EVIL, (EVIL,), 1, code=True)), 2, EVIL
    ),
    "strip": Strip(EVIL, (Part(EVIL, 0.25, "mask"), Part(EVIL, 0.75, "kept"))),
    "histogram": HISTOGRAM,
    "curves": LineChart(
        EVIL,
        EVIL,
        (Series(EVIL, ((1, 0.5), (2, 0.25))), Series(EVIL, ((1, None), (2, 0.5)), dotted=True)),
        (Reference(EVIL, 0.3),),
        remark=EVIL,
    ),
    "examples": ExampleList(
        (Example(EVIL, EVIL, "good", EVIL, (ExampleLine(EVIL, SPANS),)),), ((SPANS[2], EVIL),)
    ),
    "command": Command(EVIL, (EVIL, EVIL)),
    "side by side": SideBySide((HISTOGRAM, HISTOGRAM)),
}


def _page(*blocks: Block) -> Page:
    figures = (Figure(EVIL, EVIL),)
    sections = (Section(EVIL, "first", EVIL, blocks), Section(EVIL, "second", "", ()))
    return Page(EVIL, EVIL, EVIL, figures, sections, (EVIL,))


@pytest.mark.parametrize("block", BLOCKS.values(), ids=list(BLOCKS))
def test_nothing_in_a_block_becomes_markup(block: Block, read_page: Callable[[str], Any]) -> None:
    read = read_page(render_block(block))
    assert read.faults == []
    assert EVIL in read.text
    assert not {"script", "style"} & {tag for tag, _ in read.tags}
    assert not [name for _, attributes in read.tags for name in attributes if name.startswith("on")]


def test_the_page_is_whole_and_needs_nothing(read_page: Callable[[str], Any]) -> None:
    page = render_page(_page(*BLOCKS.values()))
    read = read_page(page)
    assert page.startswith("<!DOCTYPE html>\n<html lang=")
    assert read.faults == []
    assert [tag for tag, _ in read.tags if tag in ("script", "link", "img", "iframe", "base")] == []
    names = {name for _, attributes in read.tags for name in attributes}
    assert not {"src", "srcset", "style"} & names
    assert {a["href"] for a in read.attributes_of("a")} == {"#first", "#second"}
    ids = [attributes["id"] for _, attributes in read.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {"first", "second"} <= set(ids)
    assert "url(" not in STYLESHEET
    assert "@import" not in STYLESHEET
    policies = [meta["content"] for meta in read.attributes_of("meta") if "http-equiv" in meta]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"]


def test_every_drawing_is_described_or_repeats_its_row(read_page: Callable[[str], Any]) -> None:
    read = read_page(render_page(_page(*BLOCKS.values())))
    drawings = read.attributes_of("svg")
    assert len(drawings) == 2 + 1 + 1 + 2 + 2
    for drawing in drawings:
        assert drawing.get("aria-hidden") == "true" or (drawing["role"] == "img" and drawing["aria-label"])


def test_a_histogram_has_its_numbers_beside_it(read_page: Callable[[str], Any]) -> None:
    bins = (Bin("1", "1 to 4", 30), Bin("5", "5 to 8", 10))
    read = read_page(render_block(Histogram("Lengths", "tokens", bins, "Median 3.")))
    assert read.rows == [["Tokens", "Count", "Share"], ["1 to 4", "30", "75.0%"], ["5 to 8", "10", "25.0%"]]
    tags = [tag for tag, _ in read.tags]
    assert tags.index("svg") < tags.index("details") < tags.index("summary") < tags.index("table")


def test_curves_have_some_of_their_numbers_beside_them(read_page: Callable[[str], Any]) -> None:
    loss = Series("training", tuple((float(step), 1 / step) for step in range(1, 2001)))
    held_out = Series("held out", ((1.0, 1.5), (2000.0, None)), dotted=True)
    read = read_page(render_block(LineChart("Loss", "step", (loss, held_out), number=".3f")))
    assert read.rows[0] == ["Step", "training", "held out"]
    assert (read.rows[1], read.rows[-1]) == (["1", "1.000", "1.500"], ["2,000", "0.001", "-"])
    assert len(read.rows) == 13
    assert [a["class"] for a in read.attributes_of("path")] == ["curve tone-accent"]
    assert len(read.attributes_of("circle")) == 1


def test_a_long_bar_table_is_laid_out_in_columns(read_page: Callable[[str], Any]) -> None:
    bars = tuple(Bar(f"token-{n}", (str(n),), 0.5, code=True) for n in range(5))
    read = read_page(render_block(BarTable("Frequent", ("Token", "Count"), bars, columns=2)))
    assert [tag for tag, _ in read.tags].count("table") == 2
    assert "Frequent, 1 to 3" in read.text
    assert "Frequent, 4 to 5" in read.text
    assert read.row("token-4") == ["4"]


def test_masks_can_be_told_apart_without_colour(read_page: Callable[[str], Any]) -> None:
    spans = (Span("the"), Span("[MASK]", "mask", "cat"), Span("dog", "random", "sat"), Span("on", "kept"))
    read = read_page(
        render_block(ExampleList((Example("e", "IsNext", "good", "", (ExampleLine("A", spans),)),)))
    )
    assert "the [MASK] ← cat dog ← satrandom onkept" in read.text


def test_pieces_of_a_word_are_joined(read_page: Callable[[str], Any]) -> None:
    line = ExampleLine("A", (Span("purr"), Span("ed", glued=True), Span("softly")))
    assert (
        "purred softly" in read_page(render_block(ExampleList((Example("e", "", "good", "", (line,)),)))).text
    )


def test_an_unknown_block_is_an_error() -> None:
    with pytest.raises(TypeError, match="no renderer for str"):
        render_block("text")  # type: ignore[arg-type]


def _schemes() -> dict[str, dict[str, str]]:
    light, dark = re.findall(r":root\{([^}]*)\}", STYLESHEET)
    parsed = [dict(re.findall(r"--([a-z-]+):(#[0-9a-f]{6})", block)) for block in (light, dark)]
    return {"light": parsed[0], "dark": parsed[1]}


def _luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("front", "back", "least"),
    [
        *[(front, "paper", 4.5) for front in ("ink", "soft", "accent", "random", "good", "contrast")],
        ("ink", "panel", 4.5),
        *[(front, f"{kind}-wash", 4.5) for front in ("ink", "soft") for kind in ("mask", "random", "kept")],
        *[(tone, "paper", 3.0) for tone in ("mask", "random", "kept")],
    ],
)
def test_contrast(scheme: str, front: str, back: str, least: float) -> None:
    # The ratio of WCAG 2.2: 4.5 for text, 3 for drawings.
    colours = _schemes()[scheme]
    lighter, darker = sorted((_luminance(colours[front]), _luminance(colours[back])), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= least


def test_both_schemes_name_the_same_colours() -> None:
    schemes = _schemes()
    assert set(schemes["light"]) == set(schemes["dark"])
    used = set(re.findall(r"var\(--([a-z-]+)\)", STYLESHEET)) - {"tone"}
    assert used <= set(schemes["light"])
