"""Rows against an independent reading of the grammar, a byte at a time."""

import csv
import io

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.readers.batches import BATCH_BYTES
from pipelines.readers.delimited_rows import QUOTE_PATIENCE_BYTES, RowStream, row_pattern, split_row

LONG = 1 << 20


def scan_rows(content, separator=b",", max_row_bytes=LONG):
    stream = RowStream(io.BytesIO(content), separator, max_row_bytes)
    return list(iter(stream.take_row, None))


def describe(content):
    """Offset, number of fields (None where the quotation marks are wrong) and content of each row."""
    return [
        (row.offset, row.num_fields if row.problem is None else None, row.content)
        for row in scan_rows(content)
    ]


# ---------------------------------------------------------------- by hand


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(b"", [], id="empty"),
        pytest.param(b"\xef\xbb\xbf", [], id="mark alone"),
        pytest.param(b"\xef\xbb\xbfa,b\n", [(3, 2, b"a,b")], id="mark"),
        pytest.param(b"a,b\nc,d", [(0, 2, b"a,b"), (4, 2, b"c,d")], id="no last line end"),
        pytest.param(b"a,b\r\nc\r\n", [(0, 2, b"a,b\r"), (5, 1, b"c\r")], id="crlf"),
        pytest.param(b"\n\r\na\n", [(3, 1, b"a")], id="blank lines"),
        pytest.param(b",\n,,", [(0, 2, b","), (2, 3, b",,")], id="empty fields"),
        pytest.param(b'"a\n,b",c\nd\n', [(0, 2, b'"a\n,b",c'), (9, 1, b"d")], id="quoted line end"),
        pytest.param(b'"a""b"\r\nc\n', [(0, 1, b'"a""b"\r'), (8, 1, b"c")], id="doubled mark"),
        pytest.param(b'""""\n"",""\n', [(0, 1, b'""""'), (5, 2, b'"",""')], id="marks alone"),
        pytest.param(
            b'a"b,"c"\nd"\n', [(0, 2, b'a"b,"c"'), (8, 1, b'd"')], id="marks in plain fields are text"
        ),
        pytest.param(b' "a\nb"\n', [(0, 1, b' "a'), (4, 1, b'b"')], id="a blank before a mark is text"),
        pytest.param(b'"a"b,c"\nd\n', [(0, None, b'"a"b,c"'), (8, 1, b"d")], id="text behind a mark"),
        pytest.param(b'"a"\rb\nc\n', [(0, None, b'"a"\rb'), (6, 1, b"c")], id="cr behind a mark"),
        pytest.param(b'a\n"b\nc,d\n', [(0, 1, b"a"), (2, None, b'"b\nc,d')], id="never closed"),
        pytest.param(b'"a"', [(0, 1, b'"a"')], id="closed at the end"),
        pytest.param(b'"a"\r', [(0, 1, b'"a"\r')], id="carriage return at the end"),
        pytest.param(b"a\rb\n", [(0, 1, b"a\rb")], id="lone carriage return is text"),
    ],
)
def test_rows(content, expected):
    assert describe(content) == expected


def test_problems_name_offsets():
    junk, unclosed = scan_rows(b'ab,"c"d\nx,"y\nz,"')[:1] + scan_rows(b'ab\nx,"y\nz,')[1:]
    assert junk.problem == (
        "byte offset 6: expected a separator or the end of the line behind a closing quotation mark, "
        "found b'd'"
    )
    assert unclosed.problem == (
        "byte offset 5: the quotation mark is not closed in the 5 bytes up to byte offset 10"
    )


@pytest.mark.parametrize(
    ("content", "kept"), [(b"abcd\r\n", True), (b"abcde\n", False), (b'"a\nb"\n', False), (b"abcd", True)]
)
def test_a_long_row_is_not_kept(content, kept):
    long, short = scan_rows(content.rstrip(b"\r\n") + b"\r\nx\n", max_row_bytes=4)
    assert (long.content is not None, long.problem) == (kept, None)
    assert short.content == b"x"


def test_split_row():
    assert split_row(b'a,"b,""c""\n",,"",d"e', b",") == [b"a", b'b,"c"\n', b"", b"", b'd"e']
    assert split_row(b'a\t"b\tc"\t', b"\t") == [b"a", b"b\tc", b""]
    assert split_row(b"", b",") == [b""]


@pytest.mark.parametrize(
    ("row", "num_fields", "wanted", "groups"),
    [
        (b"a,b,c\n", 3, {1}, (b"b",)),
        (b'"a,",b,"c"\r\n', 3, {0, 2}, (b'"a,"', b'"c"')),
        (b"a,b,c,d,e\r\n", 5, {3}, (b"d",)),
        (b"a,b\r\n", 2, {1}, (b"b\r",)),
        (b"a,b\n", 3, {0}, None),
        (b"a,b,c\n", 2, {0}, None),
        (b"\n", 1, {0}, None),
        (b"\r\n", 1, {0}, None),
        (b'""\n', 1, {0}, (b'""',)),
        (b'"a"b,c\n', 2, {0}, None),
        (b"a,b", 2, {0}, None),
    ],
)
def test_row_pattern(row, num_fields, wanted, groups):
    match = row_pattern(b",", num_fields, wanted).match(row + b"x,y\n")
    assert (match.groups() if match else None) == groups
    assert match is None or match.end() == len(row)


# ---------------------------------------------------------------- any bytes


