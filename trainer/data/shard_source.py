"""The shards of one split of one or several datasets, by number: what `order` counts and the loader reads.

In: opened datasets. Out: sizes for the order, a fingerprint for the state, and windows as NumPy arrays.
Deterministic: shards come in the order of the datasets given, and within one in that of its manifest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from schemas.errors import UsageError
from schemas.manifests import ShardRecord, Split
from trainer.data.blocks import BlockRunReader
from trainer.data.dataset import Dataset
from trainer.data.example_arrays import ExampleArrays, arrays_from_blocks
from trainer.data.order import Window
from trainer.data.packed_batches import Density
from trainer.data.units import ShardSize


class ShardSource:
    """The shards of one split of one or several datasets, by number.

    Args:
        datasets: one or several, all made with the same tokenizer.
        split: which split; each dataset has examples in it.

    Attributes:
        pad_id: the id of `[PAD]`.

    Raises:
        UsageError: no example in the split, or two tokenizers.
    """

    def __init__(self, datasets: Dataset | Sequence[Dataset], split: Split) -> None:
        self._datasets = (datasets,) if isinstance(datasets, Dataset) else tuple(datasets)
        _check_same_tokenizer(self._datasets)
        self._split: Split = split
        self._shards: list[tuple[Dataset, ShardRecord]] = [
            (dataset, shard) for dataset in self._datasets for shard in dataset.require_split(split)
        ]
        self._numbers = [
            number for number, one in enumerate(self._datasets) for _ in one.require_split(split)
        ]
        self._reader = BlockRunReader()
        self.pad_id = self._datasets[0].manifest.tokenizer.pad_id

    def sizes(self) -> list[ShardSize]:
        """What the order needs to know, a shard's number being its place here."""
        return [
            ShardSize(
                num_examples=shard.num_examples,
                num_blocks=shard.num_blocks,
                examples_per_block=dataset.manifest.config.examples_per_block,
                num_tokens=shard.num_tokens,
                dataset=number,
            )
            for number, (dataset, shard) in zip(self._numbers, self._shards, strict=True)
        ]

    def densest(self) -> Density:
        """Examples and masked positions for each token, in the dataset that has the most of either."""
        densities = [_density_of(dataset.require_split(self._split)) for dataset in self._datasets]
        return Density(*map(max, zip(*densities, strict=True)))

    def require_lengths(self, row_length: int) -> None:
        """Check that every example fits into a row.

        Raises:
            UsageError: a dataset's `max_seq_length` is larger.
        """
        for dataset in self._datasets:
            longest = dataset.manifest.config.max_seq_length
            if longest > row_length:
                raise UsageError(
                    f"{dataset.url} has examples of up to {longest} tokens, which rows of {row_length} can't "
                    f"hold.\nPack them into rows of {longest}."
                )

    def fingerprint(self) -> str:
        """SHA-256 over the checksums of all shards: the same wherever the datasets lie."""
        return hashlib.sha256("\n".join(shard.sha256 for _, shard in self._shards).encode()).hexdigest()

    def read_window(self, window: Window) -> ExampleArrays:
        """The examples of a window in stored order.

        Raises:
            ClozelineError: a shard can't be read or is not what its manifest says.
        """
        blocks = []
        for run in window.runs:
            dataset, shard = self._shards[run.shard]
            blocks += self._reader.read_run(dataset, shard, run.first_block, run.num_blocks)
        return arrays_from_blocks(blocks)


def _density_of(shards: Sequence[ShardRecord]) -> Density:
    num_tokens = sum(shard.num_tokens for shard in shards)
    num_examples = sum(shard.num_examples for shard in shards)
    num_masked = sum(shard.masking.num_chosen_tokens for shard in shards)
    return Density(num_examples / num_tokens, num_masked / num_tokens)


def _check_same_tokenizer(datasets: Sequence[Dataset]) -> None:
    first = datasets[0]
    for dataset in datasets[1:]:
        if dataset.manifest.tokenizer != first.manifest.tokenizer:
            raise UsageError(
                f"{dataset.url} and {first.url} were made with different tokenizers "
                f"({dataset.manifest.tokenizer.sha256[:12]}…, {first.manifest.tokenizer.sha256[:12]}…).\n"
                f"Build both from corpora of one tokenizer."
            )
