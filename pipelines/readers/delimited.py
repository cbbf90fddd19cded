r"""CSV and TSV: a header row that names the columns, then a document a row, its text in one column.

In: a file. Out: batches of documents. A row is judged alone: a damaged one is rejected and the next one kept.
Blank lines are no rows. Deterministic: documents follow from the bytes of the file.

A file is read whole, by one worker. Whether a byte lies inside a quoted field, which may hold line ends,
depends on every quotation mark before it; a worker that began in the middle would have to guess, and a wrong
guess loses rows or makes them up. A corpus that is to be read in parallel is many files, or Parquet.

Neither of the parsers at hand will do: Arrow's gives no offsets, fails a whole block for one wrong byte and
takes `NULL` and `NA` for missing text; that of the standard library wants decoded text, gives no offsets
either, and takes what stands between a closing quotation mark and the separator for text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pipelines.readers.batches import DocumentBatch, DocumentCollector
from pipelines.readers.delimited_rows import Row, RowStream, row_pattern, split_row, unquote
from pipelines.readers.pieces import ReadPiece
from pipelines.readers.streams import open_plain
from pipelines.rejections import INVALID_CSV
from schemas.errors import ClozelineError

_SEPARATORS = {"csv": b",", "tsv": b"\t"}
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_MAX_NAMES_SHOWN = 20
_MAX_NAME_SHOWN = 40


@dataclass(frozen=True, slots=True)
class _Columns:
    """Where the text and the identifier stand in a row.

    Attributes:
        num_columns: of the header.
        pattern: matches a row.
        text_group: its group that is the text.
        text_is_last: whether that is the last column.
        id_group: its group that is the identifier; None where the header has no such column.
        id_is_last: whether that is the last column.
    """

    num_columns: int
    pattern: re.Pattern[bytes]
    text_group: int
    text_is_last: bool
    id_group: int | None
    id_is_last: bool


def read_delimited(
    piece: ReadPiece, text_field: str, id_field: str, max_document_bytes: int
) -> Iterator[DocumentBatch]:
    """Read the rows of a file.

    Args:
        piece: a whole file; its format says the separator.
        text_field: column of the text.
        id_field: column of the identifier; `<file>:<byte offset>` where it is absent or empty. Bytes in it
            that are no UTF-8 are replaced: no identifier is worth a document.
        max_document_bytes: a row of more bytes, as it is stored, is rejected.

    Raises:
        ClozelineError: the file can't be read, or its header has no such text column; columns are named.
    """
    collector = DocumentCollector(piece.path, max_document_bytes)
    separator = _SEPARATORS[piece.format]
    with open_plain(piece.path, piece.compression) as stream:
        rows = RowStream(stream, separator, max_document_bytes)
        columns = _find_columns(
            piece.path, _read_header(piece.path, rows, separator), separator, text_field, id_field
        )
        while True:
            for offset, match in rows.take_matches(columns.pattern):
                _collect(collector, columns, match, offset)
                if collector.is_full:
                    yield collector.take()
            row = rows.take_row()
            if row is None:
                break
            _collect_scanned(collector, columns, row)
            if collector.is_full:
                yield collector.take()
    yield collector.take()


def _collect_scanned(collector: DocumentCollector, columns: _Columns, row: Row) -> None:
    name = collector.name(row.offset)
    if row.problem is not None:
        collector.reject(name, INVALID_CSV, row.problem)
    elif row.content is None:
        collector.reject_too_long(name)
    elif match := columns.pattern.fullmatch(row.content + b"\n"):
        _collect(collector, columns, match, row.offset)
    else:
        detail = f"expected {columns.num_columns} fields as in the header, found {row.num_fields}"
        collector.reject(name, INVALID_CSV, detail)


def _collect(collector: DocumentCollector, columns: _Columns, match: re.Match[bytes], offset: int) -> None:
    if match.end() - match.start() > collector.max_document_bytes:
        row = match[0].removesuffix(b"\n").removesuffix(b"\r")
        if len(row) > collector.max_document_bytes:
            collector.reject_too_long(collector.name(offset))
            return
    document_id = ""
    if columns.id_group is not None:
        document_id = _value(match[columns.id_group], columns.id_is_last).decode(errors="replace")
    document_id = document_id or collector.name(offset)
    stored = match[columns.text_group]
    stored_offset = offset + match.start(columns.text_group) - match.start()
    value = _value(stored, columns.text_is_last)
    if len(value) < len(stored) - 2:
        # Marks were doubled, so that offsets in the value are not those in the file.
        try:
            stored.decode()
        except UnicodeDecodeError as error:
            collector.reject_encoding(document_id, error, stored_offset)
            return
    collector.add_bytes(document_id, value, stored_offset + stored.startswith(b'"'))


def _value(stored: bytes, is_last: bool) -> bytes:
    return unquote(stored.removesuffix(b"\r") if is_last else stored)


def _read_header(path: str, rows: RowStream, separator: bytes) -> list[str]:
    row = rows.take_row()
    if row is None:
        raise ClozelineError(f"{path} is empty; expected a header row that names its columns.")
    if row.content is not None and row.content.startswith(_UTF16_MARKS):
        raise ClozelineError(f"{path} is UTF-16; expected UTF-8\nConvert it: iconv -f UTF-16 -t UTF-8 {path}")
    if row.problem is not None or row.content is None:
        raise ClozelineError(
            f"{path}: its header row can't be read: {row.problem or 'it is too long'}\n"
            "Expected the names of its columns in the first row."
        )
    fields = split_row(row.content.removesuffix(b"\r"), separator)
    return [field.decode(errors="replace") for field in fields]


def _find_columns(path: str, names: list[str], separator: bytes, text_field: str, id_field: str) -> _Columns:
    if text_field not in names:
        raise ClozelineError(
            f"{path} has no column {text_field!r}; its columns are {list_names(names)}\n"
            "Name the one that holds the text with --text-field; if this is no CSV or TSV, see --format."
        )
    for option, field in (("--text-field", text_field), ("--id-field", id_field)):
        if names.count(field) > 1:
            raise ClozelineError(
                f"{path} has {names.count(field)} columns {field!r}; expected one\n"
                f"Rename them, or name another column with {option}."
            )
    text = names.index(text_field)
    identifier = names.index(id_field) if id_field in names else None
    wanted = sorted({text} if identifier is None else {text, identifier})
    last = len(names) - 1
    return _Columns(
        num_columns=len(names),
        pattern=row_pattern(separator, len(names), wanted),
        text_group=wanted.index(text) + 1,
        text_is_last=text == last,
        id_group=None if identifier is None else wanted.index(identifier) + 1,
        id_is_last=identifier == last,
    )


def list_names(names: list[str]) -> str:
    """The first of some names, cut where they are long, and how many more there are."""
    shown = [
        repr(name if len(name) <= _MAX_NAME_SHOWN else name[:_MAX_NAME_SHOWN] + "…")
        for name in names[:_MAX_NAMES_SHOWN]
    ]
    rest = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return ", ".join(shown) + rest
