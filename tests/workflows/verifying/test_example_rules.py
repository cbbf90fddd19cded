from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from schemas.configs import BuildConfig
from schemas.manifests import TokenizerRecord
from trainer.data.example_arrays import NO_LABEL, ExampleArrays
from workflows.verifying.chosen_tokens import ChosenTokens
from workflows.verifying.example_rules import find_broken_rules
from workflows.verifying.rulebook import NO_RANGE, NUM_ID_RANGES, Rulebook, VocabularyRules

PAD, UNK, CLS, SEP, MASK = range(5)
TOKENIZER = TokenizerRecord(
    sha256="0" * 64, vocab_size=50, pad_id=PAD, unk_id=UNK, cls_id=CLS, sep_id=SEP, mask_id=MASK
)
CONFIG = BuildConfig(max_seq_length=16, masked_lm_prob=0.2)
RESERVED, CONTINUATION = 5, 17
VOCABULARY = VocabularyRules(
    num_replacements=44,
    range_of_id=np.array([NO_RANGE if i <= RESERVED else 0 for i in range(50)], np.uint8),
    range_sizes=np.array([44] + [0] * (NUM_ID_RANGES - 1)),
    is_continuation=np.arange(50) == CONTINUATION,
)


def _worked_examples() -> ExampleArrays:
    """The worked example of the literature, twice: 12 tokens, A of 6, B of 3, positions 2 and 9 chosen."""
    one = np.array([CLS, 10, MASK, 12, 13, 10, 14, SEP, 15, 16, 17, SEP])
    return ExampleArrays(
        input_ids=np.concatenate([one, one, np.zeros(12, dtype=np.int64)]).astype(np.uint16),
        starts=np.array([0, 12]),
        lengths=np.array([12, 12]),
        segment_a_lengths=np.array([8, 8]),
        masked_starts=np.array([0, 2]),
        masked_counts=np.array([2, 2]),
        masked_lm_positions=np.array([2, 9, 2, 9], dtype=np.uint16),
        masked_lm_ids=np.array([11, 16, 11, 16], dtype=np.uint16),
        labels=np.array([0, 1]),
    )


def _with(field: str, index: int, value: int) -> ExampleArrays:
    examples = _worked_examples()
    values = getattr(examples, field).copy()
    values[index] = value
    return replace(examples, **{field: values})


def _broken(
    examples: ExampleArrays, config: BuildConfig, vocabulary: VocabularyRules | None = VOCABULARY
) -> list[tuple[str, int]]:
    rulebook = Rulebook(config, TOKENIZER, vocabulary)
    return list(find_broken_rules(examples, ChosenTokens.of(examples, rulebook), rulebook))


def test_the_worked_example_breaks_no_rule() -> None:
    assert _broken(_worked_examples(), CONFIG) == []


@pytest.mark.parametrize(
    ("examples", "rule"),
    [
        pytest.param(_with("input_ids", 12, 10), "it doesn't begin with [CLS]", id="no-cls"),
        pytest.param(_with("input_ids", 23, 10), "it doesn't end with [SEP]", id="no-sep"),
        pytest.param(_with("input_ids", 19, 10), "segment A doesn't end with [SEP]", id="no-sep-after-a"),
        pytest.param(_with("segment_a_lengths", 1, 2), "segment A has no token", id="empty-a"),
        pytest.param(_with("segment_a_lengths", 1, 11), "segment B has no token", id="empty-b"),
        pytest.param(_with("labels", 1, NO_LABEL), "it has no label", id="no-label"),
        pytest.param(_with("input_ids", 15, CLS), "it has another [CLS] than the first", id="cls-inside"),
        pytest.param(_with("input_ids", 15, SEP), "it has a [SEP] within a segment", id="sep-inside"),
        pytest.param(_with("input_ids", 15, PAD), "it has padding", id="padding"),
        pytest.param(
            _with("input_ids", 15, MASK), "it has a [MASK] where nothing was chosen", id="extra-mask"
        ),
        pytest.param(
            _with("masked_lm_positions", 2, 0), "[CLS] or the last [SEP] was chosen", id="cls-chosen"
        ),
        pytest.param(
            _with("masked_lm_positions", 3, 7), "the [SEP] after segment A was chosen", id="sep-chosen"
        ),
        pytest.param(
            _with("masked_lm_ids", 3, SEP), "a special token is to be predicted", id="special-label"
        ),
        pytest.param(_with("input_ids", 21, RESERVED), "a reserved token was put in", id="reserved-put-in"),
        pytest.param(
            _with("input_ids", 21, CLS), "a special token other than [MASK] was put in", id="special-put-in"
        ),
    ],
)
def test_each_rule_is_found_with_its_example(examples: ExampleArrays, rule: str) -> None:
    assert (rule, 1) in _broken(examples, CONFIG)


