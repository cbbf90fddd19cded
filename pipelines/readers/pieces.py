"""What one worker reads: values that travel between workers in place of the text itself.

Deterministic: a read's name follows from what it reads, so that a piece of work done before is recognised.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

DocumentFormat = Literal["text", "text-lines", "text-sentences", "jsonl", "parquet", "csv", "tsv"]
Compression = Literal["gzip", "bzip2", "zstd", "xz"]


@dataclass(frozen=True)
class ReadPiece:
    """A file or a part of one.

    Attributes:
        path: the file.
        format: how its documents are laid out; never `auto`.
        compression: None for a plain file. Parquet compresses inside and counts as plain.
        start: first byte, or first row group of a Parquet file.
        end: one past the last byte or row group; None reads to the end of the file.
        file_size: stored bytes of the whole file.
    """

    path: str
    format: DocumentFormat
    compression: Compression | None
    start: int
    end: int | None
    file_size: int


@dataclass(frozen=True)
class ReadDescriptor:
    """What one worker reads in one go: a part of one file, or several small files, in order."""

    pieces: tuple[ReadPiece, ...]
    size_bytes: int
    """Stored bytes to read, about; reads are dealt largest first."""

    @property
    def name(self) -> str:
        """16 hexadecimal digits that are the same whenever the same bytes are read the same way."""
        digest = hashlib.sha256()
        for piece in self.pieces:
            fields = (piece.path, piece.file_size, piece.start, piece.end, piece.format, piece.compression)
            digest.update(repr(fields).encode() + b"\n")
        return digest.hexdigest()[:16]

    @property
    def path(self) -> str:
        """The first file, for messages."""
        return self.pieces[0].path
