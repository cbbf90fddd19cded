"""Text in its three layouts, and ranges that give the same documents however a file is cut."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines import rejections
from pipelines.readers.batches import BATCH_BYTES
from schemas.configs import IngestConfig
from tests.pipelines.readers.reading import BOM, read_content, read_cut, reasons

# ---------------------------------------------------------------- a document a line


def test_a_line_is_a_document_named_by_its_offset(tmp_path):
    kept, rejected = read_content(tmp_path, b"first\nsecond one\nthird", "text-lines")
    assert kept == [("a.x:0", "first"), ("a.x:6", "second one"), ("a.x:17", "third")]
    assert rejected == []


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(b"one\r\ntwo\r\n", ["one", "two"], id="crlf"),
        pytest.param(BOM + b"one\ntwo\n", ["one", "two"], id="byte-order mark"),
        pytest.param(
            b"o\x00ne\x01\ntwo\x7f\n", ["o\x00ne\x01", "two\x7f"], id="nul and control characters stay"
        ),
        pytest.param(
            "a\u2028b\u0085c\x0bd\x0ce\x1cf\rg\n".encode(),
            ["a\u2028b\u0085c\x0bd\x0ce\x1cf\rg"],
            id="no other line ends",
        ),
        pytest.param(b"one\r\r\n", ["one\r"], id="one carriage return goes"),
        pytest.param(b"", [], id="empty file"),
        pytest.param(BOM, [], id="byte-order mark alone"),
        pytest.param(b"one\n" + BOM + b"two\n", ["one", "\ufefftwo"], id="a later mark is text"),
    ],
)
def test_line_ends_and_odd_characters(tmp_path, content, expected):
    kept, rejected = read_content(tmp_path, content, "text-lines")
    assert [text for _, text in kept] == expected
    assert rejected == []


def test_a_blank_line_is_an_empty_document(tmp_path):
    kept, rejected = read_content(tmp_path, "one\n\n \t\u3000\r\ntwo\n".encode(), "text-lines")
    assert [text for _, text in kept] == ["one", "two"]
    assert reasons(rejected) == [("a.x:4", rejections.EMPTY), ("a.x:5", rejections.EMPTY)]


def test_only_the_line_with_wrong_bytes_is_rejected_with_file_and_offset(tmp_path):
    kept, rejected = read_content(tmp_path, b"one\ncaf\xe9 au lait\nthree\n", "text-lines")
    assert kept == [("a.x:0", "one"), ("a.x:17", "three")]
    ((name, reason, detail),) = rejected
    assert (name, reason) == ("a.x:4", "invalid_utf8")
    assert detail == f"{tmp_path}/a.x, byte offset 7: 0xe9: invalid continuation byte"


@pytest.mark.parametrize("length", [10, 11])
def test_length_limit_of_a_line_is_in_bytes(tmp_path, length):
    line = "é".encode() * 4 + b"a" * (length - 8)
    kept, rejected = read_content(tmp_path, b"x\n" + line + b"\r\ny\n", "text-lines", max_document_bytes=10)
    too_long = length > 10
    assert [text for _, text in kept] == (["x", "y"] if too_long else ["x", line.decode(), "y"])
    assert reasons(rejected) == ([("a.x:2", rejections.TOO_LONG)] if too_long else [])


# ---------------------------------------------------------------- a document a file


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(b"One.\n\nTwo.", "One.\n\nTwo.", id="plain"),
        pytest.param(BOM + b"One.\r\n\r\nTwo.\r\n", "One.\n\nTwo.\n", id="mark and crlf"),
    ],
)
def test_a_file_is_a_document(tmp_path, content, expected):
    assert read_content(tmp_path, content, "text") == ([("a.x:0", expected)], [])


@pytest.mark.parametrize(
    ("content", "reason", "detail"),
    [
        pytest.param(b"", "empty", "no character but white space", id="empty"),
        pytest.param(b" \r\n\t", "empty", "no character but white space", id="blank"),
        pytest.param(b"x" * 101, "too_long", "longer than 100 bytes", id="too long"),
        pytest.param(
            BOM + b"ab\r\n\xff", "invalid_utf8", "byte offset 7: 0xff: invalid start byte", id="encoding"
        ),
        pytest.param(b"abc\xe2\x82", "invalid_utf8", "byte offset 3: 0xe2: unexpected end of data", id="cut"),
    ],
)
def test_a_file_that_is_no_document(tmp_path, content, reason, detail):
    kept, rejected = read_content(tmp_path, content, "text", max_document_bytes=100)
    assert kept == []
    ((name, found, found_detail),) = rejected
    assert (name, found) == ("a.x:0", reason)
    assert found_detail.endswith(detail)


# ---------------------------------------------------------------- a sentence a line


def test_blank_lines_stand_between_documents(tmp_path):
    content = BOM + b"\n\nOne.\r\nTwo.\r\n \t\r\n\r\nThree.\n\n\nFour.\nFive."
    kept, rejected = read_content(tmp_path, content, "text-sentences")
    assert kept == [("a.x:5", "One.\nTwo."), ("a.x:23", "Three."), ("a.x:32", "Four.\nFive.")]
    assert rejected == []


def test_white_space_at_the_end_is_no_document(tmp_path):
    assert read_content(tmp_path, b"One.\n\n  ", "text-sentences")[0] == [("a.x:0", "One.")]
    assert read_content(tmp_path, b"One.\n  ", "text-sentences")[0] == [("a.x:0", "One.")]
    assert read_content(tmp_path, b" \n \n", "text-sentences") == ([], [])


def test_a_document_of_wrong_bytes_or_too_long_is_rejected_alone(tmp_path):
    content = b"One.\r\n\r\nTwo.\r\nTw\xffo.\r\n\r\nThree.\n\n" + b"Four four.\n" * 3 + b"\nFive.\n"
    kept, rejected = read_content(tmp_path, content, "text-sentences", max_document_bytes=20)
    assert [text for _, text in kept] == ["One.", "Three.", "Five."]
    assert reasons(rejected) == [("a.x:8", "invalid_utf8"), ("a.x:31", "too_long")]
    assert rejected[0][2].endswith("a.x, byte offset 16: 0xff: invalid start byte")


# ---------------------------------------------------------------- ranges


def expected_lines(content):
    """An independent reading of a document a line: offset and bytes."""
    offset = len(BOM) if content.startswith(BOM) else 0
    documents = []
    for line in re.findall(rb"[^\n]*\n|[^\n]+\Z", content[offset:]):
        documents.append((offset, line.removesuffix(b"\n").removesuffix(b"\r")))
        offset += len(line)
    return documents


def expected_sentences(content):
    """An independent reading of a sentence a line: offset and text of each document."""
    offset = len(BOM) if content.startswith(BOM) else 0
    documents, current = [], []
    for line in re.findall(rb"[^\n]*\n|[^\n]+\Z", content[offset:]):
        if line.strip():
            current.append((offset, line))
        elif current:
            documents.append(current)
            current = []
        offset += len(line)
    documents += [current] if current else []
    return [
        (lines[0][0], b"".join(line for _, line in lines).rstrip(b"\r\n").replace(b"\r\n", b"\n").decode())
        for lines in documents
    ]


pieces_of_text = st.lists(
    st.sampled_from(
        [
            b"\n",
            b"\r\n",
            b"\n\n",
            b" \n",
            b"\t\r\n",
            b"a",
            b"Bc d.",
            "é字".encode(),
            b" ",
            b"\r",
            b"long " * 9,
        ]
    ),
    max_size=40,
)
contents = st.tuples(st.sampled_from([b"", BOM]), pieces_of_text).map(
    lambda parts: parts[0] + b"".join(parts[1])
)


@st.composite
def cut_contents(draw):
    content = draw(contents)
    cuts = draw(st.lists(st.integers(0, len(content)), max_size=6))
    return content, sorted({0, *cuts, len(content)})


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("ranges") / "a.x"


@pytest.mark.parametrize("block_bytes", [3, 7, BATCH_BYTES])
@settings(deadline=None, max_examples=150)
@given(cut_contents())
def test_ranges_give_the_lines_of_the_file(scratch, block_bytes, cut):
    content, cuts = cut
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.readers.lines.BATCH_BYTES", block_bytes)
        config = IngestConfig(inputs=("x",), format="text-lines", max_document_bytes=30)
        kept, rejected = read_cut(scratch, content, cuts, config)
    lines = expected_lines(content)
    good = [(f"a.x:{offset}", line.decode()) for offset, line in lines if line.strip() and len(line) <= 30]
    assert kept == good
    assert reasons(rejected) == [
        (f"a.x:{offset}", "empty" if len(line) <= 30 else "too_long")
        for offset, line in lines
        if not line.strip() or len(line) > 30
    ]


@pytest.mark.parametrize("block_bytes", [3, 7, BATCH_BYTES])
@settings(deadline=None, max_examples=150)
@given(cut_contents())
def test_ranges_give_the_documents_of_the_file(scratch, block_bytes, cut):
    content, cuts = cut
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.readers.lines.BATCH_BYTES", block_bytes)
        config = IngestConfig(inputs=("x",), format="text-sentences")
        kept, rejected = read_cut(scratch, content, cuts, config)
    assert kept == [(f"a.x:{offset}", text) for offset, text in expected_sentences(content)]
    assert rejected == []


@pytest.mark.parametrize("block_bytes", [3, 7, BATCH_BYTES])
@settings(deadline=None, max_examples=100)
@given(cut_contents())
def test_ranges_reject_the_same_documents_for_their_length(scratch, block_bytes, cut):
    content, cuts = cut
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.readers.lines.BATCH_BYTES", block_bytes)
        config = IngestConfig(inputs=("x",), format="text-sentences", max_document_bytes=12)
        whole = read_cut(scratch, content, [0, len(content)], config)
        assert read_cut(scratch, content, cuts, config) == whole
    limit = [
        (offset, text)
        for offset, text in expected_sentences(content)
        if "\n" not in text and "\r" not in text
    ]
    short = {f"a.x:{offset}" for offset, text in limit if len(text.encode()) <= 12}
    assert short <= {name for name, _ in whole[0]}
    assert {f"a.x:{offset}" for offset, text in limit} - short <= {name for name, _, _ in whole[1]}
