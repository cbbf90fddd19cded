"""The tokens of a pool as flat arrays, and hashes of its sentences and documents.

In: tokenized documents as Arrow tables. Out: `PoolTokens`. Deterministic: the arrays follow from the tables
and their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

# Several arrays of 8 bytes a token are made at a time: more than the processor's cache holds is slower.
_HASHED_TOKENS_AT_A_TIME = 1 << 17
_FLAT_TABLES = ("token_ids", "sentence_offsets", "document_offsets")


@dataclass(frozen=True)
class PoolTokens:
    """Documents one after another, without special tokens.

    Attributes:
        token_ids: uint16 or uint32 [T].
        sentence_offsets: int64 [S + 1], where each sentence starts in `token_ids`, and T.
        document_offsets: int64 [D + 1], where each document starts among the sentences, and S.
    """

    token_ids: NDArray[np.unsignedinteger]
    sentence_offsets: NDArray[np.int64]
    document_offsets: NDArray[np.int64]

    @property
    def num_documents(self) -> int:
        """Documents in the pool."""
        return len(self.document_offsets) - 1

    @classmethod
    def from_tables(cls, tables: Sequence[pa.Table]) -> PoolTokens:
        """Join tables of `token_ids` and `sentence_lengths` in the order given (at least one table)."""
        room = [sum(len(chunk.flatten()) for chunk in table.column("token_ids").chunks) for table in tables]
        id_type = np.dtype(str(tables[0].schema.field("token_ids").type.value_type))
        return cls.gather(enumerate(tables), room, id_type)

    @classmethod
    def gather(
        cls, tables: Iterable[tuple[int, pa.Table]], room: Sequence[int], id_type: np.dtype[Any]
    ) -> PoolTokens:
        """Join tables that come in any order, holding no more than one of them at a time.

        Args:
            tables: for each place from 0 on, once, the table that belongs there, with the columns
                `token_ids` and `sentence_lengths`.
            room: for each place the tokens of its table at most.
            id_type: of the ids, uint16 or uint32.
        """
        starts = offsets_of([np.asarray(room, np.int64)]).tolist()
        # Room that stays empty is never touched, so it takes no memory.
        token_ids = np.empty(starts[-1], id_type)
        num_tokens = [0] * len(room)
        sentence_lengths = [np.empty(0, np.int32)] * len(room)
        document_lengths = [np.empty(0, np.int32)] * len(room)
        for place, table in tables:
            for column in table.column("token_ids").chunks:
                ids = _flat_values(column)
                start = starts[place] + num_tokens[place]
                token_ids[start : start + len(ids)] = ids
                num_tokens[place] += len(ids)
            chunks = table.column("sentence_lengths").chunks
            sentence_lengths[place] = _join([_flat_values(column) for column in chunks])
            document_lengths[place] = _join([column.value_lengths().to_numpy() for column in chunks])
        end = 0
        for start, length in zip(starts[:-1], num_tokens, strict=True):
            if start != end:
                token_ids[end : end + length] = token_ids[start : start + length]
            end += length
        return cls(token_ids[:end], offsets_of(sentence_lengths), offsets_of(document_lengths))

    @classmethod
    def from_flat_tables(cls, tables: Mapping[str, pa.Table]) -> PoolTokens:
        """The pool that `to_flat_tables` took apart; copies nothing."""
        return cls(*(tables[name].column(0).chunk(0).to_numpy() for name in _FLAT_TABLES))

    def to_flat_tables(self) -> dict[str, pa.Table]:
        """The three arrays as Arrow tables, named as the attributes; copies nothing."""
        return {name: pa.table({name: getattr(self, name)}) for name in _FLAT_TABLES}


def offsets_of(lengths: Sequence[NDArray[np.integer]]) -> NDArray[np.int64]:
    """Where each of the items with these lengths starts, and where the last one ends: int64 [n + 1]."""
    joined = np.concatenate([np.zeros(1, np.int64), *lengths])
    return np.cumsum(joined, dtype=np.int64)


def hash_sentences(pool: PoolTokens) -> NDArray[np.uint64]:
    """A 64-bit hash of the tokens of each sentence: uint64 [S].

    Equal sentences have equal hashes in any pool. Two unequal ones share a hash with a chance of about 2^-64,
    and then merely lose a chance to stand together in a pair.
    """
    hashes = np.empty(len(pool.sentence_offsets) - 1, np.uint64)
    start = 0
    while start < len(hashes):
        limit = pool.sentence_offsets[start] + _HASHED_TOKENS_AT_A_TIME
        stop = max(start + 1, int(np.searchsorted(pool.sentence_offsets, limit, side="right")) - 1)
        offsets = pool.sentence_offsets[start : stop + 1]
        hashes[start:stop] = _hash_runs(pool.token_ids[offsets[0] : offsets[-1]], offsets - offsets[0])
        start = stop
    return hashes


def hash_documents(pool: PoolTokens, sentence_hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A 64-bit hash of the sentences of each document: uint64 [D]; `sentence_hashes` is uint64 [S]."""
    return _hash_runs(sentence_hashes, pool.document_offsets)


def _join(lengths: Sequence[NDArray[Any]]) -> NDArray[np.int32]:
    # A copy, so that the table it comes from can go.
    return np.concatenate([np.empty(0, np.int32), *lengths])


def _flat_values(column: pa.ListArray) -> NDArray[Any]:
    return column.flatten().to_numpy(zero_copy_only=False)


def _hash_runs(values: NDArray[np.unsignedinteger], offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Hash each run of values, none of which is empty, by a sum of mixed (value, place) pairs."""
    places = np.arange(len(values), dtype=np.int64) - np.repeat(offsets[:-1], np.diff(offsets))
    mixed = values.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed += places.astype(np.uint64) * np.uint64(0xD1B54A32D192ED03) + np.uint64(0x632BE59BD9B4E019)
    # The finaliser of SplitMix64 (Steele et al. 2014): without it, sums of different orders would agree.
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return np.add.reduceat(mixed, offsets[:-1])
