"""Reading what a `ReadDescriptor` names, whatever the layout of its files.

In: a read and the configuration. Out: batches of documents, in the order of the files. Deterministic.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from pipelines import storage
from pipelines.readers.batches import DocumentBatch, coalesce
from pipelines.readers.delimited import read_delimited
from pipelines.readers.jsonl import read_jsonl
from pipelines.readers.parquet import read_parquet
from pipelines.readers.pieces import ReadDescriptor, ReadPiece
from pipelines.readers.text import read_text, read_text_lines, read_text_sentences
from schemas.configs import IngestConfig, VocabConfig
from schemas.errors import ClozelineError

_DEFAULT_ID_FIELD: str = IngestConfig.model_fields["id_field"].default
_DEFAULT_MAX_DOCUMENT_BYTES: int = IngestConfig.model_fields["max_document_bytes"].default


def read_documents(read: ReadDescriptor, config: IngestConfig | VocabConfig) -> Iterator[DocumentBatch]:
    """Read all documents of a read, in batches of about 2 MiB of text (more where one document is larger).

    Args:
        read: what to read.
        config: names the fields of text and identifier and the longest document. A `VocabConfig` has the
            last two not, and takes the defaults of `IngestConfig`.

    Yields:
        Batches with at least one document or rejection; a read without documents yields none.

    Raises:
        ClozelineError: a file can't be read, is truncated or not what its format says, or has another size
            than when it was listed; the message names it.
    """
    return coalesce(batch for piece in read.pieces for batch in _read_checked(piece, config))


def _read_checked(piece: ReadPiece, config: IngestConfig | VocabConfig) -> Iterator[DocumentBatch]:
    """Read a piece and see that the file still is as long as it was when it was cut into pieces.

    The ranges of another file would miss some of its documents and halve others.
    """
    try:
        yield from _read_piece(piece, config)
    except ClozelineError:
        _check_size(piece)
        raise
    _check_size(piece)


def _check_size(piece: ReadPiece) -> None:
    found = storage.size_bytes(piece.path)
    if found != piece.file_size:
        raise ClozelineError(
            f"{piece.path} was changed while it was read: it had {piece.file_size} bytes, now {found}\n"
            "Put it back and run the same command again, or begin anew with --overwrite."
        )


def _read_piece(piece: ReadPiece, config: IngestConfig | VocabConfig) -> Iterator[DocumentBatch]:
    id_field, max_document_bytes = _DEFAULT_ID_FIELD, _DEFAULT_MAX_DOCUMENT_BYTES
    if isinstance(config, IngestConfig):
        id_field, max_document_bytes = config.id_field, config.max_document_bytes
    match piece.format:
        case "text":
            return read_text(piece, max_document_bytes)
        case "text-lines":
            return read_text_lines(piece, max_document_bytes)
        case "text-sentences":
            return read_text_sentences(piece, max_document_bytes)
        case "jsonl":
            return read_jsonl(piece, config.text_field, id_field, max_document_bytes)
        case "parquet":
            return read_parquet(piece, config.text_field, id_field, max_document_bytes)
        case "csv" | "tsv":
            return read_delimited(piece, config.text_field, id_field, max_document_bytes)
        case _:
            assert_never(piece.format)
