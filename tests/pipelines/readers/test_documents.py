"""Each layout's own rules, and ranges that give the same documents however a file is cut."""

import bz2
import gzip
import itertools
import json
import lzma
import os
import re
from dataclasses import replace

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines import rejections
from pipelines.readers import read_documents
from pipelines.readers.batches import BATCH_BYTES
from pipelines.readers.lines import LineBlock, LongLine, read_lines
from pipelines.reads import ReadDescriptor, ReadPiece, detect_format
from schemas.configs import IngestConfig, VocabConfig
from schemas.documents import DOCUMENT_SCHEMA
from schemas.errors import ClozelineError

BOM = b"\xef\xbb\xbf"


def read_range(path, config, start=0, end=None):
    """Texts and rejections (reason, id, detail) of a range of a file, ids without the folder."""
    document_format, compression = detect_format(str(path), config)
    piece = ReadPiece(str(path), document_format, compression, start, end, path.stat().st_size)
    return read_pieces(config, piece, folder=str(path.parent) + "/")


def read_pieces(config, *pieces, folder=""):
    kept, rejected = [], []
    for batch in read_documents(ReadDescriptor(pieces, 0), config):
        assert batch.table.schema == DOCUMENT_SCHEMA
        assert batch.table.num_rows + len(batch.rejected) > 0
        assert all(column.num_chunks <= 1 for column in batch.table.columns)
        batch.table.validate(full=True)
        ids = [name.removeprefix(folder) for name in batch.table["document_id"].to_pylist()]
        kept += zip(ids, batch.table["text"].to_pylist(), strict=True)
        rejected += [(r.document_id.removeprefix(folder), r.reason, r.detail) for r in batch.rejected]
    return kept, rejected


def read_content(tmp_path, content, document_format, name="a.x", **fields):
    path = tmp_path / name
    path.write_bytes(content)
    return read_range(path, IngestConfig(inputs=(str(path),), format=document_format, **fields))


def reasons(rejected):
    return [(name, reason) for name, reason, _ in rejected]


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


# ---------------------------------------------------------------- JSON lines


def test_json_lines(tmp_path):
    lines = [
        b'{"id": "x", "text": "One \\u00e9\\n\xc3\xa9."}',
        b'{"text": "Two.", "id": 7}',
        b"",
        b'{"text": "Three.", "id": null}\r',
        b'{"text": "Four.", "id": ""}',
        b'{"other": {"text": "no"}, "text": "Five.", "id": true}',
    ]
    kept, rejected = read_content(tmp_path, BOM + b"\n".join(lines), "jsonl")
    assert kept == [
        ("x", "One é\né."),
        ("7", "Two."),
        ("a.x:69", "Three."),
        ("a.x:101", "Four."),
        ("a.x:129", "Five."),
    ]
    assert rejected == []


def test_json_lines_under_other_names(tmp_path):
    line = b'{"url": "u", "body": "One.", "text": "no", "id": "no"}\n'
    assert read_content(tmp_path, line, "jsonl", text_field="body", id_field="url")[0] == [("u", "One.")]


@pytest.mark.parametrize(
    ("line", "name", "reason", "detail"),
    [
        pytest.param(b'{"text": "cut', "a.x:5", "invalid_json", "unexpected end", id="cut"),
        pytest.param(
            b'["a"]', "a.x:5", "invalid_json", "expected an object on the line, found list", id="list"
        ),
        pytest.param(b'{"text": "\\ud800"}', "a.x:5", "invalid_json", "surrogate", id="lone surrogate"),
        pytest.param(b'{"id": "k"}', "k", "missing_text", "'text' is absent; expected a string", id="absent"),
        pytest.param(
            b'{"text": 3}', "a.x:5", "missing_text", "'text' is int; expected a string", id="number"
        ),
        pytest.param(b'{"text": null}', "a.x:5", "missing_text", "'text' is NoneType", id="null"),
        pytest.param(b'{"text": " \\n\\u00a0", "id": "k"}', "k", "empty", "white space", id="blank"),
        pytest.param(
            b'{"text": "\xff"}', "a.x:5", "invalid_utf8", "a.x, byte offset 15: 0xff", id="encoding"
        ),
        pytest.param(
            b'{"text": "%s"}' % (b"x" * 90), "a.x:5", "too_long", "longer than 100 bytes", id="too long"
        ),
    ],
)
def test_only_the_wrong_json_line_is_rejected(tmp_path, line, name, reason, detail):
    good = b'{"text": "Good.", "id": "g"}\n'
    kept, rejected = read_content(tmp_path, b"    \n" + line + b"\n" + good, "jsonl", max_document_bytes=100)
    assert kept == [("g", "Good.")]
    assert reasons(rejected) == [(name, reason)]
    assert detail in rejected[0][2]


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


