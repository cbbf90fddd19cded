"""Rows of CSV and TSV as documents: what is kept, what is rejected and why, and which files are refused."""

import bz2
import csv
import gzip
import io
import lzma
import re

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.readers import read_documents
from pipelines.readers.batches import BATCH_BYTES
from pipelines.readers.delimited import read_delimited
from pipelines.reads import ReadDescriptor, ReadPiece, detect_format
from pipelines.rejections import INVALID_CSV, REASONS
from schemas.configs import IngestConfig, VocabConfig
from schemas.errors import ClozelineError

BOM = b"\xef\xbb\xbf"


def read_file(path, config):
    """Texts and rejections (id, reason, detail) of a file, ids without the folder."""
    document_format, compression = detect_format(str(path), config)
    piece = ReadPiece(str(path), document_format, compression, 0, None, path.stat().st_size)
    folder = f"{path.parent}/"
    kept, rejected = [], []
    for batch in read_documents(ReadDescriptor((piece,), 0), config):
        batch.table.validate(full=True)
        ids = [name.removeprefix(folder) for name in batch.table["document_id"].to_pylist()]
        kept += zip(ids, batch.table["text"].to_pylist(), strict=True)
        rejected += [(r.document_id.removeprefix(folder), r.reason, r.detail) for r in batch.rejected]
    return kept, rejected


def read_content(tmp_path, content, name="a.csv", **fields):
    path = tmp_path / name
    path.write_bytes(content)
    return read_file(path, IngestConfig(inputs=("x",), **fields))


# ---------------------------------------------------------------- what is kept


def test_rows_are_documents_named_by_their_id_or_offset(tmp_path):
    content = (
        b"id,text,source\r\n"
        b"x,One.,web\r\n"
        b',"Two, and ""three"".\r\nFour.",web\r\n'
        b"\r\n"
        b'"a""b",Caf\xc3\xa9 \xe5\xad\x97.,\r\n'
        b"7,Last.,"
    )
    kept, rejected = read_content(tmp_path, content)
    assert kept == [
        ("x", "One."),
        ("a.csv:28", 'Two, and "three".\r\nFour.'),
        ('a"b', "Café 字."),
        ("7", "Last."),
    ]
    assert rejected == []


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(BOM + b"text\nOne.\n", [("a.csv:8", "One.")], id="mark before a header"),
        pytest.param(BOM + b'"text"\nOne.\n', [("a.csv:10", "One.")], id="mark before a quoted header"),
        pytest.param(b"\n\ntext\n\nOne.\n", [("a.csv:8", "One.")], id="blank lines"),
        pytest.param(b"text\n", [], id="header alone"),
        pytest.param(b"text", [], id="header without a line end"),
        pytest.param(b"n,text\r\n1,One.\r\n", [("a.csv:8", "One.")], id="crlf behind a plain text"),
        pytest.param(b"n,id,text\r\n1,k,One.\r\n", [("k", "One.")], id="identifier in the middle"),
        pytest.param(b"text,id\r\nOne.,k\r\n", [("k", "One.")], id="crlf behind an identifier"),
        pytest.param(b"text,n\nO\x00n\x01e.\r,2\n", [("a.csv:7", "O\x00n\x01e.\r")], id="controls stay"),
        pytest.param(
            "text\na\u2028b\u0085c\x0bd\n".encode(), [("a.csv:5", "a\u2028b\u0085c\x0bd")], id="line ends"
        ),
        pytest.param(b'n,text\n1, "a"\n', [("a.csv:7", ' "a"')], id="blanks and marks in a plain field"),
        pytest.param(b"text,n\nNULL,1\nNA,2\n", [("a.csv:7", "NULL"), ("a.csv:14", "NA")], id="no nulls"),
        pytest.param(b"text,text2\na,b\n", [("a.csv:11", "a")], id="a name within a name"),
        pytest.param(b'n,text\n"1\n2","a\tb"\n', [("a.csv:7", "a\tb")], id="line end in another column"),
    ],
)
def test_line_ends_marks_and_odd_characters(tmp_path, content, expected):
    assert read_content(tmp_path, content) == (expected, [])


def test_tabs_separate_the_columns_of_tsv(tmp_path):
    content = b'id\ttext\nk\tOne, two.\n\t"Tab\t, ""mark""\nand line."\n'
    kept, rejected = read_content(tmp_path, content, "a.tsv")
    assert kept == [("k", "One, two."), ("a.tsv:20", 'Tab\t, "mark"\nand line.')]
    assert rejected == []
    assert read_content(tmp_path, content, "a.x", format="tsv")[0][0] == ("k", "One, two.")


