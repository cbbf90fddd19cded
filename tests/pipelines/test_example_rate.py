from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from pipelines.example_rate import measure_examples_a_token
from pipelines.pairing import sample_pairs
from schemas.configs import BuildConfig
from schemas.seeding import RandomStream
from tests.pipelines.corpora import Document, make_documents, make_pool, write_corpus

SHORT: list[Document] = [[[60 + index] * 5, [70] * 3] for index in range(30)]


@pytest.mark.parametrize(("duplicate_factor", "expected"), [(1, 1 / 8), (3, 3 / 8)])
def test_a_short_document_is_one_example(
    tmp_path: Path, tiny_tokenizer: Tokenizer, duplicate_factor: int, expected: float
) -> None:
    manifest = write_corpus(tmp_path, tiny_tokenizer, {"train/a.parquet": [SHORT[:10], SHORT[10:]]})
    config = BuildConfig(objective="mlm", short_seq_prob=0.0, duplicate_factor=duplicate_factor)

    assert measure_examples_a_token(str(tmp_path), manifest, config) == pytest.approx(expected)


def test_the_seed_of_the_dataset_plays_no_part(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    groups = [make_documents(20, ids=range(60, 100), name=f"group {index}") for index in range(3)]
    manifest = write_corpus(tmp_path, tiny_tokenizer, {"train/a.parquet": groups})

    rates = {measure_examples_a_token(str(tmp_path), manifest, BuildConfig(seed=seed)) for seed in range(3)}

    assert len(rates) == 1


@pytest.mark.parametrize("objective", ["next-sentence", "sentence-order", "mlm"])
def test_a_sample_is_near_the_whole(tmp_path: Path, tiny_tokenizer: Tokenizer, objective: str) -> None:
    groups = [make_documents(20, ids=range(60, 180), name=f"group {index}") for index in range(40)]
    manifest = write_corpus(tmp_path, tiny_tokenizer, {"train/a.parquet": groups})
    config = BuildConfig(objective=objective, max_seq_length=64)

    rate = measure_examples_a_token(str(tmp_path), manifest, config)

    pool = make_pool([document for group in groups for document in group])
    pairs = sample_pairs(pool, config, RandomStream(5, "pairs", "whole"))
    assert rate * manifest.num_tokens == pytest.approx(len(pairs), rel=0.15)


@pytest.mark.parametrize("documents", [[], SHORT[:1]], ids=["none", "one"])
def test_too_few_documents(tmp_path: Path, tiny_tokenizer: Tokenizer, documents: list[Document]) -> None:
    files = {"validation/a.parquet": [SHORT], **({"train/a.parquet": [documents]} if documents else {})}
    manifest = write_corpus(tmp_path, tiny_tokenizer, files)

    assert measure_examples_a_token(str(tmp_path), manifest, BuildConfig()) == 0.0