def read_cut(path, content, cuts, config):
    path.write_bytes(content)
    kept, rejected = [], []
    for start, end in itertools.pairwise(cuts):
        some_kept, some_rejected = read_range(path, config, start, end)
        kept += some_kept
        rejected += some_rejected
    return kept, rejected


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


def test_every_split_of_a_json_file_gives_its_documents(tmp_path):
    path = tmp_path / "a.jsonl"
    content = BOM + b"".join(b'{"text": "%s"}\r\n' % (b"x" * n) for n in (1, 5, 0, 2)) + b'{"text": "end"}'
    config = IngestConfig(inputs=("x",))
    whole = read_cut(path, content, [0, len(content)], config)
    assert [len(text) for _, text in whole[0]] == [1, 5, 2, 3]
    for cut in range(len(content) + 1):
        assert read_cut(path, content, sorted({0, cut, len(content)}), config) == whole
    assert read_cut(path, content, list(range(len(content) + 1)), config) == whole


# ---------------------------------------------------------------- memory, batches, compression


class EndlessLine:
    """A stream of one line of many bytes, of which only a chunk exists at a time."""

    def __init__(self, num_bytes, tail):
        self.left, self.tail, self.largest = num_bytes, tail, 0

    def read(self, size):
        self.largest = max(self.largest, size)
        taken = min(size, self.left)
        self.left -= taken
        if taken:
            return b"x" * taken
        tail, self.tail = self.tail[:size], self.tail[size:]
        return tail


def test_a_line_of_200_megabytes_is_rejected_without_being_held():
    stream = EndlessLine(200_000_000, b"\nshort\n")
    found = list(read_lines(stream, 0, None, 1_000_000))
    assert found == [LongLine(0), LineBlock(200_000_001, b"short\n")]
    assert stream.largest <= BATCH_BYTES


@pytest.mark.parametrize("document_format", ["text-lines", "text-sentences", "jsonl"])
def test_a_line_longer_than_a_block_is_rejected_and_the_next_one_kept(tmp_path, document_format):
    path = tmp_path / "a.gz"
    short = b'{"text": "short"}'
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(5):
            file.write(b"x" * 1_000_000)
        file.write(b"\n\n" + short + b"\n")
    config = IngestConfig(inputs=("x",), format=document_format, max_document_bytes=1000)
    kept, rejected = read_range(path, config)
    assert [text for _, text in kept] == ["short" if document_format == "jsonl" else short.decode()]
    assert reasons(rejected)[0] == ("a.gz:0", "too_long")
    assert [reason for _, reason, _ in rejected[1:]] == (["empty"] if document_format == "text-lines" else [])


def test_batches_hold_about_two_megabytes(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(b'{"text": "%s"}\n' % (b"x" * 999) for _ in range(7000)))
    read = ReadDescriptor((ReadPiece(str(path), "jsonl", None, 0, None, path.stat().st_size),), 0)
    sizes = [batch.table.num_rows for batch in read_documents(read, IngestConfig(inputs=("x",)))]
    assert sum(sizes) == 7000
    assert max(sizes) <= 1.05 * BATCH_BYTES / 999
    assert len(sizes) == 4


def test_rejections_count_for_a_batch(tmp_path):
    path = tmp_path / "a.x"
    path.write_bytes(b"\n" * 100_000)
    read = ReadDescriptor((ReadPiece(str(path), "text-lines", None, 0, 100_000, 100_000),), 0)
    batches = list(read_documents(read, IngestConfig(inputs=("x",))))
    assert sum(len(batch.rejected) for batch in batches) == 100_000
    assert max(len(batch.rejected) for batch in batches) <= 1 << 15


