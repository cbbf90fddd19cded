"""How often each piece of a word occurs: what a vocabulary is learned from.

In: documents as Arrow strings. Out: pieces (see `pipelines.words`) with their counts, as a mapping or a
sorted Arrow table. Deterministic: the counts follow from the documents and their order; memory is bounded by
dropping the rarest pieces when there are too many.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pipelines.words import cut_blocks, encode_words, make_piece_finder, string_layout

MAX_PIECES = 2_000_000
"""Distinct pieces held at a time: about 300 MB."""
MAX_PIECE_CHARS = 1000
"""A longer piece is no word that a vocabulary could learn from; WordPiece gives up at 100 characters."""

WORD_COUNT_SCHEMA = pa.schema(
    [pa.field("piece", pa.string(), nullable=False), pa.field("count", pa.int64(), nullable=False)]
)

_BLOCK_BYTES = 4 << 20
_MAX_WAITING_BYTES = 64 << 20


class WordCounter:
    """Counts pieces.

    Args:
        max_pieces: when more than this are held, the rarest go until at most half remain.
    """

    def __init__(self, max_pieces: int = MAX_PIECES) -> None:
        self._max_pieces = max_pieces
        self._counts: dict[str, int] = {}
        # Words wait to be cut, so that a frequent one is cut once and not once a block.
        self._words: dict[str, int] = {}
        self._waiting_bytes = 0
        self._find_pieces = make_piece_finder(isolates_ideographs=True)

    @property
    def counts(self) -> dict[str, int]:
        """How often each piece occurred."""
        self._cut_words()
        return self._counts

    def add_texts(self, texts: pa.Array) -> None:
        """Count the pieces of documents.

        Args:
            texts: string or large_string, nothing null.
        """
        content, offsets = string_layout(texts)
        for first, last in cut_blocks(offsets, _BLOCK_BYTES):
            block = content[offsets[first] : offsets[last]]
            words, _ = encode_words(block, offsets[first : last + 1] - offsets[first])
            occurrences = np.bincount(words.indices.to_numpy(), minlength=len(words.dictionary))
            waiting = self._words
            for word, count in zip(
                words.dictionary.to_numpy(zero_copy_only=False).tolist(), occurrences.tolist(), strict=True
            ):
                waiting[word] = waiting.get(word, 0) + count
            self._waiting_bytes += words.dictionary.nbytes
            if self._waiting_bytes > _MAX_WAITING_BYTES:
                self._cut_words()

    def add_table(self, table: pa.Table) -> None:
        """Add the counts of a table of `WORD_COUNT_SCHEMA`."""
        counts = self._counts
        for batch in table.to_batches():
            pieces = batch["piece"].to_numpy(zero_copy_only=False).tolist()
            for piece, count in zip(pieces, batch["count"].to_pylist(), strict=True):
                counts[piece] = counts.get(piece, 0) + count
        self._prune()

    def to_table(self) -> pa.Table:
        """The counts as a table of `WORD_COUNT_SCHEMA`, sorted by piece."""
        counts = self.counts
        pieces = sorted(counts)
        columns = [pieces, [counts[piece] for piece in pieces]]
        return pa.table(dict(zip(WORD_COUNT_SCHEMA.names, columns, strict=True)), schema=WORD_COUNT_SCHEMA)

    def _cut_words(self) -> None:
        counts = self._counts
        for word, occurring in self._words.items():
            for piece in self._find_pieces(word):
                if len(piece) <= MAX_PIECE_CHARS:
                    counts[piece] = counts.get(piece, 0) + occurring
        self._words = {}
        self._waiting_bytes = 0
        self._prune()

    def _prune(self) -> None:
        if len(self._counts) <= self._max_pieces:
            return
        values = np.fromiter(self._counts.values(), dtype=np.int64, count=len(self._counts))
        kept = self._max_pieces // 2
        threshold = int(np.partition(values, len(values) - kept - 1)[len(values) - kept - 1])
        self._counts = {piece: count for piece, count in self._counts.items() if count > threshold}
