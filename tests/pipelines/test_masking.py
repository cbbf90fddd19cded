from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from pipelines import masking
from pipelines.masking import (
    MaskedTokens,
    MaskingVocabulary,
    UnmaskedExamples,
    count_predictions,
    draw_orders,
    mask_tokens,
)
from schemas.seeding import RandomStream

CLS, SEP, MASK = 2, 3, 4
VOCABULARY = MaskingVocabulary(
    cls_id=CLS,
    sep_id=SEP,
    mask_id=MASK,
    # Ids 0 to 4 are special, 5 to 9 reserved; every third of the rest goes on with a word.
    random_ids=np.arange(10, 510, dtype=np.uint32),
    is_continuation=np.array([i >= 10 and i % 3 == 0 for i in range(510)]),
)


def make_examples(segments: Sequence[Sequence[Sequence[int]]], dtype: type = np.uint16) -> UnmaskedExamples:
    """Examples of one or two segments each, with their special tokens."""
    rows = [[CLS, *(token for segment in example for token in [*segment, SEP])] for example in segments]
    flat = np.array([token for row in rows for token in row], dtype)
    offsets = np.cumsum([0, *map(len, rows)])
    return UnmaskedExamples(flat, offsets, (flat != CLS) & (flat != SEP))


def random_examples(count: int, lengths: NDArray[np.int64], seed: int = 0) -> UnmaskedExamples:
    stream = RandomStream(seed, "test examples", "masking")
    return make_examples(
        [[(10 + stream.integers(500, int(length))).tolist()] for length in np.resize(lengths, count)]
    )


def mask(examples: UnmaskedExamples, seed: int = 1, **settings: object) -> MaskedTokens:
    arguments = {"masked_lm_prob": 0.15, "max_predictions": 20, **settings}
    return mask_tokens(examples, VOCABULARY, RandomStream(seed, "masks", "train-00000"), **arguments)


def chosen_places(examples: UnmaskedExamples, masked: MaskedTokens) -> NDArray[np.int64]:
    counts = np.diff(masked.position_offsets)
    return np.repeat(examples.offsets[:-1], counts) + masked.positions


class ScriptedStream(RandomStream):
    """Gives the draws it is told to."""

    def __init__(self, words: list[int], floats: list[float], integers: list[int]) -> None:
        self._words, self._floats, self._integers = words, floats, integers

    def words(self, n: int) -> NDArray[np.uint64]:
        assert n == len(self._words)
        return np.array(self._words, np.uint64)

    def floats(self, n: int) -> NDArray[np.float64]:
        assert n == len(self._floats)
        return np.array(self._floats)

    def integers(self, bounds: object, n: int | None = None) -> NDArray[np.int64]:
        assert n == len(self._integers)
        return np.array(self._integers, np.int64)


def test_the_worked_example() -> None:
    # [CLS] the cat sat on the mat [SEP] it purred softly [SEP]: positions 2 and 9 of 9 maskable ones.
    the, cat, sat, on, mat, it, purred, softly = range(20, 28)
    examples = make_examples([[[the, cat, sat, on, the, mat], [it, purred, softly]]])
    draws = [9 << 32, 1 << 32, 8 << 32, 7 << 32, 6 << 32, 5 << 32, 4 << 32, 2 << 32, 3 << 32]

    masked = mask_tokens(
        examples,
        VOCABULARY,
        ScriptedStream(draws, [0.5, 0.95], []),
        masked_lm_prob=0.2,
        max_predictions=20,
    )

    assert masked.positions.tolist() == [2, 9]
    assert masked.positions.dtype == np.uint16
    assert masked.original_ids.tolist() == [cat, purred]
    assert masked.input_ids.tolist() == [CLS, the, MASK, sat, on, the, mat, SEP, it, purred, softly, SEP]
    assert masked.position_offsets.tolist() == [0, 2]
    assert masked.counts.model_dump() == {
        "num_maskable_tokens": 9,
        "num_chosen_tokens": 2,
        "num_masked_tokens": 1,
        "num_random_tokens": 0,
        "num_kept_tokens": 1,
    }


def test_the_three_fates_of_a_chosen_token() -> None:
    examples = make_examples([[[20, 21, 22, 23]]])

    masked = mask_tokens(
        examples,
        VOCABULARY,
        ScriptedStream([0, 0, 0, 0], [0.79999, 0.8, 0.89999, 0.9], [7, 499]),
        masked_lm_prob=0.99,
        max_predictions=20,
    )

    assert masked.positions.tolist() == [1, 2, 3, 4]
    assert masked.input_ids.tolist() == [CLS, MASK, 17, 509, 23, SEP]


