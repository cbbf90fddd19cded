r"""Cutting a stream into blocks of whole lines.

In: a stream of bytes and the range of offsets whose lines are wanted. Out: blocks of whole lines, each with
the offset of its first byte. A line ends at `\n` or at the end of the file and nowhere else: U+2028, a lone
`\r` and other characters that Python's `splitlines` cuts at stay inside it. Deterministic: the lines of
[0, a), [a, b), … put together are those of the whole file.

Memory is bounded by a block and by the longest line that is allowed: a longer one is skipped chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from pipelines.readers.batches import BATCH_BYTES
from pipelines.readers.streams import read_fully

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Whole lines with their terminators; the last line of a file may have none.

    Attributes:
        offset: of the first byte in the (decompressed) file.
        content: of about `BATCH_BYTES`, or one longer line. It is never empty.
    """

    offset: int
    content: bytes


@dataclass(frozen=True, slots=True)
class LongLine:
    """A line that outgrew a block and the allowed length; its bytes were skipped."""

    offset: int


def seek_offset(start: int) -> int:
    """Where a stream must stand to read the lines that begin at `start` or later.

    Whether a line begins at `start` itself shows in the byte before it.
    """
    return max(start - 1, 0)


def read_lines(
    stream: BinaryIO, start: int, end: int | None, max_line_bytes: int, *, go_on: bool = False
) -> Iterator[LineBlock | LongLine]:
    """The lines that begin in [start, end), in order.

    Args:
        stream: stands at `seek_offset(start)`. A byte-order mark at offset 0 is dropped.
        start: offset in bytes.
        end: offset in bytes; None reads to the end of the file.
        max_line_bytes: a longer line need not be given whole. Lines within a block may be longer still: only
            memory is bounded here.
        go_on: give the lines behind `end` too, once a line began before it.
    """
    offset = seek_offset(start)
    if start > 0:
        offset, rest = _skip_line(stream, offset, end)
    else:
        rest = _read_chunk(stream)
        if rest.startswith(BYTE_ORDER_MARK):
            rest = rest[len(BYTE_ORDER_MARK) :]
            offset = len(BYTE_ORDER_MARK)
            # The first line begins with the mark, so at 0, which may be all of a tiny range.
            end = None if end is None else max(end, offset + 1)
    if end is not None and offset >= end:
        return
    last = None if go_on else end
    while last is None or offset < last:
        content, num_bytes, rest = _take_lines(stream, rest, max(max_line_bytes, BATCH_BYTES))
        if content is None:
            yield LongLine(offset)
            offset, rest = _skip_line(stream, offset + num_bytes, last)
        elif not content:
            return
        else:
            if last is not None and offset + num_bytes > last:
                content = content[: content.find(b"\n", last - 1 - offset) + 1] or content
            yield LineBlock(offset, content)
            offset += len(content)


def _take_lines(stream: BinaryIO, rest: bytes, limit: int) -> tuple[bytes | None, int, bytes]:
    """Take whole lines that begin with `rest`.

    Returns:
        The lines, empty at the end of the file and None where a line outgrew the limit; their number of
        bytes; and what was read of the bytes after them.
    """
    pending: list[bytes] = []
    num_bytes = 0
    chunk = rest or _read_chunk(stream)
    while chunk:
        newline = chunk.rfind(b"\n")
        if newline >= 0:
            pending.append(chunk[: newline + 1])
            return b"".join(pending), num_bytes + newline + 1, chunk[newline + 1 :]
        pending.append(chunk)
        num_bytes += len(chunk)
        if num_bytes > limit:
            return None, num_bytes, b""
        chunk = _read_chunk(stream)
    return b"".join(pending), num_bytes, b""


def _skip_line(stream: BinaryIO, offset: int, end: int | None) -> tuple[int, bytes]:
    """Skip to the next beginning of a line, or to any offset from `end` on where no wanted line can begin.

    Returns:
        The offset, and what was read of the bytes that follow it.
    """
    chunk = b""
    while (newline := chunk.find(b"\n")) < 0:
        offset += len(chunk)
        chunk = b"" if end is not None and offset >= end else _read_chunk(stream)
        if not chunk:
            return offset, b""
    return offset + newline + 1, chunk[newline + 1 :]


def _read_chunk(stream: BinaryIO) -> bytes:
    return read_fully(stream, BATCH_BYTES)
