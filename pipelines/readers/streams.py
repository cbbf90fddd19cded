"""Opening a file as a stream of its plain bytes.

In: a path, a compression, an offset. Out: a stream to read forward from. Memory is bounded by the portion
that is asked for, whatever the compression ratio. A file that ends too early or is damaged is an error that
names it, never a shorter corpus.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

import pyarrow as pa

from pipelines import storage
from pipelines.readers.pieces import Compression
from schemas.errors import ClozelineError

_PORTION_BYTES = 1 << 21


@contextlib.contextmanager
def open_plain(path: str, compression: Compression | None, offset: int = 0) -> Iterator[BinaryIO]:
    """Open a file for reading what was compressed in it.

    Args:
        path: the file.
        compression: None reads the stored bytes.
        offset: where to begin; only for a file that is not compressed.

    Raises:
        ClozelineError: on opening or within the block: the file can't be read, is truncated or damaged.
    """
    with storage.open_read(path, offset) as stored, _explained(path, compression):
        if compression is None:
            yield stored
            return
        if not stored.read(1):
            raise EOFError  # a compressed file of nothing has a few bytes all the same
        stored.seek(0)
        with contextlib.closing(decompress(stored, compression)) as plain:
            yield plain


def read_fully(stream: BinaryIO, size: int) -> bytes:
    """The next `size` bytes; fewer only at the end, though a stream may give them in small portions."""
    portions: list[bytes] = []
    while size and (portion := stream.read(min(size, _PORTION_BYTES))):
        portions.append(portion)
        size -= len(portion)
    return portions[0] if len(portions) == 1 else b"".join(portions)


def decompress(stored: BinaryIO, compression: Compression) -> BinaryIO:
    """The plain bytes of a compressed stream; reading them raises where it ends too early or is damaged."""
    if compression == "gzip":
        return cast("BinaryIO", gzip.GzipFile(fileobj=stored, mode="rb"))
    if compression == "bzip2":
        return cast("BinaryIO", _JoinedStreams(stored, bz2.BZ2Decompressor))
    if compression == "xz":
        return cast("BinaryIO", _JoinedStreams(stored, lzma.LZMADecompressor))
    # The stream reader of `zstandard` takes a truncated frame for a whole one; Arrow's does not.
    return cast("BinaryIO", pa.CompressedInputStream(pa.PythonFile(stored, mode="r"), "zstd"))


class _JoinedStreams:
    """The plain bytes of compressed streams one after another, with padding of zeros between them or not.

    `BZ2File` and `LZMAFile` take whatever follows the first stream and is no other for garbage and pass over
    it: one wrong byte where the second stream begins, and all but the first are lost without a word.
    """

    def __init__(self, stored: BinaryIO, make_decompressor: Callable[[], Any]) -> None:
        self._stored = stored
        self._make = make_decompressor
        self._decompressor = make_decompressor()

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; none only at the end."""
        while True:
            portion = b""
            if self._decompressor.eof:
                portion = self._find_next_stream()
                if not portion:
                    return b""
                self._decompressor = self._make()
            elif self._decompressor.needs_input:
                portion = self._stored.read(_PORTION_BYTES)
                if not portion:
                    raise EOFError
            plain: bytes = self._decompressor.decompress(portion, size)
            if plain:
                return plain

    def _find_next_stream(self) -> bytes:
        portion: bytes = self._decompressor.unused_data
        while not (portion := portion.lstrip(b"\0")):
            portion = self._stored.read(_PORTION_BYTES)
            if not portion:
                break
        return portion

    def close(self) -> None:
        """Nothing of its own to close."""


@contextlib.contextmanager
def _explained(path: str, compression: Compression | None) -> Iterator[None]:
    try:
        yield
    except EOFError as error:
        raise _truncated(path, compression) from error
    except (OSError, zlib.error, lzma.LZMAError) as error:
        if compression is None:
            raise ClozelineError(f"can't read {path}: {error}") from error
        if "Truncated" in str(error):
            raise _truncated(path, compression) from error
        raise ClozelineError(
            f"{path} is no valid {compression} file: {error}\n"
            "Check it (was it damaged on the way?) or leave it out."
        ) from error


def _truncated(path: str, compression: Compression | None) -> ClozelineError:
    return ClozelineError(
        f"{path} is truncated: its {compression} data ends too early\nFetch it again or leave it out."
    )
