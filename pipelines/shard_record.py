"""Count what goes into a shard, and put the records of all shards together in the manifest.

In: blocks of examples with their masking counts; the records of finished pools. Out: `ShardRecord`,
`DatasetManifest`. Deterministic: the same shards give the same manifest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.hashing_writer import WrittenFile
from pipelines.pools import PoolDescriptor
from pipelines.work_folder import created_by
from schemas.configs import BuildConfig
from schemas.examples import IS_NEXT, NOT_NEXT
from schemas.manifests import DatasetManifest, MaskingCounts, ShardRecord, TokenizerRecord


@dataclass
class ShardCounts:
    """Sums over the blocks of a shard."""

    num_examples: int = 0
    num_tokens: int = 0
    num_is_next: int = 0
    num_not_next: int = 0
    masking: Counter[str] = field(default_factory=Counter)

    def add(self, block: pa.RecordBatch, masking: MaskingCounts) -> None:
        """Count one block of examples."""
        self.num_examples += block.num_rows
        self.num_tokens += len(block.column("input_ids").flatten())
        labels = block.column("next_sentence_label")
        if labels.null_count < len(labels):
            values = labels.to_numpy(zero_copy_only=False)
            self.num_is_next += int(np.count_nonzero(values == IS_NEXT))
            self.num_not_next += int(np.count_nonzero(values == NOT_NEXT))
        self.masking.update(masking.model_dump())

    def to_record(
        self,
        pool: PoolDescriptor,
        file: WrittenFile,
        num_blocks: int,
        num_documents_unused: int,
        expected_not_next: float | None,
    ) -> ShardRecord:
        """The record of a finished shard."""
        return ShardRecord(
            name=file.name,
            split=pool.split,
            sha256=file.sha256,
            size_bytes=file.size_bytes,
            num_examples=self.num_examples,
            num_blocks=num_blocks,
            num_tokens=self.num_tokens,
            num_is_next=self.num_is_next,
            num_not_next=self.num_not_next,
            expected_not_next=None if expected_not_next is None else round(expected_not_next, 3),
            masking=MaskingCounts(**self.masking),
            num_documents=pool.num_documents,
            num_documents_unused=num_documents_unused,
        )


@dataclass(frozen=True, kw_only=True)
class DatasetDraft:
    """What a dataset's manifest says before any shard is written; small enough to travel with a step.

    Attributes:
        config: of the build.
        tokenizer: of the corpus.
        corpus_fingerprint: of the corpus.
        pool_names: the pools in the order of their shards.
    """

    config: BuildConfig
    tokenizer: TokenizerRecord
    corpus_fingerprint: str
    pool_names: tuple[str, ...]

    def complete(self, records: Iterable[Mapping[str, Any]]) -> DatasetManifest | None:
        """The manifest, from the records of all pools in the order of `pool_names`.

        A pool that gave no example has no shard. None where no pool of `train` gave one.
        """
        shards = [ShardRecord(**record["shard"]) for record in records if record["shard"] is not None]
        if not any(shard.split == "train" for shard in shards):
            return None
        return DatasetManifest(
            created_by=created_by(),
            config=self.config,
            tokenizer=self.tokenizer,
            corpus_fingerprint=self.corpus_fingerprint,
            num_examples=sum(shard.num_examples for shard in shards),
            num_tokens=sum(shard.num_tokens for shard in shards),
            shards=tuple(shards),
        )
