"""The batches that readers yield, and how they are filled.

In: documents and rejections in the order of the file. Out: `DocumentBatch`es of about `BATCH_BYTES` of text.
Deterministic: the cuts follow from the documents alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from pipelines.rejections import EMPTY, INVALID_UTF8, TOO_LONG, RejectedDocument
from schemas.documents import DOCUMENT_SCHEMA

BATCH_BYTES = 1 << 21
MAX_BATCH_DOCUMENTS = 1 << 15
"""Documents and rejections in a batch: a gigabyte of line breaks must not become as many objects."""


@dataclass(frozen=True)
class DocumentBatch:
    """Some documents and the rejected ones met on the way to them.

    Attributes:
        table: of `schemas.documents.DOCUMENT_SCHEMA`, in one chunk; no text is blank. May have no row.
        rejected: those left out.
    """

    table: pa.Table
    rejected: tuple[RejectedDocument, ...] = ()


class DocumentCollector:
    """Gathers documents until they make up a batch, and rejects those that no layout allows."""

    def __init__(self, path: str, max_document_bytes: int) -> None:
        # A name on disk may be no UTF-8; an identifier is.
        self.path = path.encode(errors="backslashreplace").decode()
        self.max_document_bytes = max_document_bytes
        self._document_ids: list[str] = []
        self._texts: list[bytes] = []
        self._rejected: list[RejectedDocument] = []
        self._num_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether it is time to `take` a batch."""
        num_documents = len(self._texts) + len(self._rejected)
        return self._num_bytes >= BATCH_BYTES or num_documents >= MAX_BATCH_DOCUMENTS

    def name(self, position: int) -> str:
        """The identifier of a document without one: the file, and its byte offset or row."""
        return f"{self.path}:{position}"

    def add(self, document_id: str, text: str) -> None:
        """Keep a document that is known to be short enough, unless it is blank."""
        self._add(document_id, text, text.encode())

    def add_bytes(self, document_id: str, content: bytes, offset: int | None) -> None:
        """Keep a document given as bytes, unless it is too long, no UTF-8 or blank.

        Args:
            document_id: its identifier.
            content: its text.
            offset: of the content in the file, for the message; None where the file has no such offset.
        """
        if len(content) > self.max_document_bytes:
            self.reject_too_long(document_id)
            return
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            self.reject_encoding(document_id, error, offset)
            return
        self._add(document_id, text, content)

    def reject(self, document_id: str, reason: str, detail: str) -> None:
        """Leave a document out."""
        self._rejected.append(RejectedDocument(document_id, reason, detail))

    def reject_too_long(self, document_id: str) -> None:
        """Leave a document out for its length."""
        self.reject(document_id, TOO_LONG, f"longer than {self.max_document_bytes} bytes")

    def reject_encoding(self, document_id: str, error: UnicodeDecodeError, offset: int | None) -> None:
        """Leave a document out whose bytes, which begin at an offset of the file, are no UTF-8."""
        if offset is None:
            where = f"{document_id}, byte {error.start} of its text"
        else:
            where = f"{self.path}, byte offset {offset + error.start}"
        self.reject(document_id, INVALID_UTF8, f"{where}: 0x{error.object[error.start]:02x}: {error.reason}")

    def take(self) -> DocumentBatch:
        """The documents gathered so far; the collector is empty afterwards."""
        # Six times faster than an array made from Python's strings, and without a second copy in each.
        texts = pa.array(self._texts, pa.large_binary()).view(pa.large_string())
        table = pa.Table.from_arrays(
            [pa.array(self._document_ids, pa.string()), texts], schema=DOCUMENT_SCHEMA
        )
        batch = DocumentBatch(table, tuple(self._rejected))
        self._document_ids, self._texts, self._rejected, self._num_bytes = [], [], [], 0
        return batch

    def _add(self, document_id: str, text: str, content: bytes) -> None:
        if not text or text.isspace():
            self.reject(document_id, EMPTY, "no character but white space")
            return
        self._document_ids.append(document_id)
        self._texts.append(content)
        self._num_bytes += len(content)


def coalesce(batches: Iterable[DocumentBatch]) -> Iterator[DocumentBatch]:
    """Put neighbouring small batches together until they make up `BATCH_BYTES`; empty ones vanish."""
    waiting: list[DocumentBatch] = []
    num_bytes = num_documents = 0
    for batch in batches:
        waiting.append(batch)
        num_bytes += batch.table.nbytes
        num_documents += batch.table.num_rows + len(batch.rejected)
        if num_bytes >= BATCH_BYTES or num_documents >= MAX_BATCH_DOCUMENTS:
            yield _concatenate(waiting)
            waiting, num_bytes, num_documents = [], 0, 0
    if num_documents:
        yield _concatenate(waiting)


def _concatenate(batches: list[DocumentBatch]) -> DocumentBatch:
    if len(batches) == 1:
        return batches[0]
    table = pa.concat_tables([batch.table for batch in batches]).combine_chunks()
    return DocumentBatch(table, tuple(document for batch in batches for document in batch.rejected))
