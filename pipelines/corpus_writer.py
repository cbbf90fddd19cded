"""Writes the corpus files of one read: a Parquet file a split, and the documents that were left out.

In: batches of tokenized documents of one read, in order. Out: `train/<read>.parquet`,
`validation/<read>.parquet` and `rejects/<read>.jsonl`, each only where it would hold something, and a
record of what was written. Deterministic: the bytes follow from the documents and their order, however they
were cut into batches.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.hashing_writer import HashingWriter, WrittenFile, describe
from pipelines.rejections import RejectedDocument
from pipelines.row_groups import RowGroupCutter, describe_row_group
from pipelines.work_folder import WorkFolder
from schemas.documents import tokenized_document_schema
from schemas.manifests import SPLITS, CorpusFile, RowGroup, Split

REJECTS_FOLDER = "rejects"

_encode_json = json.JSONEncoder().encode
_COMPRESSION = "zstd"
_COMPRESSION_LEVEL = 3


class CorpusWriter:
    """Writes one read.

    A context manager: files get their names in `finish`, and leaving by an exception removes what was begun.

    Args:
        work: the output folder.
        read_name: the stable name of the read, which names its files.
        vocab_size: decides between uint16 and uint32 ids.
        row_group_tokens: a row group ends with the document that brings it to this many tokens.
    """

    def __init__(self, work: WorkFolder, read_name: str, *, vocab_size: int, row_group_tokens: int) -> None:
        self._work = work
        self._read_name = read_name
        self._schema = tokenized_document_schema(vocab_size)
        self._row_group_tokens = row_group_tokens
        self._files = contextlib.ExitStack()
        self._splits: dict[Split, _SplitWriter] = {}
        self._rejects: HashingWriter | None = None
        self._rejected: Counter[str] = Counter()
        self._num_text_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._splits.values():
            writer.forget()
        self._files.__exit__(kind, error, trace)

    def write(self, split: Split, documents: pa.Table) -> None:
        """Append documents to a split: a table of `tokenized_document_schema`."""
        if not documents.num_rows:
            return
        if split not in self._splits:
            stream = self._files.enter_context(self._work.write_file(self._split_name(split)))
            self._splits[split] = _SplitWriter(stream, self._schema, self._row_group_tokens)
        self._splits[split].write(documents.cast(self._schema))

    def reject(self, documents: Iterable[RejectedDocument]) -> None:
        """Record documents that were left out: one JSON object a line, and a count under the reason."""
        lines = []
        for document in documents:
            # Not `asdict`: it takes five times as long, and there may be as many of them as lines in a file.
            fields = {
                "detail": document.detail,
                "document_id": document.document_id,
                "reason": document.reason,
            }
            lines.append(_encode_json(fields) + "\n")
            self._rejected[document.reason] += 1
        if not lines:
            return
        if self._rejects is None:
            self._rejects = self._files.enter_context(self._work.write_file(self._rejects_name))
        self._rejects.write("".join(lines).encode())

    def count_text(self, num_bytes: int) -> None:
        """Count the UTF-8 bytes of documents that were kept."""
        self._num_text_bytes += num_bytes

    def finish(self) -> dict[str, Any]:
        """Give the files their names, record the read as finished, and return its record.

        The record has `read`, `files` (each a `CorpusFile`), `rejects` (one `StoredFile` or none), `rejected`
        (a count a reason), `num_text_bytes`.
        """
        files: list[CorpusFile] = []
        written: list[WrittenFile] = []
        for split in SPLITS:
            if split in self._splits:
                row_groups = self._splits[split].close()
                written.append(describe(self._split_name(split), self._splits[split].stream))
                files.append(CorpusFile(**asdict(written[-1]), split=split, row_groups=row_groups))
        rejects = [] if self._rejects is None else [describe(self._rejects_name, self._rejects)]
        written += rejects
        self._files.close()
        record = {
            "read": self._read_name,
            "files": [file.model_dump(mode="json") for file in files],
            "rejects": [asdict(file) for file in rejects],
            "rejected": dict(sorted(self._rejected.items())),
            "num_text_bytes": self._num_text_bytes,
        }
        self._work.finish(self._read_name, written, record)
        return record

    def _split_name(self, split: Split) -> str:
        return f"{split}/{self._read_name}.parquet"

    @property
    def _rejects_name(self) -> str:
        return f"{REJECTS_FOLDER}/{self._read_name}.jsonl"


class _SplitWriter:
    """Writes one Parquet file, row group by row group."""

    def __init__(self, stream: HashingWriter, schema: pa.Schema, row_group_tokens: int) -> None:
        self.stream = stream
        self._cutter = RowGroupCutter(row_group_tokens)
        self._row_groups: list[RowGroup] = []
        # Measured on a million ids of English text: without a dictionary 0.85 bytes an id, with one 1.08.
        self._parquet = pq.ParquetWriter(
            stream,
            schema,
            compression=_COMPRESSION,
            compression_level=_COMPRESSION_LEVEL,
            use_dictionary=False,
            write_statistics=False,
        )

    def write(self, documents: pa.Table) -> None:
        for row_group in self._cutter.push(documents):
            self._write_row_group(row_group)

    def close(self) -> tuple[RowGroup, ...]:
        for row_group in self._cutter.flush():
            self._write_row_group(row_group)
        self._parquet.close()
        return tuple(self._row_groups)

    def forget(self) -> None:
        """Keep the writer from writing a footer to a stream that is no more."""
        self._parquet.is_open = False

    def _write_row_group(self, documents: pa.Table) -> None:
        self._row_groups.append(describe_row_group(documents))
        self._parquet.write_table(documents, row_group_size=documents.num_rows)
