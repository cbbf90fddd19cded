"""Row groups of tokenized documents: how large they are, where one ends, and the digest that names one.

In: tables of tokenized documents in the order of the input. Out: tables of whole documents that become row
groups. Deterministic: where a row group ends follows from the documents alone, however the tables were cut.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.manifests import RowGroup

MIN_ROW_GROUP_TOKENS = 1 << 16
MAX_ROW_GROUP_TOKENS = 1 << 20


def choose_row_group_tokens(total_input_bytes: int) -> int:
    """About how many tokens a row group holds.

    Row groups are what `build` deals to pools: many small ones where the corpus is small, and no more than a
    manifest can list where it is large.
    """
    return min(max(total_input_bytes >> 16, MIN_ROW_GROUP_TOKENS), MAX_ROW_GROUP_TOKENS)


class RowGroupCutter:
    """Collects documents until they make a row group.

    Args:
        min_tokens: a row group ends with the document that brings it to this many tokens.
    """

    def __init__(self, min_tokens: int) -> None:
        self._min_tokens = min_tokens
        self._parts: list[pa.Table] = []
        self._num_tokens = 0

    def push(self, documents: pa.Table) -> Iterator[pa.Table]:
        """Take more documents; yields the row groups that they complete."""
        lengths = document_lengths(documents)
        start = 0
        while start < len(lengths):
            tokens = self._num_tokens + np.cumsum(lengths[start:])
            end = start + int(np.searchsorted(tokens, self._min_tokens)) + 1
            if end > len(lengths):
                self._parts.append(documents.slice(start))
                self._num_tokens = int(tokens[-1])
                return
            self._parts.append(documents.slice(start, end - start))
            yield self._take()
            start = end

    def flush(self) -> Iterator[pa.Table]:
        """The rest, where there is one."""
        if self._parts:
            yield self._take()

    def _take(self) -> pa.Table:
        # One chunk a column: where the pages of a Parquet file end must not depend on how documents came in.
        row_group = pa.concat_tables(self._parts).combine_chunks()
        self._parts, self._num_tokens = [], 0
        return row_group


def document_lengths(documents: pa.Table) -> NDArray[np.int64]:
    """The tokens of each document: int64 [documents]."""
    chunks = [chunk.value_lengths().to_numpy(zero_copy_only=False) for chunk in documents["token_ids"].chunks]
    return np.concatenate([np.empty(0, dtype=np.int64), *chunks]).astype(np.int64)


def describe_row_group(documents: pa.Table) -> RowGroup:
    """The manifest's record of a row group of tokenized documents."""
    return RowGroup(
        digest=digest_row_group(documents),
        num_documents=documents.num_rows,
        num_sentences=sum(len(chunk.flatten()) for chunk in documents["sentence_lengths"].chunks),
        num_tokens=int(document_lengths(documents).sum()),
    )


def digest_row_group(documents: pa.Table) -> str:
    """The name of a row group by its content: 16 hexadecimal digits.

    BLAKE2b (8 bytes) over the token ids (little-endian uint32), the sentence lengths (int32) and the number
    of sentences of each document (int32), each as one run over all documents. Identifiers are left out, so
    the same text has the same digest wherever it was read from.

    Args:
        documents: the columns `token_ids` and `sentence_lengths` of `tokenized_document_schema`.
    """
    digest = hashlib.blake2b(digest_size=8)
    _update(digest, documents["token_ids"], "<u4")
    _update(digest, documents["sentence_lengths"], "<i4")
    for chunk in documents["sentence_lengths"].chunks:
        digest.update(chunk.value_lengths().to_numpy(zero_copy_only=False).astype("<i4").tobytes())
    return digest.hexdigest()


def _update(digest: hashlib.blake2b, column: pa.ChunkedArray, dtype: str) -> None:
    for chunk in column.chunks:
        digest.update(chunk.flatten().to_numpy(zero_copy_only=False).astype(dtype).tobytes())
