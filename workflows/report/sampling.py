"""Which part of a large folder is read: chosen by arithmetic on the manifest, the same every time.

In: a manifest and how many tokens to read. Out: which blocks of which shards, or which row groups. A folder
of no more tokens than that is read whole. Blocks hold examples in random order already, so the first ones of
evenly spaced shards are as good as any; row groups hold documents in the order of the input, so they are
drawn by their digest, which is as random as a hash.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas.manifests import SPLITS, CorpusFile, CorpusManifest, DatasetManifest, RowGroup, ShardRecord

# Each file costs a request or two, wherever it lies.
MOST_FILES = 256


@dataclass(frozen=True)
class ShardPlan:
    """The first `num_blocks` blocks of a shard."""

    shard: ShardRecord
    num_blocks: int


@dataclass(frozen=True)
class RowGroupPlan:
    """One row group of a file."""

    file: CorpusFile
    index: int

    @property
    def row_group(self) -> RowGroup:
        """What the manifest says of it."""
        return self.file.row_groups[self.index]


def plan_blocks(manifest: DatasetManifest, sample_tokens: int) -> list[ShardPlan]:
    """About `sample_tokens` tokens of blocks, of each split its share and at least one block."""
    share = min(1.0, sample_tokens / max(1, manifest.num_tokens))
    plans = []
    for split in SPLITS:
        shards = manifest.shards_of(split)
        num_wanted = math.ceil(share * sum(shard.num_blocks for shard in shards))
        plans += _plan_split(shards, num_wanted)
    return plans


def plan_row_groups(manifest: CorpusManifest, sample_tokens: int) -> list[RowGroupPlan]:
    """Row groups of about `sample_tokens` tokens, at least one, in the order of their digests."""
    everything = [
        RowGroupPlan(file, index) for file in manifest.files for index in range(len(file.row_groups))
    ]
    everything.sort(key=lambda plan: (plan.row_group.digest, plan.file.name, plan.index))
    chosen: list[RowGroupPlan] = []
    num_tokens = 0
    whole = manifest.num_tokens <= sample_tokens
    for plan in everything:
        if not whole and (num_tokens >= sample_tokens or len(chosen) >= MOST_FILES):
            break
        chosen.append(plan)
        num_tokens += plan.row_group.num_tokens
    return chosen


def choose_evenly(total: int, wanted: int) -> NDArray[np.int64]:
    """Numbers below `total`, evenly spaced and ascending: int64 [min(total, wanted)]."""
    count = min(total, wanted)
    return (np.arange(count, dtype=np.int64) * 2 + 1) * total // max(1, 2 * count)


def _plan_split(shards: Sequence[ShardRecord], num_wanted: int) -> list[ShardPlan]:
    everything = sum(shard.num_blocks for shard in shards)
    if num_wanted < everything and len(shards) > MOST_FILES:
        shards = [shards[index] for index in choose_evenly(len(shards), MOST_FILES)]
    ends = np.cumsum([shard.num_blocks for shard in shards])
    numbers = choose_evenly(int(ends[-1]), num_wanted) if len(shards) else np.empty(0, dtype=np.int64)
    counts = Counter(np.searchsorted(ends, numbers, side="right").tolist())
    return [ShardPlan(shards[index], counts[index]) for index in sorted(counts)]
