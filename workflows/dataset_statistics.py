"""What a dataset's shards add up to: counts, and the shares that pairing and masking came out with.

In: the shard records of a manifest. Out: a plain dictionary for a summary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schemas.manifests import SPLITS, ShardRecord

FIRST_LABEL = {"next-sentence": "is next", "sentence-order": "in order"}
"""What a label of 0 says, by objective."""


def summarize_shards(shards: Sequence[ShardRecord]) -> dict[str, Any]:
    """Counts over some shards, and shares: None where there is nothing to take a share of.

    `is_next_share` is of the labelled examples, `chosen_share` of the maskable tokens, and `mask_share`,
    `random_share` and `kept_share` of the chosen tokens.
    """
    num_is_next = sum(shard.num_is_next for shard in shards)
    num_labels = num_is_next + sum(shard.num_not_next for shard in shards)
    num_chosen = sum(shard.masking.num_chosen_tokens for shard in shards)
    num_maskable = sum(shard.masking.num_maskable_tokens for shard in shards)
    return {
        "num_examples": sum(shard.num_examples for shard in shards),
        "num_examples_by_split": {
            split: sum(shard.num_examples for shard in shards if shard.split == split) for split in SPLITS
        },
        "num_tokens": sum(shard.num_tokens for shard in shards),
        "num_shards": len(shards),
        "num_documents": sum(shard.num_documents for shard in shards),
        "num_documents_unused": sum(shard.num_documents_unused for shard in shards),
        "num_masked_tokens": num_chosen,
        "is_next_share": share(num_is_next, num_labels),
        "chosen_share": share(num_chosen, num_maskable),
        "mask_share": share(sum(shard.masking.num_masked_tokens for shard in shards), num_chosen),
        "random_share": share(sum(shard.masking.num_random_tokens for shard in shards), num_chosen),
        "kept_share": share(sum(shard.masking.num_kept_tokens for shard in shards), num_chosen),
        "size_bytes": sum(shard.size_bytes for shard in shards),
    }


def share(part: int, whole: int) -> float | None:
    """A part of a whole, to six decimals; None where there is no whole."""
    return round(part / whole, 6) if whole else None
