"""How many bytes of text the stored bytes of a file give, without reading all of it.

In: a compressed or a Parquet file. Out: a ratio. Deterministic.
"""

from __future__ import annotations

import contextlib
import io
import lzma
import zlib

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import storage
from pipelines.readers.pieces import Compression, ReadPiece
from pipelines.readers.streams import decompress, read_fully

HEAD_BYTES = 1 << 20
"""Stored bytes that are looked at: more than a block of bzip2, of at most 900 kB, takes."""

# What was decompressed and not yet handed over is lost where the head ends, so little is asked for at a time.
_PORTION_BYTES = 1 << 16


def measure_expansion(piece: ReadPiece, text_field: str) -> float | None:
    """Plain bytes (of a Parquet file: those of the text) for each stored byte; None where nothing tells.

    A compressed file is judged by its head, a Parquet file by its footer.

    Raises:
        ClozelineError: the file can't be opened.
    """
    if piece.compression is not None:
        return _measure_head(piece.path, piece.compression)
    if piece.format == "parquet":
        return _measure_footer(piece.path, text_field)
    return 1.0


def _measure_head(path: str, compression: Compression) -> float | None:
    with storage.open_read(path) as stored:
        head = read_fully(stored, HEAD_BYTES)
    num_plain = 0
    # The head ends in the middle; a file that is damaged is an error when it is read.
    with (
        contextlib.suppress(EOFError, OSError, zlib.error, lzma.LZMAError),
        contextlib.closing(decompress(io.BytesIO(head), compression)) as plain,
    ):
        while portion := plain.read(_PORTION_BYTES):
            num_plain += len(portion)
    return num_plain / len(head) if num_plain else None


def _measure_footer(path: str, text_field: str) -> float | None:
    num_stored = num_text = 0
    with storage.open_read(path) as stored:
        try:
            metadata = pq.ParquetFile(stored).metadata
        except (pa.ArrowInvalid, OSError):
            return None
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            num_stored += column.total_compressed_size
            num_text += column.total_uncompressed_size if column.path_in_schema == text_field else 0
    return num_text / num_stored if num_text else None
