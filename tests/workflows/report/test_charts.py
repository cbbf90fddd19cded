from xml.etree import ElementTree

import pytest

from workflows.report.blocks import Bin, Part
from workflows.report.charts import compact_count, draw_bar, draw_histogram, draw_strip, nice_ceiling


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, 1), (1, 1), (1.5, 2), (3, 3), (5, 5), (7, 8), (9, 10), (312, 400), (1000, 1000), (1001, 2000)],
)
def test_nice_ceiling(number: float, expected: float) -> None:
    assert nice_ceiling(number) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, "0"), (0.5, "0.5"), (950, "950"), (1500, "1.5k"), (2e7, "20M"), (3.21e9, "3.21G"), (1e13, "10T")],
)
def test_compact_count(number: float, expected: str) -> None:
    assert compact_count(number) == expected


def test_the_columns_of_a_histogram() -> None:
    bins = [Bin("1", "1 to 2", 0), Bin("3", "3 to 4", 50), Bin("5", "5 to 6", 100)]
    drawing = ElementTree.fromstring(draw_histogram(bins, "lengths & <more>"))
    columns = drawing.findall("rect")
    assert [float(column.attrib["height"]) for column in columns] == [0, 75, 150]
    assert [float(column.attrib["y"]) + float(column.attrib["height"]) for column in columns] == [164] * 3
    lefts = [float(column.attrib["x"].rstrip("%")) for column in columns]
    assert lefts == pytest.approx([100 / 3 * (n + 0.08) for n in range(3)], abs=1e-3)
    assert [column.findtext("title") for column in columns] == [
        "1 to 2: 0 (0.0%)",
        "3 to 4: 50 (33.3%)",
        "5 to 6: 100 (66.7%)",
    ]
    assert (drawing.attrib["role"], drawing.attrib["aria-label"]) == ("img", "lengths & <more>")
    assert [text.text for text in drawing.findall("text")] == ["50", "100", "1", "3", "5"]


def test_a_rare_column_can_be_seen() -> None:
    drawing = ElementTree.fromstring(draw_histogram([Bin("1", "1", 1), Bin("2", "2", 10**6)], ""))
    assert float(drawing.findall("rect")[0].attrib["height"]) == 1


def test_a_histogram_of_one_column_and_of_many() -> None:
    assert ElementTree.fromstring(draw_histogram([Bin("1", "1", 3)], "")).findall("rect")
    many = [Bin(str(n), str(n), n) for n in range(100)]
    ticks = ElementTree.fromstring(draw_histogram(many, "")).findall("text")[2:]
    assert len(ticks) <= 6


def test_a_bar_with_its_interval_and_expectation() -> None:
    drawing = ElementTree.fromstring(draw_bar(0.5, "mask", (0.4, 0.6), 0.8))
    track, fill = drawing.findall("rect")
    assert (track.attrib["width"], fill.attrib["width"]) == ("100%", "50.000%")
    assert fill.attrib["class"] == "fill tone-mask"
    ends = [(line.attrib["class"], line.attrib["x1"], line.attrib["x2"]) for line in drawing.findall("line")]
    assert ends == [
        ("expected", "80.000%", "80.000%"),
        ("whisker", "40.000%", "60.000%"),
        ("whisker", "40.000%", "40.000%"),
        ("whisker", "60.000%", "60.000%"),
    ]
    assert drawing.attrib["aria-hidden"] == "true"


@pytest.mark.parametrize(("fraction", "width"), [(0.0, "0.000%"), (1e-9, "0.500%"), (1.2, "100.000%")])
def test_a_bar_of_extreme_length(fraction: float, width: str) -> None:
    assert ElementTree.fromstring(draw_bar(fraction, "accent")).findall("rect")[1].attrib["width"] == width


def test_the_parts_of_a_strip_follow_each_other() -> None:
    drawing = ElementTree.fromstring(draw_strip([Part("a", 0.25, "mask"), Part("b", 0.75, "kept")], "a, b"))
    places = [(rect.attrib["x"], rect.attrib["width"]) for rect in drawing.findall("rect")]
    assert places == [("0.000%", "25.000%"), ("25.000%", "75.000%")]