def test_columns_of_other_names(tmp_path):
    content = b"url,body,text,id\nu,One.,no,no\n"
    assert read_content(tmp_path, content, text_field="body", id_field="url")[0] == [("u", "One.")]
    assert read_content(tmp_path, content, text_field="body", id_field="body")[0] == [("One.", "One.")]
    assert read_content(tmp_path, content, text_field="body", id_field="none")[0] == [("a.csv:17", "One.")]


def test_many_columns(tmp_path):
    names = [f"c{index}" for index in range(2000)]
    for index in (0, 1, 999, 1998, 1999):
        header = [*names[:index], "text", *names[index + 1 :]]
        row = ["" if index % 3 else "x"] * 2000
        row[index] = "One."
        content = f"{','.join(header)}\n{','.join(row)}\n{','.join(row[1:])}\n".encode()
        kept, rejected = read_content(tmp_path, content)
        assert [text for _, text in kept] == ["One."]
        assert [detail for _, _, detail in rejected] == ["expected 2000 fields as in the header, found 1999"]


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [
        (".gz", gzip.compress),
        (".bz2", bz2.compress),
        (".xz", lzma.compress),
        (".zst", lambda content: zstandard.ZstdCompressor().compress(content)),
    ],
)
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b'id,text\nk,"One,\ntwo."\n,Three.\n'),
        ("a.tsv", b'id\ttext\nk\t"One,\ntwo."\n\tThree.\n'),
        ("a.jsonl", b'{"id": "k", "text": "One,\\ntwo."}\n{"text": "Three."}\n'),
        ("a.txt", b"One,\ntwo."),
    ],
)
def test_each_format_in_each_compression(tmp_path, name, content, suffix, compress):
    plain = read_content(tmp_path, content, name)
    packed, rejected = read_content(tmp_path, compress(content), name + suffix)
    assert packed[0][1] == "One,\ntwo."
    assert [(document_id.replace(suffix, ""), text) for document_id, text in packed] == plain[0]
    assert rejected == plain[1] == []


def test_a_vocabulary_is_learned_from_csv_too(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"id,text\nk,One.\n")
    config = VocabConfig(inputs=("x",))
    assert read_file(tmp_path / "a.csv", config) == ([("k", "One.")], [])


# ---------------------------------------------------------------- what is rejected


@pytest.mark.parametrize(
    ("row", "name", "reason", "detail"),
    [
        pytest.param(
            b"k,One.,x", "a.csv:17", "invalid_csv", "expected 2 fields as in the header, found 3", id="more"
        ),
        pytest.param(
            b"One.", "a.csv:17", "invalid_csv", "expected 2 fields as in the header, found 1", id="fewer"
        ),
        pytest.param(
            b'k,"a" b"',
            "a.csv:17",
            "invalid_csv",
            "byte offset 22: expected a separator or the end of the line behind a closing quotation mark, "
            "found b' '",
            id="text behind a mark",
        ),
        pytest.param(b"k, \xe3\x80\x80", "k", "empty", "no character but white space", id="blank"),
        pytest.param(b'k,""', "k", "empty", "no character but white space", id="empty"),
        pytest.param(b"k,%s" % (b"x" * 48), None, None, None, id="just short enough"),
        pytest.param(b"k,%s" % (b"x" * 49), "a.csv:17", "too_long", "longer than 50 bytes", id="too long"),
        pytest.param(
            b'k,"%s\n"' % (b"x" * 46), "a.csv:17", "too_long", "longer than 50 bytes", id="too long in marks"
        ),
        pytest.param(
            b"k,ab\xff", "k", "invalid_utf8", "a.csv, byte offset 21: 0xff: invalid start byte", id="encoding"
        ),
        pytest.param(
            b'k,"a\n\xe9b"',
            "k",
            "invalid_utf8",
            "a.csv, byte offset 22: 0xe9: invalid continuation byte",
            id="encoding in marks",
        ),
        pytest.param(
            b'k,"""a""\xc3"',
            "k",
            "invalid_utf8",
            "a.csv, byte offset 25: 0xc3: invalid continuation byte",
            id="encoding behind doubled marks",
        ),
    ],
)
@pytest.mark.parametrize("portion_bytes", [3, BATCH_BYTES])
def test_only_the_wrong_row_is_rejected(tmp_path, monkeypatch, portion_bytes, row, name, reason, detail):
    monkeypatch.setattr("pipelines.readers.delimited_rows.BATCH_BYTES", portion_bytes)
    content = b"id,text\ng,Good.\r\n" + row + b"\r\nh,Good.\r\n"
    kept, rejected = read_content(tmp_path, content, max_document_bytes=50)
    if reason is None:
        assert (len(kept), rejected) == (3, [])
        return
    assert kept == [("g", "Good."), ("h", "Good.")]
    ((found_name, found_reason, found_detail),) = rejected
    assert (found_name, found_reason) == (name, reason)
    assert found_detail.endswith(detail)


