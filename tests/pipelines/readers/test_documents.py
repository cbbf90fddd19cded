"""Whatever the layout: bounded memory, batches, compressed and damaged files."""

import bz2
import gzip
import json
import lzma
import os
import re
from dataclasses import replace

import pyarrow as pa
import pytest
import zstandard

from pipelines.readers import read_documents
from pipelines.readers.batches import BATCH_BYTES
from pipelines.readers.lines import LineBlock, LongLine, read_lines
from pipelines.reads import ReadDescriptor, ReadPiece
from schemas.configs import IngestConfig, VocabConfig
from schemas.documents import DOCUMENT_SCHEMA
from schemas.errors import ClozelineError
from tests.pipelines.readers.reading import read_pieces, read_range, reasons


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


def write_jsonl(path, num_lines):
    path.write_bytes(b'{"text": "One two."}\n' * num_lines)


@pytest.mark.parametrize("num_lines", [5, 7, 20])
@pytest.mark.parametrize("start", [0, 63])
def test_a_file_that_changed_since_it_was_listed_is_an_error_that_names_it(tmp_path, num_lines, start):
    path = tmp_path / "a.jsonl"
    write_jsonl(path, 6)
    piece = ReadPiece(str(path), "jsonl", None, start, 126, 126)
    write_jsonl(path, num_lines)
    message = f"{path} was changed while it was read: it had 126 bytes, now {21 * num_lines}\n"
    with pytest.raises(ClozelineError, match=re.escape(message)):
        read_pieces(IngestConfig(inputs=("x",)), piece)


def test_a_change_is_named_where_it_made_the_file_unreadable(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    content = gzip.compress(b'{"text": "One."}\n')
    path.write_bytes(content[:-1])
    piece = ReadPiece(str(path), "jsonl", "gzip", 0, None, len(content))
    with pytest.raises(ClozelineError, match=rf"a\.jsonl\.gz was changed .* had {len(content)} bytes"):
        read_pieces(IngestConfig(inputs=("x",)), piece)


def test_a_file_that_vanishes_before_its_end_was_read_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "a.jsonl"
    write_jsonl(path, 400_000)
    read = ReadDescriptor((ReadPiece(str(path), "jsonl", None, 0, None, path.stat().st_size),), 0)
    batches = read_documents(read, IngestConfig(inputs=("x",)))
    next(batches)
    path.unlink()
    with pytest.raises(ClozelineError, match=r"can't read .*a\.jsonl: No such file"):
        list(batches)