@pytest.mark.parametrize("whole_words", [False, True], ids=["pieces", "whole words"])
def test_shares_over_two_hundred_thousand_positions(whole_words: bool) -> None:
    # Lengths over a range of whole periods of the rounding, so that rounding favours neither side.
    lengths = np.arange(20, 120)
    examples = random_examples(20_000, lengths)

    masked = mask(examples, whole_words=whole_words)

    counts = masked.counts
    n = counts.num_chosen_tokens
    assert n >= 200_000
    num_maskable = np.diff(examples.offsets) - 2
    if not whole_words:
        assert n == sum(min(20, max(1, round(length * 0.15))) for length in num_maskable.tolist())
        assert np.array_equal(np.diff(masked.position_offsets), count_predictions(num_maskable, 0.15, 20))
    share = n / counts.num_maskable_tokens
    assert abs(share - 0.15) < 4 * np.sqrt(0.15 * 0.85 / counts.num_maskable_tokens)
    for found, expected in [
        (counts.num_masked_tokens, 0.8),
        (counts.num_random_tokens, 0.1),
        (counts.num_kept_tokens, 0.1),
    ]:
        assert abs(found / n - expected) < 4 * np.sqrt(expected * (1 - expected) / n)
    _check_replacements(examples, masked)


def _check_replacements(examples: UnmaskedExamples, masked: MaskedTokens) -> None:
    places = chosen_places(examples, masked)
    after = masked.input_ids[places]
    is_masked = after == MASK
    is_same = after == masked.original_ids
    counts = masked.counts
    assert int(is_masked.sum()) == counts.num_masked_tokens
    # A random id may by chance be the one that stood there, so the ids to look at are those that differ …
    replaced = after[~is_masked & ~is_same]
    assert 0 <= counts.num_random_tokens - len(replaced) < 4 + 4 * counts.num_random_tokens / 500
    # … and those are uniform over the allowed ids, as the originals are.
    occurrences = np.bincount(replaced, minlength=510)
    assert occurrences[:10].sum() == 0
    assert stats.chisquare(occurrences[10:]).pvalue > 0.001


def test_fates_do_not_depend_on_each_other() -> None:
    examples = random_examples(20_000, np.array([100]))
    masked = mask(examples)
    is_masked = (masked.input_ids[chosen_places(examples, masked)] == MASK).reshape(-1, 15)

    # The number of masked tokens in an example is binomial: its variance tells dependence in an example.
    totals = is_masked.sum(axis=1)
    expected = stats.binom(15, 0.8).pmf(np.arange(16)) * len(totals)
    merged = np.append(expected[:8].sum(), expected[8:])
    found = np.bincount(totals, minlength=16)
    assert stats.chisquare(np.append(found[:8].sum(), found[8:]), merged).pvalue > 0.001


def test_every_place_is_as_likely_as_any_other_and_pairs_are_independent() -> None:
    examples = random_examples(30_000, np.array([10]))
    masked = mask(examples, masked_lm_prob=0.2)

    positions = masked.positions.reshape(-1, 2).astype(int)
    assert stats.chisquare(np.bincount(positions.ravel(), minlength=11)[1:11]).pvalue > 0.001
    pairs = np.bincount(positions[:, 0] * 11 + positions[:, 1], minlength=121).reshape(11, 11)
    assert stats.chisquare(pairs[np.triu_indices(11, 1)][10:]).pvalue > 0.001


EXAMPLES = st.lists(
    st.lists(st.lists(st.integers(10, 509), min_size=1, max_size=30), min_size=1, max_size=2),
    min_size=1,
    max_size=8,
)


@settings(deadline=None)
@given(
    segments=EXAMPLES,
    seed=st.integers(0, 1000),
    masked_lm_prob=st.floats(0.01, 0.99),
    max_predictions=st.integers(1, 40),
    whole_words=st.booleans(),
)
def test_originals_put_back_give_the_unmasked_tokens(
    segments: list[list[list[int]]],
    seed: int,
    masked_lm_prob: float,
    max_predictions: int,
    whole_words: bool,
) -> None:
    examples = make_examples(segments)
    before = examples.input_ids.copy()

    masked = mask(
        examples,
        seed,
        masked_lm_prob=masked_lm_prob,
        max_predictions=max_predictions,
        whole_words=whole_words,
    )

    assert np.array_equal(examples.input_ids, before)
    places = chosen_places(examples, masked)
    assert np.all(examples.maskable[places])
    assert np.all(np.diff(places) > 0)
    restored = masked.input_ids.copy()
    restored[places] = masked.original_ids
    assert np.array_equal(restored, before)
    numbers = np.diff(masked.position_offsets)
    budgets = count_predictions(
        np.add.reduceat(examples.maskable, examples.offsets[:-1], dtype=np.int64),
        masked_lm_prob,
        max_predictions,
    )
    assert np.all((numbers >= 1) & (numbers <= budgets))
    assert whole_words or np.array_equal(numbers, budgets)


