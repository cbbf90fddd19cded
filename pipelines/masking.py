"""Choose the tokens to predict and replace them: the static 80/10/10 masking of BERT.

In: unmasked examples as one flat array, the vocabulary, and a random stream. Out: the masked array, the
chosen positions and what stood there. Deterministic: the same examples, settings and stream give the
same masks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas.manifests import MaskingCounts
from schemas.seeding import RandomStream

MASK_SHARE = 0.8
"""Chance that a chosen token becomes `[MASK]` (Devlin et al. 2018, section 3.1)."""

RANDOM_SHARE = 0.1
"""Chance that it becomes a random token; it stays as it is otherwise."""

_PLACE_BITS = 11
_PLACE_MASK = np.uint64((1 << _PLACE_BITS) - 1)
_LAST_KEY = np.uint64((1 << 64) - 1)
_KEYS_AT_A_TIME = 1 << 22


@dataclass(frozen=True)
class MaskingVocabulary:
    """What masking must know about a vocabulary.

    Attributes:
        cls_id: id of `[CLS]`.
        sep_id: id of `[SEP]`.
        mask_id: id of `[MASK]`.
        random_ids: uint32 [R], ascending: what a token may be replaced with. Neither special nor `[unused…]`.
        is_continuation: bool [V], whether an id is a `##` piece, which goes on with the word before it.
    """

    cls_id: int
    sep_id: int
    mask_id: int
    random_ids: NDArray[np.uint32]
    is_continuation: NDArray[np.bool_]


@dataclass(frozen=True)
class UnmaskedExamples:
    """Examples before masking, of at most 2,048 tokens each.

    Attributes:
        input_ids: uint16 or uint32 [N], `[CLS] A [SEP] B [SEP]` one after another.
        offsets: int64 [E + 1], where each example starts in `input_ids`, and N.
        maskable: bool [N], False at `[CLS]` and `[SEP]`; every example has a maskable token.
    """

    input_ids: NDArray[np.unsignedinteger]
    offsets: NDArray[np.int64]
    maskable: NDArray[np.bool_]


@dataclass(frozen=True)
class MaskedTokens:
    """The same examples after masking.

    Attributes:
        input_ids: as before, with the chosen tokens replaced.
        positions: uint16 [P], the chosen positions of each example, ascending, counted from its `[CLS]`.
        position_offsets: int64 [E + 1], where each example's positions start, and P.
        original_ids: [P], what stood there, of the type of `input_ids`.
        counts: what happened to the tokens.
    """

    input_ids: NDArray[np.unsignedinteger]
    positions: NDArray[np.uint16]
    position_offsets: NDArray[np.int64]
    original_ids: NDArray[np.unsignedinteger]
    counts: MaskingCounts


def mask_tokens(
    examples: UnmaskedExamples,
    vocabulary: MaskingVocabulary,
    stream: RandomStream,
    *,
    masked_lm_prob: float,
    max_predictions: int,
    whole_words: bool = False,
) -> MaskedTokens:
    """Choose `max(1, round(masked_lm_prob x maskable))` tokens of each example and replace them.

    Args:
        examples: the unmasked tokens.
        vocabulary: special ids, allowed replacements, and which ids continue a word.
        stream: gives a draw for each maskable token (or word), each chosen token and each random replacement.
        masked_lm_prob: share of the maskable tokens to choose.
        max_predictions: chosen tokens in an example at most.
        whole_words: choose whole words rather than pieces, as far as they fit into the same number of tokens.
    """
    num_maskable = np.add.reduceat(examples.maskable, examples.offsets[:-1], dtype=np.int64)
    budgets = count_predictions(num_maskable, masked_lm_prob, max_predictions)
    choose = _choose_words if whole_words else _choose_pieces
    example, position = choose(examples, num_maskable, budgets, vocabulary, stream)
    chosen = examples.offsets[example] + position
    original_ids = examples.input_ids[chosen]
    draws = stream.floats(len(chosen))
    is_masked = draws < MASK_SHARE
    is_random = ~is_masked & (draws < MASK_SHARE + RANDOM_SHARE)
    num_random = int(is_random.sum())
    replaced = original_ids.copy()
    replaced[is_masked] = vocabulary.mask_id
    replaced[is_random] = vocabulary.random_ids[stream.integers(len(vocabulary.random_ids), num_random)]
    masked_ids = examples.input_ids.copy()
    masked_ids[chosen] = replaced
    num_chosen = np.bincount(example, minlength=len(budgets))
    return MaskedTokens(
        input_ids=masked_ids,
        positions=position.astype(np.uint16),
        position_offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(num_chosen)]),
        original_ids=original_ids,
        counts=MaskingCounts(
            num_maskable_tokens=int(num_maskable.sum()),
            num_chosen_tokens=len(chosen),
            num_masked_tokens=int(is_masked.sum()),
            num_random_tokens=num_random,
            num_kept_tokens=len(chosen) - int(is_masked.sum()) - num_random,
        ),
    )


def count_predictions(
    num_maskable: NDArray[np.int64], masked_lm_prob: float, max_predictions: int
) -> NDArray[np.int64]:
    """Tokens to choose in examples with so many maskable ones: int64 [E], each from 1 to `max_predictions`.

    A half is rounded to the even neighbour, as Python's `round` in Google's script does.
    """
    return np.clip(np.rint(num_maskable * masked_lm_prob).astype(np.int64), 1, max_predictions)


def _choose_pieces(
    examples: UnmaskedExamples,
    num_maskable: NDArray[np.int64],
    budgets: NDArray[np.int64],
    vocabulary: MaskingVocabulary,
    stream: RandomStream,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct positions, each as likely as any other: example and position, int64 [P] each, ascending."""
    place = np.flatnonzero(examples.maskable)
    first = np.cumsum(num_maskable) - num_maskable
    orders = draw_orders(num_maskable, stream)[:, : int(budgets.max())]
    is_chosen = np.arange(orders.shape[1]) < budgets[:, np.newaxis]
    example = np.repeat(np.arange(len(budgets)), is_chosen.sum(axis=1))
    return _in_order(example, place[first[example] + orders[is_chosen]] - examples.offsets[example])