OTHER = "other"
NEXT_STATE = {
    "start": {"mark": "quoted", "separator": "start", OTHER: "plain"},
    "plain": {"separator": "start", OTHER: "plain"},
    "quoted": {"mark": "closed", OTHER: "quoted"},
    "closed": {"mark": "quoted", "separator": "start", "return": "line end", OTHER: "broken"},
    "line end": {OTHER: "broken"},
    "broken": {OTHER: "broken"},
    "unclosed": {OTHER: "unclosed"},
    "tired": {OTHER: "tired"},
}


def read_by_bytes(content, separator, patience):
    """Start, end, stored fields and last state of each row: one byte at a time, by a table."""
    kinds = {ord('"'): "mark", ord("\r"): "return", separator[0]: "separator"}
    start = 3 if content.startswith(b"\xef\xbb\xbf") else 0
    rows = []
    while start < len(content):
        fields, state, end = [b""], "start", len(content)
        for position in range(start, len(content)):
            if position - start == patience and state != "broken":
                state = "unclosed" if state == "quoted" else "tired"
            byte = content[position]
            if byte == ord("\n") and state != "quoted":
                end = position
                break
            state = NEXT_STATE[state].get(kinds.get(byte, OTHER), NEXT_STATE[state][OTHER])
            if state == "start":
                fields.append(b"")
            else:
                fields[-1] += bytes([byte])
        if content[start:end] not in (b"", b"\r"):
            rows.append((start, end, fields, state))
        start = end + 1
    return rows


def value_of(stored, is_last):
    stored = stored.removesuffix(b"\r") if is_last else stored
    return stored[1:-1].replace(b'""', b'"') if stored.startswith(b'"') else stored


PARTS = st.lists(
    st.sampled_from([b'"', b'""', b",", b"\n", b"\r\n", b"\r", b"a", b"bc", b'","', b'\n"', b'"\n', b"\t"]),
    max_size=40,
).map(b"".join)


@pytest.mark.parametrize("portion_bytes", [3, 4, 7, BATCH_BYTES])
@pytest.mark.parametrize("patience", [10, QUOTE_PATIENCE_BYTES])
@settings(deadline=None, max_examples=150)
@given(PARTS, st.sampled_from([b"", b"\xef\xbb\xbf"]), st.sampled_from([b",", b"\t"]))
@example(b'"a\nb,c\nd,"e"\nf\n', b"", b",")
@example(b'"a""""""""b\nc"\nd', b"", b",")
def test_rows_are_those_of_a_plain_reading(portion_bytes, patience, parts, mark, separator):
    content = mark + parts
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.readers.delimited_rows.BATCH_BYTES", portion_bytes)
        patch.setattr("pipelines.readers.delimited_rows.QUOTE_PATIENCE_BYTES", patience)
        found = scan_rows(content, separator, max_row_bytes=5)
    expected = read_by_bytes(content, separator, patience)
    assert [row.offset for row in found] == [start for start, *_ in expected]
    for row, (start, end, fields, state) in zip(found, expected, strict=True):
        is_wrong = state in ("broken", "unclosed", "quoted")
        assert (row.problem is not None) == is_wrong
        if not is_wrong:
            stored = content[start:end]
            assert row.content == (stored if len(stored.removesuffix(b"\r")) <= 5 else None)
        if not is_wrong and state != "tired":
            assert row.num_fields == len(fields)
            values = [value_of(field, index == len(fields)) for index, field in enumerate(fields, start=1)]
            assert split_row(stored.removesuffix(b"\r"), separator) == values


@pytest.mark.parametrize("portion_bytes", [3, 16, BATCH_BYTES])
@settings(deadline=None, max_examples=150)
@given(PARTS, st.integers(1, 3))
def test_matches_and_scans_agree(portion_bytes, content, num_fields):
    pattern = row_pattern(b",", num_fields, set(range(num_fields)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.readers.delimited_rows.BATCH_BYTES", portion_bytes)
        scanned = scan_rows(content)
        stream = RowStream(io.BytesIO(content), b",", LONG)
        mixed = []
        while True:
            mixed += [
                (offset, match[0].removesuffix(b"\n")) for offset, match in stream.take_matches(pattern)
            ]
            row = stream.take_row()
            if row is None:
                break
            mixed.append((row.offset, row.content))
    assert mixed == [(row.offset, row.content) for row in scanned]
    for row in scanned:
        fits = row.problem is None and row.num_fields == num_fields
        assert bool(pattern.fullmatch(row.content + b"\n")) == fits


@settings(deadline=None)
@given(
    st.lists(st.lists(st.text(alphabet='ab",\n\r\té字', max_size=6), min_size=2, max_size=2), max_size=8),
    st.sampled_from([",", "\t"]),
    # A carriage return at the end of a row is marked as text only where the writer thinks of it.
    st.sampled_from([("\n", csv.QUOTE_ALL), ("\r\n", csv.QUOTE_MINIMAL)]),
)
def test_what_the_standard_library_writes_is_read_back(rows, delimiter, style):
    file = io.StringIO()
    csv.writer(file, delimiter=delimiter, lineterminator=style[0], quoting=style[1]).writerows(rows)
    separator = delimiter.encode()
    found = scan_rows(file.getvalue().encode(), separator)
    assert all(row.problem is None for row in found)
    values = [split_row(row.content.removesuffix(b"\r"), separator) for row in found]
    assert [[value.decode() for value in row] for row in values] == rows
