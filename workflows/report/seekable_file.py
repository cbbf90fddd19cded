"""A file that Arrow can jump about in, wherever it lies.

In: a URL and the size of the file. Out: an object with `read` and `seek`. It stands on the trainer's stream,
which refuses what is no place for data and tries a failed read again.
"""

from __future__ import annotations

import io

from trainer.data.opener import ByteStream


class SeekableFile(io.RawIOBase):
    """A file of known size, read piece by piece.

    Args:
        url: where it lies.
        size: its size in bytes.
    """

    def __init__(self, url: str, size: int) -> None:
        super().__init__()
        self._url = url
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """The offset of the next byte."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to an offset from the start, from here or from the end."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int = -1) -> bytes:
        """The next `size` bytes, or all that are left."""
        left = max(0, self._size - self._position)
        with ByteStream(self._url, offset=self._position) as stream:
            content = stream.read(left if size < 0 else min(size, left))
        self._position += len(content)
        return content