def test_another_number_of_chosen_tokens() -> None:
    config = BuildConfig(
        max_seq_length=16, masked_lm_prob=0.5
    )  # 5 of 9 maskable tokens, round half to even: 4
    rule = "another number of tokens was chosen than the configuration says"
    assert _broken(_worked_examples(), config) == [(rule, 0)]
    whole_words = BuildConfig(max_seq_length=16, masked_lm_prob=0.5, whole_word_mask=True)
    assert _broken(_worked_examples(), whole_words, None) == []


def test_one_segment_without_a_label() -> None:
    rules = [rule for rule, _ in _broken(_worked_examples(), BuildConfig(objective="mlm"))]
    assert "it has a second segment, which --objective mlm doesn't make" in rules
    assert "it has a label, which --objective mlm doesn't make" in rules


PART, ROOM = "a part of a word was chosen", "one more whole word would have fitted"


@pytest.mark.parametrize(
    ("places", "max_predictions", "rules"),
    [
        # Words: the, cat, sat, on, the, mat; it, [purred ##softly].
        pytest.param([2], 1, [], id="a-word"),
        pytest.param([9, 10], 2, [], id="a-word-of-two-pieces"),
        pytest.param([2, 9, 10], 3, [], id="two-words"),
        pytest.param([9], 1, [(PART, 1)], id="a-part-where-a-word-fits"),
        pytest.param([2, 9], 2, [(PART, 1)], id="a-part-beside-a-word"),
        pytest.param([2], 2, [(ROOM, 1)], id="room-for-another-word"),
        pytest.param([1, 2, 3, 4, 5, 6, 8], 8, [], id="the-word-left-has-two-pieces"),
        pytest.param([1, 2, 3, 4, 5, 6, 8], 9, [(ROOM, 1)], id="and-fits"),
    ],
)
def test_whole_words(places: list[int], max_predictions: int, rules: list[tuple[str, int]]) -> None:
    config = BuildConfig(
        max_seq_length=16, masked_lm_prob=0.99, max_predictions_per_seq=max_predictions, whole_word_mask=True
    )
    budget = min(max_predictions, 9)
    first = [2, 9, 10, 1, 3, 4, 5, 6, 8][:budget]
    sound = {1: [2], 2: [9, 10]}.get(budget, sorted(first))
    examples = _chosen_at(sound, places)
    assert _broken(examples, config) == rules


def test_a_word_longer_than_the_budget_may_be_cut_where_no_other_fits() -> None:
    ids = np.array([CLS, 10, CONTINUATION, CONTINUATION, SEP, 11, CONTINUATION, SEP], np.uint16)
    one = replace(
        _worked_examples(),
        input_ids=np.concatenate([ids, np.zeros(8, np.uint16)]),
        starts=np.array([0]),
        lengths=np.array([8]),
        segment_a_lengths=np.array([5]),
        masked_starts=np.array([0]),
        masked_counts=np.array([1]),
        masked_lm_positions=np.array([1], np.uint16),
        masked_lm_ids=np.array([10], np.uint16),
        labels=np.array([0]),
    )
    config = BuildConfig(max_seq_length=16, whole_word_mask=True)  # 15% of 5 tokens: one
    assert _broken(one, config) == []
    fits = replace(one, input_ids=np.where(np.arange(16) == 6, 12, one.input_ids).astype(np.uint16))
    assert _broken(fits, config) == [(PART, 0)]


def _chosen_at(*places: list[int]) -> ExampleArrays:
    """The worked example once for each list of positions, with `[MASK]` at each of them."""
    one = np.array([CLS, 10, 11, 12, 13, 10, 14, SEP, 15, 16, 17, SEP])
    ids = np.concatenate([one] * len(places) + [np.zeros(12, np.int64)])
    flat = np.concatenate([12 * row + np.array(list_) for row, list_ in enumerate(places)])
    masked_ids = ids[flat]
    ids[flat] = MASK
    counts = np.array([len(list_) for list_ in places])
    return replace(
        _worked_examples(),
        input_ids=ids.astype(np.uint16),
        starts=12 * np.arange(len(places)),
        masked_starts=np.cumsum(counts) - counts,
        masked_counts=counts,
        masked_lm_positions=(flat % 12).astype(np.uint16),
        masked_lm_ids=masked_ids.astype(np.uint16),
    )
