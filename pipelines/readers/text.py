r"""Plain text in three layouts: a document a file, a document a line, a sentence a line.

In: a file or the range of one. Out: batches of documents, named `<file>:<byte offset>`. Lines end at `\n` or
`\r\n`; a byte-order mark at the start of a file is dropped; other control characters stay, for the tokenizer
drops them. Deterministic: ranges that make up a file give the documents of the file, in order.

In the layout of Google's BERT, a sentence a line, blank lines (of white space in ASCII) stand between
documents. A range owns the documents whose preceding blank line begins in it, and the first range also the
first document: so a reader needs to look forward only, wherever the file was cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pipelines.readers.batches import DocumentBatch, DocumentCollector
from pipelines.readers.lines import BYTE_ORDER_MARK, LineBlock, LongLine, read_lines, seek_offset
from pipelines.readers.pieces import ReadPiece
from pipelines.readers.streams import open_plain, read_fully

_BLANK_LINES_AT_START = re.compile(rb"(?:[ \t\r\f\v]*+\n)++")
_LINE_END_AND_BLANK_LINES = re.compile(rb"\n(?:[ \t\r\f\v]*+\n)++")


def read_text(piece: ReadPiece, max_document_bytes: int) -> Iterator[DocumentBatch]:
    """Read a file as one document.

    Args:
        piece: a whole file.
        max_document_bytes: a longer one is rejected, and not read to its end.

    Raises:
        ClozelineError: the file can't be read.
    """
    collector = DocumentCollector(piece.path, max_document_bytes)
    with open_plain(piece.path, piece.compression) as stream:
        content = read_fully(stream, max_document_bytes + len(BYTE_ORDER_MARK) + 1)
    offset = len(BYTE_ORDER_MARK) if content.startswith(BYTE_ORDER_MARK) else 0
    _collect(collector, content[offset:], offset, collector.name(0))
    yield collector.take()


def read_text_lines(piece: ReadPiece, max_document_bytes: int) -> Iterator[DocumentBatch]:
    """Read the lines that begin in a range, each as a document; a blank line is an empty document.

    Args:
        piece: what to read.
        max_document_bytes: a longer line is rejected.

    Raises:
        ClozelineError: the file can't be read.
    """
    collector = DocumentCollector(piece.path, max_document_bytes)
    with open_plain(piece.path, piece.compression, seek_offset(piece.start)) as stream:
        for block in read_lines(stream, piece.start, piece.end, max_document_bytes):
            if isinstance(block, LongLine):
                collector.reject_too_long(collector.name(block.offset))
                continue
            offset = block.offset
            for line in block.content.removesuffix(b"\n").split(b"\n"):
                collector.add_bytes(collector.name(offset), line.removesuffix(b"\r"), offset)
                offset += len(line) + 1
                if collector.is_full:
                    yield collector.take()
    yield collector.take()


def read_text_sentences(piece: ReadPiece, max_document_bytes: int) -> Iterator[DocumentBatch]:
    r"""Read the documents of a range, each a run of lines; their text keeps one `\n` between lines.

    Args:
        piece: what to read.
        max_document_bytes: a document whose lines are longer together is rejected.

    Raises:
        ClozelineError: the file can't be read.
    """
    collector = DocumentCollector(piece.path, max_document_bytes)
    with open_plain(piece.path, piece.compression, seek_offset(piece.start)) as stream:
        blocks = read_lines(stream, piece.start, piece.end, max_document_bytes, go_on=True)
        for offset, content in _iterate_runs(blocks, piece.start, piece.end, max_document_bytes):
            if content is None:
                collector.reject_too_long(collector.name(offset))
            else:
                _collect(collector, content.rstrip(b"\r\n"), offset, collector.name(offset))
            if collector.is_full:
                yield collector.take()
    yield collector.take()


def _collect(collector: DocumentCollector, content: bytes, offset: int, document_id: str) -> None:
    """Keep a document of several lines, with their ends made alike once its bytes are known to be UTF-8."""
    if b"\r\n" not in content:
        collector.add_bytes(document_id, content, offset)
        return
    if len(content) > collector.max_document_bytes:
        collector.reject_too_long(document_id)
        return
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        collector.reject_encoding(document_id, error, offset)
        return
    collector.add(document_id, text.replace("\r\n", "\n"))


class _Run:
    """The lines of one document, as they come in."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._num_bytes = 0
        self._offset = 0

    def extend(self, offset: int, part: bytes) -> None:
        if not self._num_bytes:
            self._offset = offset
        self._num_bytes += len(part)
        if self._num_bytes > self._max_bytes + len(b"\r\n"):
            self._parts.clear()
        else:
            self._parts.append(part)

    def exceed(self, offset: int) -> None:
        self.extend(offset, b"\n")
        self._num_bytes += self._max_bytes + len(b"\r\n")
        self._parts.clear()

    @property
    def is_too_long(self) -> bool:
        return self._num_bytes > self._max_bytes + len(b"\r\n")

    def close(self) -> Iterator[tuple[int, bytes | None]]:
        if self._num_bytes:
            yield self._offset, None if self.is_too_long else b"".join(self._parts)
        self._parts, self._num_bytes = [], 0


def _iterate_runs(
    blocks: Iterator[LineBlock | LongLine], start: int, end: int | None, max_bytes: int
) -> Iterator[tuple[int, bytes | None]]:
    """The runs of lines between blank ones that a range owns: offset and bytes, None for one too long."""
    run = _Run(max_bytes)
    is_owner = start == 0
    for index, block in enumerate(blocks):
        if index == 0 and start == 0 and end is not None and block.offset > 0:
            # A byte-order mark was dropped: the line behind it begins at 0 all the same.
            end = max(end, block.offset + 1)
        if isinstance(block, LongLine):
            if is_owner:
                run.exceed(block.offset)
            continue
        position = 0
        for line_end, last_blank, next_line in _find_blank_lines(block.content):
            if is_owner and line_end > position:
                run.extend(block.offset + position, block.content[position:line_end])
            yield from run.close()
            if end is not None and block.offset + last_blank >= end:
                return
            is_owner = True
            position = next_line
        next_offset = block.offset + len(block.content)
        if is_owner and len(block.content) > position:
            run.extend(block.offset + position, block.content[position:])
        # Behind the end there is nothing to wait for: no document is open, or one that is lost already.
        if end is not None and next_offset >= end and (not is_owner or run.is_too_long):
            break
    yield from run.close()


def _find_blank_lines(content: bytes) -> Iterator[tuple[int, int, int]]:
    """Runs of blank lines: where the text before ends, where the last of them begins and where it ends."""
    position = 0
    if leading := _BLANK_LINES_AT_START.match(content):
        position = leading.end()
        yield 0, content.rfind(b"\n", 0, position - 1) + 1, position
    # One that begins with a line break is found many times faster than one that begins with a `^`.
    for blanks in _LINE_END_AND_BLANK_LINES.finditer(content, position):
        yield blanks.start() + 1, content.rfind(b"\n", 0, blanks.end() - 1) + 1, blanks.end()
    last_line = content.rfind(b"\n") + 1
    if last_line < len(content) and content[last_line:].isspace():
        yield last_line, last_line, len(content)