def test_wrong_bytes_outside_of_the_text_do_no_harm(tmp_path):
    kept, rejected = read_content(tmp_path, b"id,text,n\nk\xff,One.,\xe9\n,Two.,\xe9\n")
    assert kept == [("k\ufffd", "One."), ("a.csv:20", "Two.")]
    assert rejected == []


def test_its_reason_is_one_of_the_list():
    assert INVALID_CSV in REASONS


# ---------------------------------------------------------------- quotation marks that are never closed


def test_a_mark_that_is_never_closed_takes_no_more_than_it_may(tmp_path, monkeypatch):
    monkeypatch.setattr("pipelines.readers.delimited_rows.QUOTE_PATIENCE_BYTES", BATCH_BYTES)
    row = b"k,A text of twenty.\n"
    assert len(row) == 20
    num_rows = 4 * BATCH_BYTES // 20
    content = b"id,text\n" + b'k,"Never closed.\n' + row * num_rows
    kept, rejected = read_content(tmp_path, content, max_document_bytes=1000)
    num_lost = num_rows - len(kept)
    assert num_lost * 20 <= BATCH_BYTES + 20
    ((name, reason, detail),) = rejected
    assert (name, reason) == ("a.csv:8", "invalid_csv")
    num_bytes = 15 + 20 * num_lost
    assert detail == (
        f"byte offset 10: the quotation mark is not closed in the {num_bytes} bytes up to byte offset "
        f"{10 + num_bytes}"
    )


def test_the_longest_document_bounds_it_too(tmp_path, monkeypatch):
    monkeypatch.setattr("pipelines.readers.delimited_rows.QUOTE_PATIENCE_BYTES", 10)
    content = b'text\n"Never closed.\n' + b"Good.\n" * 20
    kept, rejected = read_content(tmp_path, content, max_document_bytes=50)
    # The row may have the 50 bytes from 5 on: to the end of the line over byte offset 55, which ends at 56.
    assert kept == [(f"a.csv:{offset}", "Good.") for offset in range(56, 140, 6)]
    assert [(name, reason) for name, reason, _ in rejected] == [("a.csv:5", "invalid_csv")]


def test_a_mark_is_closed_by_the_next_one_and_the_rows_behind_are_kept(tmp_path):
    content = b'id,text\na,"Never closed.\nb,Lost.\nc,"Lost too."\nd,"Kept."\n'
    kept, rejected = read_content(tmp_path, content)
    assert kept == [("d", "Kept.")]
    assert [(name, reason) for name, reason, _ in rejected] == [("a.csv:8", "invalid_csv")]


def test_a_long_row_in_marks_is_passed_over_whole(tmp_path):
    lines = b"This, is a row, it seems.\n" * 100
    content = b'id,text\na,"' + lines + b'"\nb,Kept.\n'
    kept, rejected = read_content(tmp_path, content, max_document_bytes=100)
    assert kept == [("b", "Kept.")]
    assert [reason for _, reason, _ in rejected] == ["too_long"]


