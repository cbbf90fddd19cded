from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from trainer.data.blocks import iterate_blocks
from trainer.data.dataset import open_dataset
from trainer.data.example_arrays import arrays_from_blocks
from workflows.report.baselines import PUBLISHED, PUBLISHED_BASE, guess_from_frequencies
from workflows.report.opening import read_vocabulary


def test_frequencies_of_held_out_masks(folders: Path) -> None:
    dataset = open_dataset(str(folders / "dataset"))
    counts: Counter[int] = Counter()
    for shard in dataset.manifest.shards_of("validation"):
        for block in iterate_blocks(dataset, shard):
            counts.update(arrays_from_blocks([block]).masked_lm_ids.tolist())
    total = counts.total()
    token_id, most = counts.most_common(1)[0]
    vocabulary = json.loads((folders / "dataset" / "tokenizer.json").read_text())["model"]["vocab"]
    names = {token_id: name for name, token_id in vocabulary.items()}
    baseline = guess_from_frequencies(dataset, read_vocabulary(dataset))
    assert baseline is not None
    assert (baseline.split, baseline.num_masked) == ("validation", total)
    assert counts[vocabulary[baseline.token]] == most, names[token_id]
    assert baseline.accuracy == pytest.approx(most / total)
    entropy = -sum(count / total * math.log(count / total) for count in counts.values())
    assert baseline.loss == pytest.approx(entropy)
    shards = dataset.manifest.shards_of("validation")
    labels = (sum(s.num_is_next for s in shards), sum(s.num_not_next for s in shards))
    assert baseline.label_accuracy == pytest.approx(max(labels) / sum(labels))


def test_without_held_out_examples_those_of_training_are_counted(folders: Path) -> None:
    dataset = open_dataset(str(folders / "dataset"))
    kept = dataset.manifest.shards_of("train")
    manifest = dataset.manifest.model_copy(
        update={
            "shards": kept,
            "num_examples": sum(shard.num_examples for shard in kept),
            "num_tokens": sum(shard.num_tokens for shard in kept),
        }
    )
    baseline = guess_from_frequencies(replace(dataset, manifest=manifest), read_vocabulary(dataset))
    assert baseline is not None
    assert baseline.split == "train"
    assert baseline.num_masked == sum(shard.masking.num_chosen_tokens for shard in kept)


def test_published_perplexities_fall_with_size() -> None:
    # Devlin et al. 2019, table 6, from the smallest model to the largest.
    assert [model.perplexity for model in PUBLISHED] == [5.84, 5.24, 4.68, 3.99, 3.54, 3.23]
    assert (PUBLISHED_BASE.num_layers, PUBLISHED_BASE.hidden_size, PUBLISHED_BASE.perplexity) == (
        12,
        768,
        3.99,
    )
