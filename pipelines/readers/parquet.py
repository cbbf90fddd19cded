"""Parquet files, by row groups.

In: a range of row groups. Out: batches of documents. Only the columns of the text and the identifier are
read, and of a row group no more at a time than some MB. Deterministic: ranges that make up a file give the
documents of the file, in order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines import storage
from pipelines.readers.batches import BATCH_BYTES, DocumentBatch, DocumentCollector
from pipelines.readers.pieces import ReadPiece
from pipelines.rejections import MISSING_TEXT
from schemas.errors import ClozelineError

_PAGE_BUFFER_BYTES = 1 << 20
_MAX_ROWS = 1 << 14


def read_row_group_sizes(path: str) -> list[int]:
    """The stored bytes of each row group of a file.

    Raises:
        ClozelineError: it can't be read or is no Parquet file.
    """
    with _open_parquet(path) as file:
        groups = [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]
        return [
            sum(group.column(column).total_compressed_size for column in range(group.num_columns))
            for group in groups
        ]


def read_parquet(
    piece: ReadPiece, text_field: str, id_field: str, max_document_bytes: int
) -> Iterator[DocumentBatch]:
    """Read the rows of a range of row groups.

    Args:
        piece: what to read.
        text_field: column of the text: strings, or bytes that are UTF-8.
        id_field: column of the identifier, strings or integers; `<file>:<row>` where it is absent or null.
        max_document_bytes: a longer text is rejected.

    Raises:
        ClozelineError: the file can't be read, or has no text column of this name and type.
    """
    collector = DocumentCollector(piece.path, max_document_bytes)
    with _open_parquet(piece.path) as file:
        schema = file.schema_arrow
        _check_columns(piece.path, schema, text_field, id_field)
        has_ids = id_field in schema.names and _is_identifier(schema.field(id_field).type)
        end = file.metadata.num_row_groups if piece.end is None else piece.end
        row = sum(file.metadata.row_group(index).num_rows for index in range(piece.start))
        columns = [text_field, id_field] if has_ids and id_field != text_field else [text_field]
        for index in range(piece.start, end):
            num_rows = _choose_batch_rows(file.metadata.row_group(index), text_field)
            for batch in file.iter_batches(num_rows, row_groups=[index], columns=columns, use_threads=False):
                document_ids = _read_identifiers(batch[id_field]) if has_ids else [None] * len(batch)
                texts, too_long = _read_texts(batch[text_field], max_document_bytes)
                for document_id, text, is_too_long in zip(document_ids, texts, too_long, strict=True):
                    document_id = document_id or collector.name(row)
                    row += 1
                    if is_too_long:
                        collector.reject_too_long(document_id)
                    elif text is None:
                        collector.reject(
                            document_id, MISSING_TEXT, f"{text_field!r} is null; expected a string"
                        )
                    else:
                        collector.add_bytes(document_id, text, None)
                    if collector.is_full:
                        yield collector.take()
    yield collector.take()


def _choose_batch_rows(group: pq.RowGroupMetaData, text_field: str) -> int:
    """Rows that hold about `BATCH_BYTES` of text, going by the average of the row group."""
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema == text_field:
            average = column.total_uncompressed_size / max(group.num_rows, 1)
            return max(1, min(int(BATCH_BYTES / max(average, 1.0)), _MAX_ROWS))
    return _MAX_ROWS


def _read_texts(column: pa.Array, max_document_bytes: int) -> tuple[list[bytes | None], list[bool]]:
    """The texts, and which of them were too long and left in Arrow's memory, where they are twice already."""
    texts = column.cast(pa.large_binary())
    too_long = pc.fill_null(pc.greater(pc.binary_length(texts), max_document_bytes), False)
    are_too_long = too_long.to_pylist()
    if not any(are_too_long):
        return texts.to_pylist(), are_too_long
    return [None if is_long else texts[i].as_py() for i, is_long in enumerate(are_too_long)], are_too_long


def _read_identifiers(column: pa.Array) -> list[str | None]:
    if pa.types.is_integer(column.type):
        return [None if number is None else str(number) for number in column.to_pylist()]
    # Arrow does not check that the strings of a Parquet file are UTF-8, and no id is worth a document.
    names = column.cast(pa.large_binary()).to_pylist()
    return [None if name is None else name.decode(errors="replace") for name in names]


def _check_columns(path: str, schema: pa.Schema, text_field: str, id_field: str) -> None:
    if text_field not in schema.names:
        raise ClozelineError(
            f"{path} has no column {text_field!r}; its columns are {', '.join(schema.names)}\n"
            "Name the one that holds the text with --text-field."
        )
    for option, field in (("--text-field", text_field), ("--id-field", id_field)):
        if schema.names.count(field) > 1:
            raise ClozelineError(
                f"{path} has {schema.names.count(field)} columns {field!r}; expected one\n"
                f"Rename them, or name another column with {option}."
            )
    found = schema.field(text_field).type
    if not (_is_binary(found) or _is_string(found)):
        raise ClozelineError(
            f"{path}: column {text_field!r} holds {found}; expected strings\n"
            "Name the one that holds the text with --text-field."
        )


def _is_string(value_type: pa.DataType) -> bool:
    if pa.types.is_dictionary(value_type):
        return _is_string(value_type.value_type)
    return (
        pa.types.is_string(value_type)
        or pa.types.is_large_string(value_type)
        or pa.types.is_string_view(value_type)
    )


def _is_binary(value_type: pa.DataType) -> bool:
    if pa.types.is_dictionary(value_type):
        return _is_binary(value_type.value_type)
    return (
        pa.types.is_binary(value_type)
        or pa.types.is_large_binary(value_type)
        or pa.types.is_binary_view(value_type)
    )


def _is_identifier(value_type: pa.DataType) -> bool:
    return _is_string(value_type) or pa.types.is_integer(value_type)


@contextlib.contextmanager
def _open_parquet(path: str) -> Iterator[pq.ParquetFile]:
    with storage.open_read(path) as stream:
        try:
            yield pq.ParquetFile(stream, buffer_size=_PAGE_BUFFER_BYTES, pre_buffer=False)
        except (pa.ArrowInvalid, OSError) as error:
            reason = str(error).splitlines()[0]
            raise ClozelineError(
                f"{path} can't be read as Parquet: {reason}\n"
                "Check that it is whole, or name another --format."
            ) from error
