from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import UsageError
from trainer.data.dataset import Dataset, open_dataset
from trainer.data.shard_source import ShardSource

LONG = {
    "input_ids": [6, 20, 21, 22, 23, 24, 25, 26, 27, 7],
    "segment_a_length": 10,
    "masked_lm_positions": [1, 2, 3],
    "masked_lm_ids": [30, 31, 32],
    "next_sentence_label": 0,
}
SHORT = {
    "input_ids": [6, 20, 21, 7],
    "segment_a_length": 4,
    "masked_lm_positions": [1],
    "masked_lm_ids": [30],
    "next_sentence_label": 0,
}


@pytest.fixture
def make_dataset(write_tiny_dataset: Callable[..., Path], tmp_path: Path) -> Callable[..., Dataset]:
    def make(name: str, *shards: list[dict[str, Any]], **options: Any) -> Dataset:
        held_out = {"train": list(shards), "validation": [[SHORT] * 50]}
        return open_dataset(str(write_tiny_dataset(tmp_path / name, held_out, **options)))

    return make


def test_density_is_that_of_the_split(make_dataset: Callable[..., Dataset]) -> None:
    # Four examples with 28 tokens, 8 of them masked.
    source = ShardSource(make_dataset("one", [LONG, SHORT], [LONG, SHORT]), "train")
    assert source.densest() == pytest.approx((4 / 28, 8 / 28))


def test_density_of_several_datasets_is_the_greatest_of_either_kind(
    make_dataset: Callable[..., Dataset],
) -> None:
    source = ShardSource([make_dataset("long", [LONG]), make_dataset("short", [SHORT])], "train")
    assert source.densest() == pytest.approx((1 / 4, 3 / 10))


def test_sizes_count_tokens(make_dataset: Callable[..., Dataset]) -> None:
    sizes = ShardSource(make_dataset("one", [LONG, SHORT], [SHORT] * 11), "train").sizes()
    assert [(size.num_examples, size.num_blocks, size.num_tokens) for size in sizes] == [
        (2, 1, 14),
        (11, 2, 44),
    ]


def test_rows_must_hold_what_any_dataset_may_have(make_dataset: Callable[..., Dataset]) -> None:
    datasets = [make_dataset("a", [SHORT], max_seq_length=16), make_dataset("b", [SHORT], max_seq_length=24)]
    source = ShardSource(datasets, "train")
    source.require_lengths(24)
    with pytest.raises(UsageError, match=r"/b has examples of up to 24 tokens, which rows of 23 can't hold"):
        source.require_lengths(23)
