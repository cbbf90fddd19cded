"""What the random draws of a dataset came out as: how tokens were replaced, which were chosen, the labels.

In: examples that break no rule. Out: a `DrawTally`, small enough to travel between processes, and sums of
tallies. Deterministic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from schemas.examples import MAX_SEQ_LENGTH_LIMIT, NOT_NEXT
from schemas.manifests import ShardRecord
from trainer.data.example_arrays import NO_LABEL, ExampleArrays
from workflows.verifying.chosen_tokens import ChosenTokens
from workflows.verifying.rulebook import NUM_ID_RANGES, Rulebook, VocabularyRules, count_maskable

NUM_PARTS = 8
"""Parts of an example, from front to back, by which chosen positions are counted."""

IntArray = NDArray[np.int64]


def _zeros(size: int) -> Callable[[], IntArray]:
    return lambda: np.zeros(size, np.int64)


@dataclass
class DrawTally:
    """Counts over examples.

    Attributes:
        num_examples: examples.
        num_maskable: tokens that could be chosen.
        num_to_choose: tokens that the configuration says to choose; with whole words at most so many.
        num_chosen: tokens that were chosen.
        num_masked: chosen tokens that became `[MASK]`.
        num_other: chosen tokens that became another token of the vocabulary.
        num_replaceable: chosen tokens whose original is among the ids that may replace one.
        num_kept_on_record: chosen tokens that were kept, as the manifest says.
        others_by_range: [NUM_ID_RANGES + 1], the other tokens by the range of their id.
        originals_by_range: as long, what the other tokens replaced by the range of its id.
        num_labels: examples with a label.
        num_not_next: labels that are 1.
        expected_not_next: what the manifest says that these differ from by chance alone.
        by_part: [NUM_PARTS], chosen places by the part of the example that they lie in.
        chosen_by_places: [n], the same, by the number of places in the example that could be chosen.
        by_length: [n], examples by their length.
    """

    num_examples: int = 0
    num_maskable: int = 0
    num_to_choose: int = 0
    num_chosen: int = 0
    num_masked: int = 0
    num_other: int = 0
    num_replaceable: int = 0
    num_kept_on_record: int = 0
    others_by_range: IntArray = field(default_factory=_zeros(NUM_ID_RANGES + 1))
    originals_by_range: IntArray = field(default_factory=_zeros(NUM_ID_RANGES + 1))
    num_labels: int = 0
    num_not_next: int = 0
    expected_not_next: float = 0.0
    by_part: IntArray = field(default_factory=_zeros(NUM_PARTS))
    chosen_by_places: IntArray = field(default_factory=_zeros(MAX_SEQ_LENGTH_LIMIT + 1))
    by_length: IntArray = field(default_factory=_zeros(MAX_SEQ_LENGTH_LIMIT + 1))

    def add(self, examples: ExampleArrays, chosen: ChosenTokens, rulebook: Rulebook) -> None:
        """Count one block."""
        num_maskable = count_maskable(examples)
        self.num_examples += len(examples)
        self.num_maskable += int(num_maskable.sum())
        self.num_to_choose += int(rulebook.budget(num_maskable).sum())
        self.num_chosen += len(chosen.rows)
        self.num_masked += int(np.count_nonzero(chosen.stands == rulebook.tokenizer.mask_id))
        self.num_labels += int(np.count_nonzero(examples.labels != NO_LABEL))
        self.num_not_next += int(np.count_nonzero(examples.labels == NOT_NEXT))
        self.by_length += np.bincount(examples.lengths, minlength=len(self.by_length))
        is_other = (chosen.stands != rulebook.tokenizer.mask_id) & (chosen.stands != chosen.stood)
        self.num_other += int(np.count_nonzero(is_other))
        if rulebook.vocabulary is not None:
            self._add_replacements(chosen, is_other, rulebook.vocabulary)
        if not rulebook.config.whole_word_mask:
            ranks = chosen.positions - 1 - (chosen.positions >= examples.segment_a_lengths[chosen.rows])
            self._add_places(ranks, num_maskable[chosen.rows])
        elif chosen.words is not None:
            ranks, counts, is_chosen = chosen.words.ranks_of_single_pieces()
            self._add_places(ranks[is_chosen], counts[is_chosen])

    def add_record(self, shard: ShardRecord) -> None:
        """Note what the manifest alone can say of a shard."""
        self.num_kept_on_record += shard.masking.num_kept_tokens
        num_labels = shard.num_is_next + shard.num_not_next
        recorded = shard.expected_not_next
        self.expected_not_next += num_labels / 2 if recorded is None else recorded

    def describe_lengths(self, max_seq_length: int) -> dict[str, float]:
        """Figures of the examples' lengths in tokens; all 0 where there is no example.

        `short_share` is the share of examples of less than half of `max_seq_length`.
        """
        reached = np.cumsum(self.by_length)
        total = max(1, int(reached[-1]))
        sizes = np.arange(len(self.by_length))
        return {
            "mean": round(float(sizes @ self.by_length) / total, 3),
            "shortest": int(np.argmax(reached > 0)),
            "median": int(np.argmax(reached >= total / 2)),
            "longest": int(sizes[self.by_length > 0].max(initial=0)),
            "short_share": round(int(self.by_length[sizes < max_seq_length / 2].sum()) / total, 6),
        }

    def merge(self, other: DrawTally) -> None:
        """Add the counts of another tally."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def _add_replacements(
        self, chosen: ChosenTokens, is_other: NDArray[np.bool_], vocabulary: VocabularyRules
    ) -> None:
        originals = vocabulary.range_of_id[chosen.stood]
        self.num_replaceable += int(np.count_nonzero(originals < NUM_ID_RANGES))
        size = NUM_ID_RANGES + 1
        self.originals_by_range += np.bincount(originals[is_other], minlength=size)
        put_in = vocabulary.range_of_id[chosen.stands[is_other]]
        self.others_by_range += np.bincount(put_in, minlength=size)

    def _add_places(self, ranks: IntArray, num_places: IntArray) -> None:
        self.by_part += np.bincount(ranks * NUM_PARTS // num_places, minlength=NUM_PARTS)
        self.chosen_by_places += np.bincount(num_places, minlength=len(self.chosen_by_places))
