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
from collections.abc import Iterator
from typing import BinaryIO, cast

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
        with contextlib.closing(_decompress(stored, compression)) as plain:
            yield plain


def read_fully(stream: BinaryIO, size: int) -> bytes:
    """The next `size` bytes; fewer only at the end, though a stream may give them in small portions."""
    portions: list[bytes] = []
    while size and (portion := stream.read(min(size, _PORTION_BYTES))):
        portions.append(portion)
        size -= len(portion)
    return portions[0] if len(portions) == 1 else b"".join(portions)


def _decompress(stored: BinaryIO, compression: Compression) -> BinaryIO:
    if compression == "gzip":
        return cast("BinaryIO", gzip.GzipFile(fileobj=stored, mode="rb"))
    if compression == "bzip2":
        return cast("BinaryIO", bz2.BZ2File(stored))
    if compression == "xz":
        return cast("BinaryIO", lzma.LZMAFile(stored))
    # The stream reader of `zstandard` takes a truncated frame for a whole one; Arrow's does not.
    return cast("BinaryIO", pa.CompressedInputStream(pa.PythonFile(stored, mode="r"), "zstd"))


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
