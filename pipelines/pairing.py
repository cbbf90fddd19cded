"""Cut the documents of a pool into examples of one or two segments.

In: the tokens of a pool and a random stream. Out: `Pairs`, which name slices of the pool's tokens and copy
none. Deterministic: the same tokens, configuration and stream give the same pairs.

The rules are those of Devlin et al. 2018 (section 3.1 and appendix A.2) and of Google's
`create_pretraining_data.py`, with what they get wrong put right; each function says where it departs.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipelines.pool_tokens import PoolTokens, hash_documents, hash_sentences
from pipelines.truncation import truncate_segments
from schemas.configs import BuildConfig
from schemas.examples import IS_NEXT, NOT_NEXT
from schemas.seeding import RandomStream

MAX_REDRAWS = 20
"""Draws of a NotNext segment before the chunk is given up: enough unless most documents are the same."""

_BALANCE_RATE = 1 / 64


@dataclass(frozen=True)
class Pairs:
    """Examples as slices of the tokens of a pool, which are fewer than 2^31.

    Attributes:
        a_start: int32 [E], first token of segment A.
        a_end: int32 [E], one past its last token; A is never empty.
        b_start: int32 [E], first token of segment B; equals `b_end` where the objective has no B.
        b_end: int32 [E], one past its last token.
        labels: uint8 [E], `next_sentence_label`; None where the objective has none.
        num_documents_unused: documents of the pool that gave no example.
        expected_not_next: the chances by which `labels` were drawn 1, added up; None where there are none.
    """

    a_start: NDArray[np.int32]
    a_end: NDArray[np.int32]
    b_start: NDArray[np.int32]
    b_end: NDArray[np.int32]
    labels: NDArray[np.uint8] | None
    num_documents_unused: int
    expected_not_next: float | None = None

    def __len__(self) -> int:
        return len(self.a_start)

    def take(self, order: NDArray[np.integer] | slice) -> Pairs:
        """The pairs at these places, in this order."""
        return Pairs(
            self.a_start[order],
            self.a_end[order],
            self.b_start[order],
            self.b_end[order],
            None if self.labels is None else self.labels[order],
            self.num_documents_unused,
            self.expected_not_next,
        )

    @classmethod
    def from_table(cls, table: pa.Table, num_documents_unused: int) -> Pairs:
        """The pairs that `to_table` wrote."""
        columns = {name: table.column(name).to_numpy() for name in table.column_names}
        return cls(**{"labels": None, **columns}, num_documents_unused=num_documents_unused)

    def to_table(self) -> pa.Table:
        """An Arrow table with a column for each array."""
        columns = {name: getattr(self, name) for name in ("a_start", "a_end", "b_start", "b_end", "labels")}
        return pa.table({name: pa.array(values) for name, values in columns.items() if values is not None})


class LabelBalance:
    """Steers the chance of NotNext so that half of a pool's labels are expected to be NotNext.

    A chunk of one sentence has no next sentence and is NotNext for certain. With a share f of such chunks the
    others need the chance (1/2 - f) / (1 - f). That share depends on the chance itself, since a NotNext puts
    sentences back, so it is estimated as the pool is walked, and what is owed so far is paid back slowly.
    Only chances are fed back, never labels, so labels stay independent draws.
    """

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._num_alone = 0
        self._num_chunks = 0
        self._excess = 0.0

    def chance(self) -> float:
        """The chance that the next chunk of two or more sentences becomes NotNext."""
        if not self._enabled:
            return 0.5
        share_alone = self._num_alone / (self._num_chunks + 1)
        fair = (0.5 - share_alone) / (1.0 - share_alone)
        return min(1.0, max(0.0, fair - _BALANCE_RATE * self._excess))

    def record(self, alone: bool, chance: float) -> None:
        """Note that an example was made from a chunk, and the chance with which it was to be NotNext."""
        self._num_alone += alone
        self._num_chunks += 1
        self._excess += chance - 0.5


class _Walk:
    """What every pairing rule needs: offsets, draws, a place for pairs.

    Memory views give plain integers one at a time, as fast as lists, whose integers take 40 bytes each.
    """

    def __init__(self, pool: PoolTokens, config: BuildConfig, stream: RandomStream) -> None:
        self.offsets = pool.sentence_offsets.data
        self.documents = pool.document_offsets.data
        self.draw: Callable[[], float] = stream.iterate_floats().__next__
        self.short_seq_prob = config.short_seq_prob
        self.rows = array("i")
        self.used = bytearray(pool.num_documents)
        self.expected_not_next = 0.0

    def draw_target(self, max_tokens: int) -> int:
        """Tokens to aim at: `max_tokens`, or now and then a uniform length from 2 to it.

        Google's script draws once a document, which makes a long document short throughout.
        """
        if self.draw() >= self.short_seq_prob:
            return max_tokens
        return 2 + int(self.draw() * (max_tokens - 1))

    def emit(self, document: int, a_start: int, a_end: int, b_start: int, b_end: int, label: int) -> None:
        self.rows.extend((a_start, a_end, b_start, b_end, label))
        self.used[document] = 1


def sample_pairs(pool: PoolTokens, config: BuildConfig, stream: RandomStream) -> Pairs:
    """Make the examples of a pool, `duplicate_factor` times over, in the order of its documents.

    Args:
        pool: the documents; `next-sentence` needs two or more.
        config: objective, lengths and chances.
        stream: the draws of this pool's pairs.

    Returns:
        Pairs that fit into `max_seq_length` with their special tokens. There may be none, where no document
        can give one (all of them the same text, or one sentence each under `sentence-order`).
    """
    walk = _Walk(pool, config, stream)
    # `[CLS] A [SEP] B [SEP]` has three special tokens, `[CLS] A [SEP]` two.
    max_tokens = config.max_seq_length - (2 if config.objective == "mlm" else 3)
    if config.objective == "next-sentence":
        balance = LabelBalance(config.next_sentence_balance)
        hashes = hash_sentences(pool)
        finder = _OtherSegments(walk, hashes, hash_documents(pool, hashes), max_tokens)
        for _ in range(config.duplicate_factor):
            _pair_next_sentences(walk, finder, balance, max_tokens)
    else:
        rule = _pair_sentence_order if config.objective == "sentence-order" else _pack_sentences
        for _ in range(config.duplicate_factor):
            rule(walk, max_tokens)
    rows = np.frombuffer(walk.rows, np.int32).reshape(-1, 5)
    a_start, a_end, b_start, b_end = rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3]
    if config.objective != "mlm":
        a_start, a_end, b_start, b_end = truncate_segments(a_start, a_end, b_start, b_end, max_tokens, stream)
    num_unused = pool.num_documents - sum(walk.used)
    if config.objective == "mlm":
        return Pairs(a_start, a_end, b_start, b_end, None, num_unused)
    labels = rows[:, 4].astype(np.uint8)
    return Pairs(a_start, a_end, b_start, b_end, labels, num_unused, walk.expected_not_next)


class _OtherSegments:
    """Draws segments from other documents that can't be mistaken for what follows A."""

    def __init__(
        self,
        walk: _Walk,
        sentence_hashes: NDArray[np.uint64],
        document_hashes: NDArray[np.uint64],
        max_tokens: int,
    ) -> None:
        self._walk = walk
        self._sentence_hashes = sentence_hashes.data
        self._document_hashes = document_hashes.data
        self._max_tokens = max_tokens

    def draw(self, document: int, position: int, split: int, target: int) -> tuple[int, int] | None:
        """Sentences [start, end) of another document, which fill A up to `target` tokens where it has them.

        Args:
            document: where A comes from.
            position: A's first sentence.
            split: one past A's last sentence.
            target: tokens of both segments to aim at.

        Text may occur twice in a pool. So a document with the text of A's is refused, and so is a segment
        with a sentence that truly follows A, or follows what truncation can leave of it. Google's script
        checks neither, and after ten tries takes A's own document.
        """
        walk, draw, hashes = self._walk, self._walk.draw, self._sentence_hashes
        offsets, documents = walk.offsets, walk.documents
        a_end, a_length = offsets[split], offsets[split] - offsets[position]
        for _ in range(MAX_REDRAWS):
            other = int(draw() * (len(documents) - 2))
            other += other >= document
            first, stop = documents[other], documents[other + 1]
            start = first + int(draw() * (stop - first))
            end = bisect_left(offsets, offsets[start] + target - a_length, start + 1, stop)
            if self._document_hashes[other] == self._document_hashes[document]:
                continue
            # Truncation leaves A at least half of the room, and takes no more than what is too much.
            excess = a_length + offsets[end] - offsets[start] - self._max_tokens
            earliest_end = a_end - max(0, min(excess, a_length - self._max_tokens // 2))
            after = bisect_right(offsets, earliest_end, position, split + 1) - 1
            following = hashes[after : min(split + 1, documents[document + 1])]
            if set(following).isdisjoint(hashes[start:end]):
                return start, end
        return None


def _pair_next_sentences(walk: _Walk, finder: _OtherSegments, balance: LabelBalance, max_tokens: int) -> None:
    """Pair A with what follows it, or with a segment of another document; unused sentences are put back.

    Where no other segment can be found, a chunk becomes IsNext, or nothing if it has one sentence only.
    """
    offsets, documents, draw = walk.offsets, walk.documents, walk.draw
    for document in range(len(documents) - 1):
        position, stop = documents[document], documents[document + 1]
        while position < stop:
            start = offsets[position]
            target = walk.draw_target(max_tokens)
            end = bisect_left(offsets, start + target, position + 1, stop)
            alone = end == position + 1
            split = end if alone else position + 1 + int(draw() * (end - position - 1))
            chance = 1.0 if alone else balance.chance()
            walk.expected_not_next += chance
            other = None
            if draw() < chance:
                other = finder.draw(document, position, split, target)
                if not other:
                    # The draw said NotNext, the documents left no choice.
                    walk.expected_not_next -= 1.0
                    chance = 0.0
            if other:
                walk.emit(document, start, offsets[split], offsets[other[0]], offsets[other[1]], NOT_NEXT)
                end = split
            elif not alone:
                walk.emit(document, start, offsets[split], offsets[split], offsets[end], IS_NEXT)
            if other or not alone:
                balance.record(alone, chance)
            position = end


def _pair_sentence_order(walk: _Walk, max_tokens: int) -> None:
    """Pair two segments that stand side by side, swapped half of the time (Lan et al. 2019, section 3.1).

    A chunk of one sentence takes the next one along, and the last sentence of a document the one before it; a
    document of one sentence gives nothing. ALBERT's script gives such chunks a random segment instead, which
    mixes in the easier task that sentence order was meant to replace.
    """
    offsets, documents, draw = walk.offsets, walk.documents, walk.draw
    for document in range(len(documents) - 1):
        first, stop = documents[document], documents[document + 1]
        position = first if stop - first > 1 else stop
        while position < stop:
            position = min(position, stop - 2)
            target = walk.draw_target(max_tokens)
            end = bisect_left(offsets, offsets[position] + target, position + 1, stop)
            end = max(end, position + 2)
            split = position + 1 + int(draw() * (end - position - 1))
            a, b = (offsets[position], offsets[split]), (offsets[split], offsets[end])
            walk.expected_not_next += 0.5
            swapped = draw() < 0.5
            walk.emit(document, *(b + a if swapped else a + b), NOT_NEXT if swapped else IS_NEXT)
            position = end


def _pack_sentences(walk: _Walk, max_tokens: int) -> None:
    """Pack whole sentences of one document up to a length (Liu et al. 2019, section 4.2, DOC-SENTENCES).

    A sentence longer than `max_tokens` is cut into consecutive pieces, so that no token is lost.
    """
    offsets, documents = walk.offsets, walk.documents
    for document in range(len(documents) - 1):
        position, stop = documents[document], documents[document + 1]
        start = offsets[position]
        while position < stop:
            target = walk.draw_target(max_tokens)
            last = bisect_right(offsets, start + target, position + 1, stop + 1) - 1
            if last > position:
                end, position = offsets[last], last
            elif offsets[position + 1] - start <= max_tokens:
                position += 1
                end = offsets[position]
            else:
                end = start + max_tokens
            walk.emit(document, start, end, end, end, 0)
            start = end
