"""The examples that the trainer's benchmarks run on: datasets built by clozeline, and mixes of lengths.

In: a corpus, or datasets that were built before. Out: a dataset of a greatest length, and the numbers of
examples chosen from it. Examples are real ones, whole and unchanged; a mix of lengths is made by choosing
among them. Deterministic for a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.corpora import Corpus
from tests.benchmarks.measuring import Watch, measure
from trainer.data.dataset import Dataset, open_dataset

Mix = Literal["near-128", "short"]
MIXES: dict[Mix, str] = {
    "near-128": "nine examples in ten of 120 to 128 tokens, one of any smaller length",
    "short": "lengths uniform from 20 to 128",
}
_NEAR_SHARE = 0.9
_NEAR_LENGTH = 120
_SHORTEST = 20
_LONGEST = 128


class Datasets:
    """Datasets by their greatest length: those that were given, and others as they are asked for.

    Args:
        given: datasets that were built before.
        corpus: what others are built from; called when the first one is.
        folder: where they are built.
    """

    def __init__(self, given: Sequence[str], corpus: Callable[[], Corpus], folder: Path) -> None:
        self._urls = {open_dataset(url).manifest.config.max_seq_length: url for url in given}
        self._corpus = corpus
        self._folder = folder

    def with_length(self, max_seq_length: int) -> str:
        """The URL of the dataset whose examples have so many tokens at most."""
        if max_seq_length not in self._urls:
            corpus, output = self._corpus(), self._folder / f"dataset-{max_seq_length}"
            arguments = (str(corpus.documents), str(corpus.tokenizer), str(self._folder / "corpus"))
            measure(
                _build,
                *(*arguments, str(output), max_seq_length, corpus.keep_duplicates),
                one_core=False,
            )
            self._urls[max_seq_length] = str(output)
        return self._urls[max_seq_length]

    def __str__(self) -> str:
        manifests = {length: open_dataset(url).manifest for length, url in sorted(self._urls.items())}
        return "; ".join(
            f"{manifest.num_examples:,} examples of up to {length} tokens, "
            f"{manifest.num_tokens / manifest.num_examples:.0f} on average, "
            f"vocabulary {manifest.tokenizer.vocab_size:,}"
            for length, manifest in manifests.items()
        )


def take_shards(dataset: Dataset, num_examples: int) -> Dataset:
    """The first training shards of a dataset, as few as have so many examples, as a dataset in memory."""
    shards = []
    for shard in dataset.require_split("train"):
        shards.append(shard)
        if sum(one.num_examples for one in shards) >= num_examples:
            break
    counts = {name: sum(getattr(one, name) for one in shards) for name in ("num_examples", "num_tokens")}
    return replace(dataset, manifest=dataset.manifest.model_copy(update={"shards": tuple(shards), **counts}))


def choose_examples(lengths: NDArray[np.int64], mix: Mix, num_examples: int, seed: int) -> NDArray[np.int64]:
    """Choose examples so that their lengths are mixed in a given way, in random order.

    `near-128`: nine tenths are drawn from the examples of 120 to 128 tokens, the rest from all shorter ones.
    `short`: lengths are drawn uniformly from 20 to 128, and for each one of the examples whose length is
    nearest. None is drawn twice for `near-128` where there are enough.

    Args:
        lengths: int64 [n], tokens of the examples there are.
        mix: which mix.
        num_examples: how many are chosen.
        seed: of the draws.

    Returns:
        int64 [num_examples], numbers from 0 to n - 1.

    Raises:
        RuntimeError: there are no examples of a kind.
    """
    draw = np.random.default_rng(seed)
    if mix == "short":
        return _choose_nearest(lengths, draw.integers(_SHORTEST, _LONGEST + 1, num_examples), draw)
    num_near = round(_NEAR_SHARE * num_examples)
    is_near = (lengths >= _NEAR_LENGTH) & (lengths <= _LONGEST)
    parts = [
        _draw(np.flatnonzero(is_near), num_near, draw),
        _draw(np.flatnonzero(lengths < _NEAR_LENGTH), num_examples - num_near, draw),
    ]
    return draw.permutation(np.concatenate(parts))


def _draw(numbers: NDArray[np.int64], count: int, draw: np.random.Generator) -> NDArray[np.int64]:
    if len(numbers) == 0:
        raise RuntimeError(
            f"The dataset lacks examples of {_NEAR_LENGTH} to {_LONGEST} tokens, or shorter ones: take a "
            f"corpus of longer documents"
        )
    return draw.choice(numbers, count, replace=len(numbers) < count)


def _choose_nearest(
    lengths: NDArray[np.int64], targets: NDArray[np.int64], draw: np.random.Generator
) -> NDArray[np.int64]:
    by_length = np.argsort(lengths, kind="stable")
    there = np.unique(lengths)
    nearest = there[np.abs(there[:, None] - targets).argmin(axis=0)]
    ordered = lengths[by_length]
    first, end = np.searchsorted(ordered, nearest), np.searchsorted(ordered, nearest, side="right")
    return by_length[draw.integers(first, end)]


def _build(
    watch: Watch,
    documents: str,
    tokenizer: str,
    corpus: str,
    output: str,
    max_seq_length: int,
    keep_duplicates: bool,
) -> dict[str, Any]:
    from pipelines.build import run_build
    from pipelines.ingest import run_ingest
    from schemas.configs import BuildConfig, IngestConfig

    with watch:
        config = IngestConfig(inputs=(documents,), format="jsonl", keep_duplicates=keep_duplicates)
        # A corpus that is there already is found done.
        run_ingest(config, tokenizer, corpus, workers=1)
        built = run_build(BuildConfig(max_seq_length=max_seq_length), corpus, output, workers=1)
    return {"num_examples": built.manifest.num_examples}