class EndlessRow:
    """A stream whose one row has many bytes, of which only a portion exists at a time."""

    def __init__(self, head, num_bytes, tail):
        self.head, self.left, self.tail, self.largest = head, num_bytes, tail, 0

    def read(self, size):
        self.largest = max(self.largest, size)
        if self.head:
            taken, self.head = self.head[:size], self.head[size:]
            return taken
        taken = min(size, self.left)
        self.left -= taken
        if taken:
            return b"x\n" * (taken // 2) + b"x" * (taken % 2)
        taken, self.tail = self.tail[:size], self.tail[size:]
        return taken

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def test_a_row_of_60_megabytes_is_rejected_without_being_held(monkeypatch):
    stream = EndlessRow(b'text\n"', 60_000_000, b'"\nshort\n')
    monkeypatch.setattr("pipelines.storage.open_read", lambda path, offset: stream)
    piece = ReadPiece("a.csv", "csv", None, 0, None, 0)
    (batch,) = read_delimited(piece, "text", "id", 1_000_000)
    assert batch.table.to_pydict() == {"document_id": ["a.csv:60000008"], "text": ["short"]}
    assert [document.reason for document in batch.rejected] == ["too_long"]
    assert stream.largest <= BATCH_BYTES


# ---------------------------------------------------------------- files that are refused


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(
            b'id,"bo,dy",\n1,2,3\n',
            "{path} has no column 'text'; its columns are 'id', 'bo,dy', ''\n"
            "Name the one that holds the text with --text-field; if this is no CSV or TSV, see --format.",
            id="no text",
        ),
        pytest.param(
            b"id;text\n",
            "{path} has no column 'text'; its columns are 'id;text'\n"
            "Name the one that holds the text with --text-field; if this is no CSV or TSV, see --format.",
            id="other separator",
        ),
        pytest.param(
            b",".join(b"c%d" % index for index in range(30)) + b"\n",
            "{path} has no column 'text'; its columns are "
            + ", ".join(f"'c{index}'" for index in range(20))
            + " and 10 more\n"
            "Name the one that holds the text with --text-field; if this is no CSV or TSV, see --format.",
            id="many columns",
        ),
        pytest.param(
            b"x" * 1000 + b"\n",
            "{path} has no column 'text'; its columns are '" + "x" * 40 + "…'\n"
            "Name the one that holds the text with --text-field; if this is no CSV or TSV, see --format.",
            id="no header at all",
        ),
        pytest.param(
            b"text,id,text\n",
            "{path} has 2 columns 'text'; expected one\n"
            "Rename them, or name another column with --text-field.",
            id="text twice",
        ),
        pytest.param(
            b"text,id,id\n",
            "{path} has 2 columns 'id'; expected one\nRename them, or name another column with --id-field.",
            id="id twice",
        ),
        pytest.param(b"", "{path} is empty; expected a header row that names its columns.", id="empty"),
        pytest.param(
            BOM + b"\n\r\n", "{path} is empty; expected a header row that names its columns.", id="blank"
        ),
        pytest.param(
            b'id,"text\n1,2\n',
            "{path}: its header row can't be read: byte offset 3: the quotation mark is not closed in the 10 "
            "bytes up to byte offset 13\nExpected the names of its columns in the first row.",
            id="mark in the header",
        ),
        pytest.param(
            b"x" * 1001,
            "{path}: its header row can't be read: it is too long\n"
            "Expected the names of its columns in the first row.",
            id="long header",
        ),
        pytest.param(
            "id,text\n1,2\n".encode("utf-16"),
            "{path} is UTF-16; expected UTF-8\nConvert it: iconv -f UTF-16 -t UTF-8 {path}",
            id="utf-16",
        ),
    ],
)
def test_a_file_without_its_columns_is_an_error_that_names_them(tmp_path, content, message):
    path = tmp_path / "a.csv"
    with pytest.raises(ClozelineError, match=f"^{re.escape(message.replace('{path}', str(path)))}$"):
        read_content(tmp_path, content, max_document_bytes=1000)


def test_a_truncated_archive_is_an_error(tmp_path):
    packed = gzip.compress(b"text\n" + b"One.\n" * 1000)
    with pytest.raises(ClozelineError, match=r"a\.csv\.gz is truncated"):
        read_content(tmp_path, packed[:-20], "a.csv.gz")


# ---------------------------------------------------------------- any text


TEXTS = st.text(st.one_of(st.sampled_from('",\t\n\r a.'), st.characters(codec="utf-8")), max_size=12)


@pytest.mark.parametrize("portion_bytes", [5, BATCH_BYTES])
@settings(deadline=None, max_examples=150)
@given(rows=st.lists(st.tuples(TEXTS, TEXTS), max_size=10), delimiter=st.sampled_from([",", "\t"]))
def test_any_text_is_read_back(tmp_path_factory, portion_bytes, rows, delimiter):
    path = tmp_path_factory.mktemp("any") / ("a.csv" if delimiter == "," else "a.tsv")
    file = io.StringIO()
    csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows([("id", "text"), *rows])
    path.write_bytes(file.getvalue().encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.readers.delimited_rows.BATCH_BYTES", portion_bytes)
        kept, rejected = read_file(path, IngestConfig(inputs=("x",)))
    expected = [(name, text) for name, text in rows if text.strip()]
    assert [text for _, text in kept] == [text for _, text in expected]
    assert [name for name, _ in kept if not name.startswith(path.name)] == [n for n, _ in expected if n]
    assert [reason for _, reason, _ in rejected] == ["empty"] * (len(rows) - len(expected))
