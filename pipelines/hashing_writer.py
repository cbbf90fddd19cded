"""Write a file and know its size and SHA-256, without reading it again.

In: bytes. Out: the same bytes on another stream, and a `WrittenFile`. Deterministic: both follow from the
bytes.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from typing import Any, BinaryIO

from schemas.errors import ClozelineError


@dataclass(frozen=True, kw_only=True)
class WrittenFile:
    """A file of a finished piece; `name` is relative to the output folder."""

    name: str
    sha256: str
    size_bytes: int


class HashingWriter(io.RawIOBase):
    """A binary stream that passes everything on and knows the SHA-256 and the size of what went through.

    Args:
        stream: where the bytes go.
        path: what the file will be called, for the message when the file system refuses.
    """

    def __init__(self, stream: BinaryIO, path: str) -> None:
        super().__init__()
        self._stream = stream
        self._path = path
        self._hash = hashlib.sha256()
        self.size_bytes = 0

    @property
    def sha256(self) -> str:
        """SHA-256 of everything written so far, in hexadecimal."""
        return self._hash.hexdigest()

    def write(self, content: Any) -> int:
        """Write all of the bytes.

        Raises:
            ClozelineError: the disk is full, …; the message names the file.
        """
        view = memoryview(content).cast("B")
        try:
            self._stream.write(view)
        except OSError as error:
            raise ClozelineError(f"can't write {self._path}: {error.strerror or error}") from error
        self._hash.update(view)
        self.size_bytes += len(view)
        return len(view)

    def writable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The number of bytes written."""
        return self.size_bytes


def describe(name: str, writer: HashingWriter) -> WrittenFile:
    """What was written through a stream of `WorkFolder.write_file`."""
    return WrittenFile(name=name, sha256=writer.sha256, size_bytes=writer.size_bytes)
