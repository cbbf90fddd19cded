"""JSON lines: an object a line, its text under one key.

In: a file or the range of one. Out: batches of documents. A line is read and judged alone: a damaged one is
rejected and the next one kept. Blank lines are no documents. Deterministic: ranges that make up a file give
the documents of the file, in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import orjson

from pipelines.readers.batches import DocumentBatch, DocumentCollector
from pipelines.readers.delimited import list_names
from pipelines.readers.lines import BYTE_ORDER_MARK, LongLine, read_lines, seek_offset
from pipelines.readers.pieces import ReadPiece
from pipelines.readers.streams import open_plain
from pipelines.rejections import INVALID_JSON, MISSING_TEXT
from schemas.errors import ClozelineError

_ARRAY_OF_OBJECTS = re.compile(rb"\s*\[\s*(\{|\Z)")
_PEEK_BYTES = 4096


def read_jsonl(
    piece: ReadPiece, text_field: str, id_field: str, max_document_bytes: int
) -> Iterator[DocumentBatch]:
    """Read the lines that begin in a range.

    Args:
        piece: what to read.
        text_field: key of the text, a string.
        id_field: key of the identifier, a string or an integer; `<file>:<byte offset>` where it is neither.
        max_document_bytes: a line of more bytes, as it is stored, is rejected.

    Raises:
        ClozelineError: the file can't be read, or is one array of objects.
    """
    collector = DocumentCollector(piece.path, max_document_bytes)
    with open_plain(piece.path, piece.compression, seek_offset(piece.start)) as stream:
        for block in read_lines(stream, piece.start, piece.end, max_document_bytes):
            if block.offset <= len(BYTE_ORDER_MARK):
                _refuse_array(piece, None if isinstance(block, LongLine) else block.content)
            if isinstance(block, LongLine):
                collector.reject_too_long(collector.name(block.offset))
                continue
            offset = block.offset
            for line in block.content.split(b"\n"):
                if line:  # a gigabyte of line breaks must not become as many exceptions
                    _collect(collector, line, offset, text_field, id_field)
                offset += len(line) + 1
                if collector.is_full:
                    yield collector.take()
    yield collector.take()


def _refuse_array(piece: ReadPiece, first_lines: bytes | None) -> None:
    """Raise ClozelineError for a file whose lines are parts of one array; `first_lines` None: a long one."""
    if first_lines is None:
        with open_plain(piece.path, piece.compression) as stream:
            first_lines = stream.read(_PEEK_BYTES).removeprefix(BYTE_ORDER_MARK)
    if _ARRAY_OF_OBJECTS.match(first_lines[:_PEEK_BYTES].partition(b"\n")[0]):
        raise ClozelineError(
            f"{piece.path} holds one JSON array; expected an object on each line\n"
            "Make it so with `jq -c '.[]' FILE > FILE.jsonl`."
        )


def _collect(collector: DocumentCollector, line: bytes, offset: int, text_field: str, id_field: str) -> None:
    if len(line) > collector.max_document_bytes:
        collector.reject_too_long(collector.name(offset))
        return
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        if line.strip():
            _reject_malformed(collector, line, offset, str(error))
        return
    if not isinstance(record, dict):
        found = type(record).__name__
        collector.reject(
            collector.name(offset), INVALID_JSON, f"expected an object on the line, found {found}"
        )
        return
    document_id = record.get(id_field)
    if type(document_id) is int:
        document_id = str(document_id)
    elif type(document_id) is not str or not document_id:
        document_id = collector.name(offset)
    text = record.get(text_field)
    if type(text) is str:
        collector.add(document_id, text)
    else:
        found = f"is {type(text).__name__}; expected a string"
        if text_field not in record:
            found = f"is absent; the keys are {list_names(list(record)) or 'none'}"
        collector.reject(document_id, MISSING_TEXT, f"{text_field!r} {found}")


def _reject_malformed(collector: DocumentCollector, line: bytes, offset: int, error: str) -> None:
    try:
        line.decode()
    except UnicodeDecodeError as encoding_error:
        collector.reject_encoding(collector.name(offset), encoding_error, offset)
    else:
        collector.reject(collector.name(offset), INVALID_JSON, error)