@settings(deadline=None)
@given(segments=EXAMPLES, seed=st.integers(0, 1000))
def test_words_are_chosen_whole(segments: list[list[list[int]]], seed: int) -> None:
    examples = make_examples(segments)

    masked = mask(examples, seed, masked_lm_prob=0.4, whole_words=True)

    chosen = np.zeros(len(examples.input_ids), bool)
    chosen[chosen_places(examples, masked)] = True
    for start, stop in pairwise(examples.offsets.tolist()):
        words: list[list[int]] = []
        for place in range(start + 1, stop):
            if not examples.maskable[place]:
                words.append([])
            elif not words or not words[-1] or not VOCABULARY.is_continuation[examples.input_ids[place]]:
                words.append([place])
            else:
                words[-1].append(place)
        taken = [[bool(chosen[place]) for place in word] for word in words if word]
        partly = [word for word in taken if any(word) and not all(word)]
        # A word is cut only where no word at all fits into the example's number of predictions.
        if partly:
            num_maskable = sum(map(len, taken))
            assert len(partly) == 1
            assert sum(partly[0]) == chosen[start:stop].sum()
            assert min(map(len, taken)) > min(20, max(1, round(num_maskable * 0.4)))


def test_whole_words_fill_the_budget_past_a_word_that_does_not_fit() -> None:
    # Words of 3, 1 and 1 pieces in this order; two predictions are wanted.
    examples = make_examples([[[10, 12, 15, 11, 13]]])

    masked = mask_tokens(
        examples,
        VOCABULARY,
        ScriptedStream([1 << 32, 2 << 32, 3 << 32], [0.0, 0.0], []),
        masked_lm_prob=0.4,
        max_predictions=20,
        whole_words=True,
    )

    assert masked.positions.tolist() == [4, 5]


def test_a_word_too_long_for_every_budget_gives_a_part() -> None:
    examples = make_examples([[[10, 12, 15, 18, 21]]])

    masked = mask_tokens(
        examples,
        VOCABULARY,
        ScriptedStream([5], [0.0, 0.0], []),
        masked_lm_prob=0.4,
        max_predictions=20,
        whole_words=True,
    )

    assert masked.positions.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("num_maskable", "expected"), [(1, 1), (3, 1), (10, 2), (30, 4), (50, 8), (100, 15), (125, 19), (509, 20)]
)
def test_number_of_predictions(num_maskable: int, expected: int) -> None:
    # 10 x 0.15 = 1.5 and 30 x 0.15 = 4.5 go to the even neighbour; 20 is the limit.
    assert count_predictions(np.array([num_maskable]), 0.15, 20).tolist() == [expected]
    assert expected == min(20, max(1, round(num_maskable * 0.15)))


@settings(deadline=None)
@given(st.lists(st.integers(0, 40), max_size=12), st.integers(0, 99))
def test_orders_are_permutations(counts: list[int], seed: int) -> None:
    orders = draw_orders(np.array(counts, np.int64), RandomStream(seed, "masks", "x"))

    for count, row in zip(counts, orders.tolist(), strict=True):
        assert sorted(row[:count]) == list(range(count))


def test_orders_do_not_depend_on_how_many_are_drawn_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = np.array([3, 40, 7, 1, 25])
    whole = draw_orders(counts, RandomStream(1, "masks", "x"))

    monkeypatch.setattr(masking, "_KEYS_AT_A_TIME", 80)
    cut = draw_orders(counts, RandomStream(1, "masks", "x"))

    for count, expected, found in zip(counts, whole, cut, strict=True):
        assert np.array_equal(expected[:count], found[:count])


def test_the_largest_examples_fit() -> None:
    examples = random_examples(3, np.array([2046]))

    masked = mask(examples, max_predictions=2046, masked_lm_prob=0.99)

    assert np.diff(masked.position_offsets).tolist() == [2026] * 3
    assert masked.positions.max() <= 2046
