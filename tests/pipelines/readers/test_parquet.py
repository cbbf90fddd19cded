import os
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.readers import read_documents
from pipelines.readers.parquet import read_row_group_sizes
from pipelines.reads import ReadDescriptor, ReadPiece, split_into_reads
from pipelines.storage import FileEntry
from schemas.configs import IngestConfig
from schemas.errors import ClozelineError

CONFIG = IngestConfig(inputs=("x",))


def write(path, columns, **options):
    pq.write_table(pa.table(columns), path, **options)
    return str(path)


def read(path, start=0, end=None, config=CONFIG):
    descriptor = ReadDescriptor((ReadPiece(path, "parquet", None, start, end, os.path.getsize(path)),), 0)
    kept, rejected = [], []
    for batch in read_documents(descriptor, config):
        kept += zip(batch.table["document_id"].to_pylist(), batch.table["text"].to_pylist(), strict=True)
        rejected += [(r.document_id, r.reason, r.detail) for r in batch.rejected]
    return kept, rejected


def test_rows_are_documents(tmp_path):
    path = write(
        tmp_path / "a.parquet", {"id": ["x", None, ""], "text": ["One.", "Two é.", "Three."], "n": [1, 2, 3]}
    )
    assert read(path) == ([("x", "One."), (f"{path}:1", "Two é."), (f"{path}:2", "Three.")], [])


@pytest.mark.parametrize(
    "text_type",
    [
        pa.string(),
        pa.large_string(),
        pa.binary(),
        pa.large_binary(),
        pa.string_view(),
        pa.binary_view(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.dictionary(pa.int32(), pa.binary()),
    ],
    ids=str,
)
def test_every_type_of_string_is_read(tmp_path, text_type):
    path = write(tmp_path / "a.parquet", {"text": pa.array(["One.", None, "Two."]).cast(text_type)})
    kept, rejected = read(path)
    assert kept == [(f"{path}:0", "One."), (f"{path}:2", "Two.")]
    assert rejected == [(f"{path}:1", "missing_text", "'text' is null; expected a string")]


def test_integers_are_identifiers(tmp_path):
    path = write(tmp_path / "a.parquet", {"id": [7, None], "text": ["One.", "Two."]})
    assert [name for name, _ in read(path)[0]] == ["7", f"{path}:1"]


def test_other_columns_are_no_identifiers(tmp_path):
    path = write(tmp_path / "a.parquet", {"id": [0.5], "text": ["One."]})
    assert [name for name, _ in read(path)[0]] == [f"{path}:0"]


def test_documents_are_rejected_one_by_one(tmp_path):
    texts = pa.array([b"One.", b"caf\xe9", b"", b"x" * 101, b"Two."]).view(pa.string())
    path = write(tmp_path / "a.parquet", {"text": texts})
    kept, rejected = read(path, config=IngestConfig(inputs=("x",), max_document_bytes=100))
    assert [text for _, text in kept] == ["One.", "Two."]
    assert rejected == [
        (f"{path}:1", "invalid_utf8", f"{path}:1, byte 3 of its text: 0xe9: unexpected end of data"),
        (f"{path}:2", "empty", "no character but white space"),
        (f"{path}:3", "too_long", "longer than 100 bytes"),
    ]


def test_ranges_of_row_groups_give_the_rows_of_the_file(tmp_path):
    path = write(tmp_path / "a.parquet", {"text": [f"Text {i}." for i in range(25)]}, row_group_size=4)
    whole, _ = read(path)
    assert whole == [(f"{path}:{i}", f"Text {i}.") for i in range(25)]
    for cut in range(8):
        assert read(path, 0, cut)[0] + read(path, cut, 7)[0] == whole


def test_splitting_goes_by_row_groups(tmp_path):
    path = write(tmp_path / "a.parquet", {"text": [f"Text {i}." for i in range(24)]}, row_group_size=4)
    sizes = read_row_group_sizes(path)
    assert len(sizes) == 6
    file = FileEntry(path, (tmp_path / "a.parquet").stat().st_size)
    reads = split_into_reads([file], CONFIG, 2 * max(sizes))
    assert [(piece.start, piece.end) for read in reads for piece in read.pieces] == [(0, 2), (2, 4), (4, 6)]
    assert [read.size_bytes for read in reads] == [sum(sizes[i : i + 2]) for i in (0, 2, 4)]
    assert [(r.pieces[0].start, r.pieces[0].end) for r in split_into_reads([file], CONFIG, 1)] == [
        (i, i + 1) for i in range(6)
    ]


def test_a_file_without_rows_has_no_documents(tmp_path):
    path = write(tmp_path / "a.parquet", {"text": pa.array([], pa.string())})
    file = FileEntry(path, os.path.getsize(path))
    assert [batch for r in split_into_reads([file], CONFIG, 100) for batch in read_documents(r, CONFIG)] == []


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"body": ["a"], "url": ["b"]}, "has no column 'text'; its columns are body, url\n"),
        ({"text": [1]}, "column 'text' holds int64; expected strings\n"),
    ],
    ids=["absent", "numbers"],
)
def test_a_wrong_text_column_is_an_error(tmp_path, columns, message):
    path = write(tmp_path / "a.parquet", columns)
    with pytest.raises(ClozelineError, match=re.escape(message)) as caught:
        read(path)
    assert path in str(caught.value)
    assert "--text-field" in str(caught.value)


@pytest.mark.parametrize(("field", "option"), [("text", "--text-field"), ("id", "--id-field")])
def test_two_columns_of_one_name_are_an_error_that_names_the_option(tmp_path, field, option):
    columns = {name: pa.array(["a"]) for name in ("text", "id")}
    table = pa.Table.from_arrays([*columns.values(), pa.array(["b"])], names=[*columns, field])
    path = str(tmp_path / "a.parquet")
    pq.write_table(table, path)
    with pytest.raises(
        ClozelineError, match=rf"a\.parquet has 2 columns '{field}'; expected one\n.*{option}"
    ):
        read(path)


@pytest.mark.parametrize("size", [0, 50, -10])
def test_a_damaged_file_is_an_error_that_names_it(tmp_path, size):
    path = write(tmp_path / "a.parquet", {"text": ["One."] * 100})
    content = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(content[:size])
    with pytest.raises(ClozelineError, match=r"a\.parquet can't be read as Parquet: "):
        read(path)
    with pytest.raises(ClozelineError, match=r"a\.parquet can't be read as Parquet: "):
        split_into_reads([FileEntry(path, 1)], CONFIG, 100)