def _choose_words(
    examples: UnmaskedExamples,
    num_maskable: NDArray[np.int64],
    budgets: NDArray[np.int64],
    vocabulary: MaskingVocabulary,
    stream: RandomStream,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Whole words in random order, each taken if all its pieces still fit into the example's budget.

    A word is a piece and the `##` pieces after it; pieces at the start of a segment whose beginning was cut
    off are a word too. This is the whole-word rule of Google's script. Where no word fits, that would choose
    nothing; here the word drawn first gives as many of its pieces as fit.
    """
    place = np.flatnonzero(examples.maskable)
    # Before a maskable token stands `[CLS]`, `[SEP]` or another maskable one, so place - 1 exists.
    begins = ~(vocabulary.is_continuation[examples.input_ids[place]] & examples.maskable[place - 1])
    word_start = np.flatnonzero(begins)
    word_size = np.diff(word_start, append=len(place))
    word_example = np.repeat(np.arange(len(num_maskable)), num_maskable)[word_start]
    num_words = np.bincount(word_example, minlength=len(num_maskable))
    orders = draw_orders(num_words, stream)
    taken = _fill_budgets(word_size, np.cumsum(num_words) - num_words, orders, num_words, budgets)
    pieces = np.repeat(word_start, taken) + _ranks_within(taken)
    example = np.repeat(word_example, taken)
    return example, place[pieces] - examples.offsets[example]


def _fill_budgets(
    word_size: NDArray[np.int64],
    first_word: NDArray[np.int64],
    orders: NDArray[np.uint16],
    num_words: NDArray[np.int64],
    budgets: NDArray[np.int64],
) -> NDArray[np.int64]:
    """How many pieces of each word are taken when an example's words are offered in turn: int64 [W]."""
    taken = np.zeros(len(word_size), np.int64)
    left = budgets.copy()
    for turn in range(orders.shape[1]):
        offered = np.flatnonzero((num_words > turn) & (left > 0))
        if len(offered) == 0:
            break
        word = first_word[offered] + orders[offered, turn]
        fits = word_size[word] <= left[offered]
        taken[word[fits]] = word_size[word[fits]]
        left[offered[fits]] -= word_size[word[fits]]
    bare = np.flatnonzero(left == budgets)
    taken[first_word[bare] + orders[bare, 0]] = budgets[bare]
    return taken


def draw_orders(counts: NDArray[np.int64], stream: RandomStream) -> NDArray[np.uint16]:
    """For each count n (at most 2,046) a uniformly random order of 0 … n - 1: uint16 [E, max(counts)].

    What follows the first n numbers of a row has no meaning.
    """
    width = int(counts.max(initial=0))
    orders = np.empty((len(counts), width), np.uint16)
    num_rows = max(1, _KEYS_AT_A_TIME // max(1, width))
    for start in range(0, len(counts), num_rows):
        rows = counts[start : start + num_rows, np.newaxis]
        # A key is a draw with its place in the lowest bits: all keys differ, so that every sorting algorithm
        # gives the same order. Sorting rows is some twenty times as fast as sorting one long array.
        keys = np.full((len(rows), width), _LAST_KEY)
        is_used = np.arange(width) < rows
        keys[is_used] = stream.words(int(rows.sum())) & ~_PLACE_MASK
        keys |= np.arange(width, dtype=np.uint64)
        keys.sort(axis=1)
        orders[start : start + num_rows] = keys & _PLACE_MASK
    return orders


def _in_order(
    example: NDArray[np.int64], position: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    keys = np.sort(example << _PLACE_BITS | position)
    return keys >> _PLACE_BITS, keys & int(_PLACE_MASK)


def _ranks_within(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """0, 1, … within each of several runs of these lengths: int64 [sum of lengths]."""
    starts = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) - np.repeat(starts, lengths)
