"""A small dataset for the benchmarks of the trainer, made as the trainer's own tests make theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import tiny_vocabulary
from tests.trainer.conftest import make_examples, write_dataset

SHARD_SIZES = (40, 30)
LENGTH = 32


@pytest.fixture(scope="session")
def small_dataset(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer_path: Path) -> str:
    """70 examples of 16 to 32 tokens in two training shards. Only read it."""
    vocab_size = len(tiny_vocabulary())
    examples = [make_examples(size, vocab_size, LENGTH, seed) for seed, size in enumerate(SHARD_SIZES)]
    folder = write_dataset(
        tmp_path_factory.mktemp("bench") / "dataset",
        {"train": examples},
        tokenizer_json=(tiny_tokenizer_path / "tokenizer.json").read_bytes(),
        vocab_size=vocab_size,
        max_seq_length=LENGTH,
    )
    return str(folder)
