from __future__ import annotations

import numpy as np

from schemas.configs import BuildConfig
from schemas.manifests import MaskingCounts, ShardRecord, TokenizerRecord
from trainer.data.example_arrays import ExampleArrays
from workflows.verifying.chosen_tokens import ChosenTokens
from workflows.verifying.draw_tally import DrawTally
from workflows.verifying.rulebook import NO_RANGE, NUM_ID_RANGES, Rulebook, VocabularyRules

PAD, UNK, CLS, SEP, MASK = range(5)
TOKENIZER = TokenizerRecord(
    sha256="0" * 64, vocab_size=37, pad_id=PAD, unk_id=UNK, cls_id=CLS, sep_id=SEP, mask_id=MASK
)
# Ids 5 to 36: two in each range. 12 and 17 go on with a word.
VOCABULARY = VocabularyRules(
    num_replacements=32,
    range_of_id=np.array([NO_RANGE] * 5 + [i // 2 for i in range(32)], np.uint8),
    range_sizes=np.full(NUM_ID_RANGES, 2),
    is_continuation=np.isin(np.arange(37), [12, 17]),
)


def _examples() -> ExampleArrays:
    """`[CLS] 10 11 12 13 [SEP] 15 16 17 [SEP]` with 11 masked, 36 for 16, 17 kept; and a short one."""
    long, short = [CLS, 10, MASK, 12, 13, SEP, 15, 36, 17, SEP], [CLS, MASK, SEP, 20, SEP]
    return ExampleArrays(
        input_ids=np.array(long + short + [0] * 10, np.uint16),
        starts=np.array([0, 10]),
        lengths=np.array([10, 5]),
        segment_a_lengths=np.array([6, 3]),
        masked_starts=np.array([0, 3]),
        masked_counts=np.array([3, 1]),
        masked_lm_positions=np.array([2, 7, 8, 1], np.uint16),
        masked_lm_ids=np.array([11, 16, 17, UNK], np.uint16),
        labels=np.array([1, 0]),
    )


def _tally(vocabulary: VocabularyRules | None = VOCABULARY, **settings: object) -> DrawTally:
    config = BuildConfig(masked_lm_prob=0.4, **settings)  # type: ignore[arg-type]
    rulebook, tally = Rulebook(config, TOKENIZER, vocabulary), DrawTally()
    tally.add(_examples(), ChosenTokens.of(_examples(), rulebook), rulebook)
    return tally


def _nonzero(counts: np.ndarray) -> dict[int, int]:
    return {int(index): int(counts[index]) for index in np.flatnonzero(counts)}


def test_two_examples_counted_by_hand() -> None:
    tally = _tally()
    assert (tally.num_examples, tally.num_maskable, tally.num_chosen) == (2, 7 + 2, 4)
    assert tally.num_to_choose == 3 + 1  # 2.8 and 0.8, rounded
    assert (tally.num_masked, tally.num_other, tally.num_replaceable) == (2, 1, 3)
    assert _nonzero(tally.others_by_range) == {15: 1}  # 36
    assert _nonzero(tally.originals_by_range) == {5: 1}  # 16
    assert (tally.num_labels, tally.num_not_next) == (2, 1)
    # Of 7 places the second, sixth and seventh (8 * 1 // 7, …); of 2 the first.
    assert _nonzero(tally.by_part) == {0: 1, 1: 1, 5: 1, 6: 1}
    assert _nonzero(tally.chosen_by_places) == {2: 1, 7: 3}
    assert _nonzero(tally.by_length) == {5: 1, 10: 1}


def test_whole_words_count_words_of_one_piece() -> None:
    """10, [11 ##12], 13; 15, [16 ##17]: 10, 13 and 15 are of one piece, none chosen; of UNK and 20 UNK is."""
    tally = _tally(whole_word_mask=True)
    assert _nonzero(tally.by_part) == {0: 1}
    assert _nonzero(tally.chosen_by_places) == {2: 1}


def test_without_a_vocabulary_ids_are_not_counted() -> None:
    tally = _tally(vocabulary=None, whole_word_mask=True)
    assert (tally.num_other, tally.num_replaceable) == (1, 0)
    assert not tally.others_by_range.any()
    assert not tally.by_part.any()


def test_tallies_add_up() -> None:
    one, both = _tally(), _tally()
    both.merge(one)
    assert (both.num_examples, both.num_chosen, both.by_part.sum()) == (4, 8, 8)
    assert one.num_examples == 2


def test_chances_of_labels_come_from_the_record_or_are_a_half() -> None:
    counts = MaskingCounts(**dict.fromkeys(MaskingCounts.model_fields, 1))
    shard = ShardRecord(
        **dict.fromkeys(("size_bytes", "num_examples", "num_blocks", "num_tokens"), 9),
        **dict.fromkeys(("num_documents", "num_documents_unused"), 9),
        name="a.tar",
        split="train",
        sha256="0" * 64,
        num_is_next=2,
        num_not_next=7,
        masking=counts,
    )
    tally = DrawTally()
    tally.add_record(shard)
    assert (tally.expected_not_next, tally.num_kept_on_record) == (4.5, 1)
    tally.add_record(shard.model_copy(update={"expected_not_next": 6.25}))
    assert tally.expected_not_next == 10.75


def test_lengths() -> None:
    assert _tally().describe_lengths(16) == {
        "mean": 7.5,
        "shortest": 5,
        "median": 5,
        "longest": 10,
        "short_share": 0.5,
    }
    assert set(DrawTally().describe_lengths(16).values()) == {0}
