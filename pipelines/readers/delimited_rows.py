r"""Cutting a stream of separated values (CSV, TSV) into rows.

In: a stream of bytes and the separator. Out: rows with their offsets. The grammar is that of RFC 4180, with
`\n` as a line end beside `\r\n`: a field that begins with a quotation mark ends at the next one that is not
doubled, and holds separators and line ends as text; in any other field a quotation mark is text.
Deterministic: rows follow from the bytes alone, not from the portions in which they come.

A row of a known number of fields is matched by one regular expression. What it does not match, which is a
malformed row or one that the portion at hand doesn't hold whole, is scanned field by field, across portions.

Memory is bounded by a portion and by the longest row that is allowed; a longer row is passed over. A
quotation mark that is never closed would take the rest of the file with it: behind `QUOTE_PATIENCE_BYTES`, or
the longest allowed row if that is more, a row ends at the next line end, quoted or not.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import BinaryIO

from pipelines.readers.batches import BATCH_BYTES
from pipelines.readers.lines import BYTE_ORDER_MARK
from pipelines.readers.streams import read_fully

QUOTE_PATIENCE_BYTES = 1 << 26
"""No less than `BATCH_BYTES`, so that what a regular expression matches within a portion is within it too."""

_QUOTE = ord('"')
_BLANK_LINES = re.compile(rb"(?:\r?+\n)++")


@dataclass(frozen=True, slots=True)
class Row:
    """A row that was scanned field by field.

    Attributes:
        offset: of the first byte in the (decompressed) file.
        content: without the line feed at its end; None where it is longer than allowed.
        num_fields: how many fields it has, where `problem` is None.
        problem: what is wrong with its quotation marks, in words.
    """

    offset: int
    content: bytes | None
    num_fields: int
    problem: str | None


class RowStream:
    """Takes rows from a stream, in order.

    Args:
        stream: stands at the beginning of the file. A byte-order mark is dropped.
        separator: one byte.
        max_row_bytes: content of a longer row is not kept.
    """

    def __init__(self, stream: BinaryIO, separator: bytes, max_row_bytes: int) -> None:
        self._stream = stream
        self._separator = separator
        self._max_row_bytes = max_row_bytes
        self._offset = 0
        self._portion = b""
        self._position = 0
        self._refill()
        if self._portion.startswith(BYTE_ORDER_MARK):
            self._position = len(BYTE_ORDER_MARK)

    def take_matches(self, pattern: re.Pattern[bytes]) -> Iterator[tuple[int, re.Match[bytes]]]:
        """The next rows, with their offsets, as far as the portion at hand holds them and a pattern matches.

        Args:
            pattern: matches a whole row and its line end (see `row_pattern`).
        """
        portion, offset = self._portion, self._offset
        while match := pattern.match(portion, self._position):
            yield offset + self._position, match
            self._position = match.end()

    def take_row(self) -> Row | None:
        """The next row, well-formed or not, but for blank lines; None at the end of the file."""
        while True:
            blank_lines = _BLANK_LINES.match(self._portion, self._position)
            self._position = blank_lines.end() if blank_lines else self._position
            if self._position == len(self._portion):
                if not self._refill():
                    return None
            elif (row := self._scan_row()).content not in (b"", b"\r") or row.problem is not None:
                return row

    def _scan_row(self) -> Row:
        offset = self._offset + self._position
        scan = _RowScan(self._separator, max(self._max_row_bytes, QUOTE_PATIENCE_BYTES))
        parts: list[bytes] = []
        num_bytes = 0
        while True:
            end = scan.scan(self._portion, self._position)
            num_bytes += end - self._position
            if num_bytes <= self._max_row_bytes + len(b"\r\n"):
                parts.append(self._portion[self._position : end])
            else:
                parts.clear()
            self._position = end
            if scan.is_over or not self._refill():
                break
        return Row(offset, self._join(parts, num_bytes), scan.num_fields, scan.describe_problem(offset))

    def _join(self, parts: list[bytes], num_bytes: int) -> bytes | None:
        content = b"".join(parts).removesuffix(b"\n")
        is_kept = num_bytes <= self._max_row_bytes + len(b"\r\n")
        return content if is_kept and len(content.removesuffix(b"\r")) <= self._max_row_bytes else None

    def _refill(self) -> bool:
        self._offset += len(self._portion)
        self._portion = read_fully(self._stream, BATCH_BYTES)
        self._position = 0
        return bool(self._portion)


def row_pattern(separator: bytes, num_fields: int, wanted: Container[int]) -> re.Pattern[bytes]:
    r"""A pattern of one well-formed row and its line end, but for blank lines.

    Args:
        separator: one byte.
        num_fields: in the row.
        wanted: indices of the fields that become groups, in the order of the columns. A group is the field as
            it is stored: with its quotation marks, and with the `\r` of the line end where it is the last
            one and has none.
    """
    parts = [rb"(?!\r?\n)"]
    num_unwanted = 0
    for index in range(num_fields):
        is_last = index == num_fields - 1
        if index not in wanted and not is_last:
            num_unwanted += 1
            continue
        if num_unwanted:
            parts.append(b"(?:%s%s){%d}+" % (_field(separator), separator, num_unwanted))
            num_unwanted = 0
        group = b"(%s)" if index in wanted else b"%s"
        parts.append(group % _field(separator) + (rb"\r?+\n" if is_last else separator))
    return re.compile(b"".join(parts))


def split_row(content: bytes, separator: bytes) -> list[bytes]:
    """The values of the fields of a well-formed row, without its line end."""
    fields = re.findall(b"(%s)(?:%s|\n)" % (_field(separator), separator), content + b"\n")
    return [unquote(field) for field in fields]


def unquote(field: bytes) -> bytes:
    """The value of a field as it is stored."""
    if field.startswith(b'"'):
        return field[1:-1].replace(b'""', b'"')
    return field


def _field(separator: bytes) -> bytes:
    # Possessive throughout: a row that does not match is given up in one pass.
    return rb'(?:"[^"]*+(?:""[^"]*+)*+"|(?:[^"%b\n][^%b\n]*+)?+)' % (separator, separator)


class _State(Enum):
    FIELD_START = auto()
    PLAIN = auto()
    QUOTED = auto()
    QUOTE_IN_QUOTED = auto()
    LINE_END = auto()
    BROKEN = auto()


class _RowScan:
    """Looks for the end of one row, through as many portions as it takes."""

    def __init__(self, separator: bytes, patience: int) -> None:
        self.num_fields = 1
        self.is_over = False
        self._separator = separator[0]
        self._field_end = re.compile(rb"[%b\n]" % separator)
        self._patience = patience
        self._num_bytes = 0
        self._quote_at = 0
        self._junk: tuple[int, bytes] | None = None
        self._state = _State.FIELD_START
        self._gave_up_in_quotes = False

    def scan(self, portion: bytes, position: int) -> int:
        """Go on from a position: where the row is over, or else the end of the portion."""
        origin = position - self._num_bytes
        limit = min(len(portion), origin + self._patience)
        while position < limit and not self.is_over and self._state is not _State.BROKEN:
            position = self._step(portion, position, limit, origin)
        if not self.is_over and position - origin >= self._patience and self._state is not _State.BROKEN:
            self._gave_up_in_quotes = self._state is _State.QUOTED
            self._state = _State.BROKEN
        if not self.is_over and self._state is _State.BROKEN:
            line_end = portion.find(b"\n", position)
            self.is_over = line_end >= 0
            position = line_end + 1 if self.is_over else len(portion)
        self._num_bytes = position - origin
        return position

    def describe_problem(self, offset: int) -> str | None:
        """What is wrong with the quotation marks of the row that began at an offset, if anything."""
        if self._junk is not None:
            position, found = self._junk
            return (
                f"byte offset {offset + position}: expected a separator or the end of the line behind a "
                f"closing quotation mark, found {found!r}"
            )
        if self._gave_up_in_quotes or self._state is _State.QUOTED:
            return (
                f"byte offset {offset + self._quote_at}: the quotation mark is not closed in the "
                f"{self._num_bytes - self._quote_at} bytes up to byte offset {offset + self._num_bytes}"
            )
        return None

    def _step(self, portion: bytes, position: int, limit: int, origin: int) -> int:
        """Go on to the next change of state, or to a limit."""
        byte = portion[position]
        match self._state:
            case _State.FIELD_START if byte == _QUOTE:
                self._quote_at = position - origin
                self._state = _State.QUOTED
                return position + 1
            case _State.QUOTED:
                quote = portion.find(b'"', position, limit)
                if quote < 0:
                    return limit
                self._state = _State.QUOTE_IN_QUOTED
                return quote + 1
            case _State.QUOTE_IN_QUOTED if byte == _QUOTE:
                self._state = _State.QUOTED
                return position + 1
            case _State.QUOTE_IN_QUOTED if byte == ord("\r"):
                self._state = _State.LINE_END
                return position + 1
            case _State.FIELD_START | _State.PLAIN:
                self._state = _State.PLAIN
                field_end = self._field_end.search(portion, position, limit)
                if field_end is None:
                    return limit
                position = field_end.start()
                byte = portion[position]
        if byte == ord("\n"):
            self.is_over = True
        elif byte == self._separator and self._state is not _State.LINE_END:
            self.num_fields += 1
            self._state = _State.FIELD_START
        else:
            self._junk = (position - origin, bytes([byte]))
            self._state = _State.BROKEN
            return position
        return position + 1