def test_small_files_of_a_read_come_in_one_batch_in_order(tmp_path):
    pieces = []
    for index in range(50):
        path = tmp_path / f"{index:02d}.txt"
        path.write_text(f"Text {index}." if index != 7 else "")
        pieces.append(ReadPiece(str(path), "text", None, 0, None, path.stat().st_size))
    (batch,) = read_documents(ReadDescriptor(tuple(pieces), 0), IngestConfig(inputs=("x",)))
    assert batch.table["text"].to_pylist() == [f"Text {index}." for index in range(50) if index != 7]
    assert [document.document_id for document in batch.rejected] == [f"{tmp_path}/07.txt:0"]


def compress_zstd(content):
    return zstandard.ZstdCompressor().compress(content)


COMPRESSORS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": compress_zstd}


@pytest.mark.parametrize("suffix", COMPRESSORS)
@pytest.mark.parametrize(
    ("suffix_inside", "content"),
    [
        (".jsonl", b'{"text": "One."}\n{"text": "Two."}\n'),
        (".txt", b"One.\nTwo.\n"),
    ],
)
def test_compressed_files_read_as_plain_ones(tmp_path, suffix, suffix_inside, content):
    plain = tmp_path / f"a{suffix_inside}"
    plain.write_bytes(content)
    packed = tmp_path / f"a{suffix_inside}{suffix}"
    # Two members one after the other, as `cat a.gz b.gz` makes them.
    packed.write_bytes(COMPRESSORS[suffix](content[:9]) + COMPRESSORS[suffix](content[9:]))
    config = IngestConfig(inputs=("x",))
    expected = [text for _, text in read_range(plain, config)[0]]
    assert [text for _, text in read_range(packed, config)[0]] == expected


@pytest.mark.parametrize("suffix", COMPRESSORS)
@pytest.mark.parametrize("document_format", ["jsonl", "text"])
def test_a_truncated_file_is_an_error_that_names_it(tmp_path, suffix, document_format):
    path = tmp_path / f"a.jsonl{suffix}"
    content = COMPRESSORS[suffix](json.dumps({"text": "x y z" * 1000}).encode() + b"\n")
    path.write_bytes(content[: len(content) - 6])
    with pytest.raises(ClozelineError, match=re.escape(f"{path} is truncated")):
        read_range(path, IngestConfig(inputs=("x",), format=document_format))


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_a_damaged_file_is_an_error_that_names_it(tmp_path, suffix):
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(b"not compressed at all\n" * 10)
    with pytest.raises(ClozelineError, match=re.escape(f"{path} is no valid")):
        read_range(path, IngestConfig(inputs=("x",)))


def test_a_missing_file_is_an_error_that_names_it(tmp_path):
    piece = ReadPiece(str(tmp_path / "gone.txt"), "text", None, 0, None, 3)
    with pytest.raises(ClozelineError, match=r"can't read .*gone\.txt: No such file"):
        read_pieces(IngestConfig(inputs=("x",)), piece)


def test_a_file_name_that_is_no_utf8_still_names_documents(tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9.jsonl")
    path.write_bytes(b'{"text": "One."}\n')
    assert read_range(path, IngestConfig(inputs=("x",)))[0] == [("caf\\udce9.jsonl:0", "One.")]


def test_a_vocabulary_reads_the_same_documents(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"body": "One."}\n')
    config = VocabConfig(inputs=("x",), text_field="body")
    assert read_range(path, config) == ([("a.jsonl:0", "One.")], [])


def test_pieces_differ_from_the_whole_only_in_range(tmp_path):
    path = tmp_path / "a.x"
    path.write_bytes(b"one\ntwo\n")
    whole = ReadPiece(str(path), "text-lines", None, 0, None, 8)
    halves = [replace(whole, end=4), replace(whole, start=4)]
    config = IngestConfig(inputs=("x",))
    assert read_pieces(config, *halves) == read_pieces(config, whole)
    assert pa.types.is_large_string(DOCUMENT_SCHEMA.field("text").type)
