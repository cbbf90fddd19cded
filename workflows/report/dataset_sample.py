"""What a sample of a dataset's blocks holds.

In: an opened dataset. Out: a `DatasetSample`: lengths, tokens as they stood before masking, and how much was
read. Memory: one block at a time. The manifest's counts are exact and are not taken again here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from trainer.data.blocks import iterate_blocks
from trainer.data.dataset import Dataset
from trainer.data.example_arrays import ExampleArrays, arrays_from_blocks
from workflows.report.length_tally import LengthTally
from workflows.report.sampling import plan_blocks
from workflows.report.token_tally import TokenTally, Vocabulary


@dataclass
class DatasetSample:
    """What was counted.

    Attributes:
        tokens: of the text, as it stood before masking.
        lengths: tokens of each example, `[CLS]` and `[SEP]` included.
        segment_a: tokens of each first segment, without special ones.
        segment_b: the same of each second segment, where there is one.
        num_shards_read: shards of which something was read.
        num_blocks_read: blocks.
        num_blocks: blocks of the dataset.
        num_examples_read: examples.
    """

    tokens: TokenTally
    lengths: LengthTally = field(default_factory=LengthTally)
    segment_a: LengthTally = field(default_factory=LengthTally)
    segment_b: LengthTally = field(default_factory=LengthTally)
    num_shards_read: int = 0
    num_blocks_read: int = 0
    num_blocks: int = 0
    num_examples_read: int = 0

    def add(self, examples: ExampleArrays) -> None:
        """Count one block."""
        self.num_blocks_read += 1
        self.num_examples_read += len(examples)
        a_lengths = examples.segment_a_lengths
        b_lengths = (examples.lengths - a_lengths - 1)[a_lengths < examples.lengths]
        self.lengths.add(examples.lengths)
        self.segment_a.add(a_lengths - 2)
        self.segment_b.add(b_lengths)
        rows = np.repeat(np.arange(len(examples)), examples.masked_counts)
        as_it_stood = examples.input_ids[: int(examples.lengths.sum())].copy()
        as_it_stood[examples.starts[rows] + examples.masked_lm_positions.astype(np.int64)] = (
            examples.masked_lm_ids
        )
        self.tokens.add(as_it_stood)


def sample_dataset(
    dataset: Dataset, vocabulary: Vocabulary, sample_tokens: int, progress: Callable[[int, int], None]
) -> DatasetSample:
    """Read and count a sample.

    Args:
        dataset: an opened dataset.
        vocabulary: its tokenizer.
        sample_tokens: about how many tokens to read.
        progress: called with (shards done, shards to read).

    Raises:
        CorruptDataError: a block is damaged. Checksums of whole shards are `verify`'s affair.
    """
    plans = plan_blocks(dataset.manifest, sample_tokens)
    sample = DatasetSample(
        tokens=TokenTally(vocabulary),
        num_shards_read=len(plans),
        num_blocks=sum(shard.num_blocks for shard in dataset.manifest.shards),
    )
    for done, plan in enumerate(plans, start=1):
        for block in islice(iterate_blocks(dataset, plan.shard, verify=False), plan.num_blocks):
            sample.add(arrays_from_blocks([block]))
        progress(done, len(plans))
    return sample
