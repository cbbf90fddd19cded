from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.corpora import Corpus
from tests.benchmarks.training_data import Datasets, Mix, choose_examples, take_shards
from trainer.data.dataset import open_dataset

# Twice every length from 5 to 128, and 500 examples of 125.
LENGTHS = np.concatenate([np.arange(5, 129), np.arange(5, 129), np.full(500, 125)])


def test_near_128_has_nine_long_examples_in_ten_and_none_twice() -> None:
    chosen = choose_examples(LENGTHS, "near-128", 200, seed=1)
    assert len(set(chosen.tolist())) == 200
    assert (LENGTHS[chosen] >= 120).sum() == 180
    assert LENGTHS[chosen][LENGTHS[chosen] < 120].std() > 20


def test_short_is_uniform_from_20_to_128() -> None:
    lengths = LENGTHS[choose_examples(LENGTHS, "short", 4000, seed=1)]
    assert (lengths.min(), lengths.max()) == (20, 128)
    # 109 lengths, 36.7 of each on average; the deviation of one is 6.
    counts = np.bincount(lengths)[20:]
    assert 12 < counts.min() <= counts.max() < 65


def test_short_takes_the_nearest_length_there_is() -> None:
    lengths = np.array([10, 60, 60, 200])
    chosen = choose_examples(lengths, "short", 500, seed=1)
    # From 36 on 60 is nearer than 10; 200 never is, up to 128 (68 away from 60, 72 from 200).
    assert set(chosen.tolist()) == {0, 1, 2}
    assert (lengths[chosen] == 10).mean() == pytest.approx(15.5 / 109, abs=0.06)


@pytest.mark.parametrize("mix", ["near-128", "short"])
def test_a_choice_is_repeatable_and_follows_its_seed(mix: Mix) -> None:
    one, same, other = (choose_examples(LENGTHS, mix, 50, seed).tolist() for seed in (1, 1, 2))
    assert one == same != other


def test_a_mix_that_the_examples_do_not_allow_is_refused() -> None:
    with pytest.raises(RuntimeError, match="longer documents"):
        choose_examples(np.arange(5, 100), "near-128", 10, seed=1)


def test_a_head_has_as_few_shards_as_are_enough(small_dataset: str) -> None:
    dataset = open_dataset(small_dataset)
    for asked, there in ((1, 40), (40, 40), (41, 70), (1000, 70)):
        head = take_shards(dataset, asked)
        assert head.manifest.num_examples == sum(one.num_examples for one in head.manifest.shards) == there


def test_a_dataset_that_was_given_is_not_built(small_dataset: str, tmp_path: Path) -> None:
    def corpus() -> Corpus:
        raise AssertionError

    datasets = Datasets([small_dataset], corpus, tmp_path)
    assert datasets.with_length(32) == small_dataset
    assert str(datasets).startswith("70 examples of up to 32 tokens, ")
    with pytest.raises(AssertionError):
        datasets.with_length(64)
