"""What a shard was found to hold, against what the manifest says of it.

In: its examples, block by block, and its record. Out: a line for each count that differs. Deterministic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np

from schemas.examples import IS_NEXT, NOT_NEXT
from schemas.manifests import ShardRecord
from trainer.data.example_arrays import ExampleArrays
from workflows.verifying.chosen_tokens import ChosenTokens
from workflows.verifying.rulebook import count_maskable


@dataclass
class ShardCounts:
    """Sums over the blocks of a shard.

    A random replacement that happens to be the original token can't be told from a kept one, so `num_alike`
    counts both.
    """

    num_examples: int = 0
    num_blocks: int = 0
    num_tokens: int = 0
    num_is_next: int = 0
    num_not_next: int = 0
    num_maskable_tokens: int = 0
    num_chosen_tokens: int = 0
    num_masked_tokens: int = 0
    num_alike: int = 0

    def add(self, examples: ExampleArrays, chosen: ChosenTokens, mask_id: int) -> None:
        """Count one block."""
        self.num_examples += len(examples)
        self.num_blocks += 1
        self.num_tokens += int(examples.lengths.sum())
        self.num_is_next += int(np.count_nonzero(examples.labels == IS_NEXT))
        self.num_not_next += int(np.count_nonzero(examples.labels == NOT_NEXT))
        self.num_maskable_tokens += int(count_maskable(examples).sum())
        self.num_chosen_tokens += len(chosen.rows)
        self.num_masked_tokens += int(np.count_nonzero(chosen.stands == mask_id))
        self.num_alike += int(np.count_nonzero(chosen.stands == chosen.stood))

    def merge(self, other: ShardCounts) -> None:
        """Add the counts of another shard."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


def compare_counts(shard: ShardRecord, found: ShardCounts) -> Iterator[str]:
    """What the record of a shard says otherwise."""
    masking = shard.masking
    expected = {
        "num_examples": shard.num_examples,
        "num_blocks": shard.num_blocks,
        "num_tokens": shard.num_tokens,
        "num_is_next": shard.num_is_next,
        "num_not_next": shard.num_not_next,
        "num_maskable_tokens": masking.num_maskable_tokens,
        "num_chosen_tokens": masking.num_chosen_tokens,
        "num_masked_tokens": masking.num_masked_tokens,
    }
    for name, number in expected.items():
        if getattr(found, name) != number:
            yield f"{shard.name}: {name} is {getattr(found, name):,}, the manifest says {number:,}"
    if not masking.num_kept_tokens <= found.num_alike <= masking.num_kept_tokens + masking.num_random_tokens:
        yield (
            f"{shard.name}: {found.num_alike:,} chosen tokens stand as they stood, the manifest says "
            f"{masking.num_kept_tokens:,} were kept and {masking.num_random_tokens:,} drawn at random"
        )
    num_parts = masking.num_masked_tokens + masking.num_random_tokens + masking.num_kept_tokens
    if num_parts != masking.num_chosen_tokens:
        yield f"{shard.name}: masked, random and kept tokens don't add up to {masking.num_chosen_tokens:,}"
