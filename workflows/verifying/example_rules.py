"""The rules of pairing and masking that every single example keeps.

In: examples whose values lie in their ranges, which the trainer's reader has checked. Out: the rules that
some of them break, each with the first example that does. Deterministic.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.data.example_arrays import NO_LABEL, ExampleArrays
from workflows.verifying.chosen_tokens import ChosenTokens
from workflows.verifying.rulebook import NO_RANGE, Rulebook, count_maskable

Rows = NDArray[np.integer[Any]]


def find_broken_rules(
    examples: ExampleArrays, chosen: ChosenTokens, rulebook: Rulebook
) -> Iterator[tuple[str, int]]:
    """The rules that some examples break: (rule, number of the first example that breaks it)."""
    for rule, rows in _broken(examples, chosen, rulebook):
        if len(rows):
            yield rule, int(rows.min())


def _broken(examples: ExampleArrays, chosen: ChosenTokens, rulebook: Rulebook) -> Iterator[tuple[str, Rows]]:
    yield from _broken_layout(examples, rulebook)
    yield from _broken_text(examples, chosen, rulebook)
    yield from _broken_masking(examples, chosen, rulebook)
    yield from _broken_choice(examples, chosen, rulebook)


def _broken_layout(examples: ExampleArrays, rulebook: Rulebook) -> Iterator[tuple[str, Rows]]:
    """Where the special tokens stand, how long the segments are, whether there is a label."""
    ids, starts, lengths = examples.input_ids, examples.starts, examples.lengths
    a_lengths, tokenizer = examples.segment_a_lengths, rulebook.tokenizer
    yield "it doesn't begin with [CLS]", np.flatnonzero(ids[starts] != tokenizer.cls_id)
    yield "it doesn't end with [SEP]", np.flatnonzero(ids[starts + lengths - 1] != tokenizer.sep_id)
    ends_of_a = ids[starts + a_lengths - 1]
    yield "segment A doesn't end with [SEP]", np.flatnonzero(ends_of_a != tokenizer.sep_id)
    yield "segment A has no token", np.flatnonzero(a_lengths < 3)
    if rulebook.config.objective == "mlm":
        rule = "it has a second segment, which --objective mlm doesn't make"
        yield rule, np.flatnonzero(a_lengths != lengths)
        yield (
            "it has a label, which --objective mlm doesn't make",
            np.flatnonzero(examples.labels != NO_LABEL),
        )
    else:
        yield "segment B has no token", np.flatnonzero(lengths - a_lengths < 2)
        yield "it has no label", np.flatnonzero(examples.labels == NO_LABEL)


def _broken_text(
    examples: ExampleArrays, chosen: ChosenTokens, rulebook: Rulebook
) -> Iterator[tuple[str, Rows]]:
    """Special tokens where the text is."""
    num_tokens = int(examples.lengths.sum())
    is_reserved = rulebook.is_reserved[examples.input_ids[:num_tokens]]
    is_reserved[examples.starts] = False
    is_reserved[examples.starts + examples.segment_a_lengths - 1] = False
    is_reserved[examples.starts + examples.lengths - 1] = False
    is_reserved[chosen.places] = False
    places = np.flatnonzero(is_reserved)
    rows = np.searchsorted(examples.starts, places, side="right") - 1
    found, tokenizer = examples.input_ids[places], rulebook.tokenizer
    yield "it has another [CLS] than the first", rows[found == tokenizer.cls_id]
    yield "it has a [SEP] within a segment", rows[found == tokenizer.sep_id]
    yield "it has padding", rows[found == tokenizer.pad_id]
    yield "it has a [MASK] where nothing was chosen", rows[found == tokenizer.mask_id]


def _broken_masking(
    examples: ExampleArrays, chosen: ChosenTokens, rulebook: Rulebook
) -> Iterator[tuple[str, Rows]]:
    """What was chosen, and what was put in its place."""
    rows, positions, stands = chosen.rows, chosen.positions, chosen.stands
    is_end = (positions == 0) | (positions == examples.lengths[rows] - 1)
    yield "[CLS] or the last [SEP] was chosen", rows[is_end]
    is_end_of_a = ~is_end & (positions == examples.segment_a_lengths[rows] - 1)
    yield "the [SEP] after segment A was chosen", rows[is_end_of_a]
    yield "a special token is to be predicted", rows[rulebook.is_reserved[chosen.stood]]
    put_in = np.flatnonzero((stands != rulebook.tokenizer.mask_id) & (stands != chosen.stood))
    is_special = rulebook.is_reserved[stands[put_in]]
    yield "a special token other than [MASK] was put in", rows[put_in[is_special]]
    if rulebook.vocabulary is not None:
        is_barred = ~is_special & (rulebook.vocabulary.range_of_id[stands[put_in]] == NO_RANGE)
        yield "a reserved token was put in", rows[put_in[is_barred]]


def _broken_choice(
    examples: ExampleArrays, chosen: ChosenTokens, rulebook: Rulebook
) -> Iterator[tuple[str, Rows]]:
    """How many tokens were chosen."""
    found, budget = examples.masked_counts, rulebook.budget(count_maskable(examples))
    yield "nothing was chosen in it", np.flatnonzero(found == 0)
    if not rulebook.config.whole_word_mask:
        rule = "another number of tokens was chosen than the configuration says"
        yield rule, np.flatnonzero(found != budget)
        return
    yield "more tokens were chosen than the configuration says", np.flatnonzero(found > budget)
    if chosen.words is not None:
        yield "a part of a word was chosen", chosen.words.rows_with_a_part(found, budget)
        yield "one more whole word would have fitted", chosen.words.rows_with_room(found, budget)
