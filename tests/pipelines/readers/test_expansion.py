from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from pipelines.readers import expansion
from pipelines.readers.expansion import measure_expansion
from pipelines.readers.parquet import read_row_group_sizes
from pipelines.readers.pieces import Compression, DocumentFormat, ReadPiece
from schemas.errors import ClozelineError

COMPRESS: dict[Compression, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": partial(lzma.compress, preset=0),
    "zstd": zstandard.ZstdCompressor().compress,
}


def make_text(num_bytes: int) -> bytes:
    """Random letters of a small alphabet, which every method compresses to about a third."""
    return np.random.default_rng(0).choice(np.frombuffer(b"abcdefg ", np.uint8), num_bytes).tobytes()


def make_piece(
    path: Path, compression: Compression | None, document_format: DocumentFormat = "text-lines"
) -> ReadPiece:
    return ReadPiece(str(path), document_format, compression, 0, None, path.stat().st_size)


@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize("num_bytes", [1, 10_000, 4_000_000], ids=["tiny", "whole", "head"])
def test_a_compressed_file(tmp_path: Path, compression: Compression, num_bytes: int) -> None:
    text = make_text(num_bytes)
    path = tmp_path / "x"
    path.write_bytes(COMPRESS[compression](text))

    found = measure_expansion(make_piece(path, compression), "text")

    # Of a head, what is still in a block is missing: up to 900 kB of plain bytes.
    assert found == pytest.approx(num_bytes / path.stat().st_size, rel=0.4 if num_bytes > 10_000 else 1e-9)


def test_no_more_than_a_head_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "HEAD_BYTES", 30_000)
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(make_text(200_000)) + gzip.compress(b" " * 50_000_000))

    found = measure_expansion(make_piece(path, "gzip"), "text")

    assert found is not None
    assert 2 < found < 4


@pytest.mark.parametrize("content", [b"", b"no such format"], ids=["empty", "damaged"])
@pytest.mark.parametrize("compression", COMPRESS)
def test_what_cannot_be_decompressed_tells_nothing(
    tmp_path: Path, compression: Compression, content: bytes
) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)

    assert measure_expansion(make_piece(path, compression), "text") is None


def test_of_a_parquet_file_the_text_counts(tmp_path: Path) -> None:
    rows = [make_text(2_000)[index:].decode() for index in range(1_000)]
    table = pa.table({"text": rows, "other": np.random.default_rng(1).random(50_000)[:1_000]})
    pq.write_table(table, tmp_path / "x", row_group_size=300, use_dictionary=False, compression="zstd")
    piece = make_piece(tmp_path / "x", None, "parquet")

    found = measure_expansion(piece, "text")

    assert found is not None
    # Of the bytes that reads of the file count for.
    assert found * sum(read_row_group_sizes(piece.path)) == pytest.approx(sum(map(len, rows)), rel=0.05)
    assert measure_expansion(piece, "body") is None


def test_a_file_that_is_no_parquet_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"PAR1 not really")

    assert measure_expansion(make_piece(tmp_path / "x", None, "parquet"), "text") is None


def test_a_plain_file_is_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"text")

    assert measure_expansion(make_piece(tmp_path / "x", None), "text") == 1.0


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClozelineError, match="nowhere"):
        measure_expansion(ReadPiece(str(tmp_path / "nowhere"), "jsonl", "gzip", 0, None, 9), "text")
