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
from trainer.data.order import ShardSize, Window


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
        self._shards: list[tuple[Dataset, ShardRecord]] = [
            (dataset, shard) for dataset in self._datasets for shard in dataset.require_split(split)
        ]
        self._reader = BlockRunReader()
        self.pad_id = self._datasets[0].manifest.tokenizer.pad_id

    def sizes(self) -> list[ShardSize]:
        """What the order needs to know, a shard's number being its place here."""
        return [
            ShardSize(shard.num_examples, shard.num_blocks, dataset.manifest.config.examples_per_block)
            for dataset, shard in self._shards
        ]

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


def _check_same_tokenizer(datasets: Sequence[Dataset]) -> None:
    first = datasets[0]
    for dataset in datasets[1:]:
        if dataset.manifest.tokenizer != first.manifest.tokenizer:
            raise UsageError(
                f"{dataset.url} and {first.url} were made with different tokenizers "
                f"({dataset.manifest.tokenizer.sha256[:12]}…, {first.manifest.tokenizer.sha256[:12]}…).\n"
                f"Build both from corpora of one tokenizer."
            )
