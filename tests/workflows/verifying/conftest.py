"""Datasets of each objective, built by the job itself from documents of arbitrary tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from pipelines.build import run_build
from schemas.configs import BuildConfig
from tests.conftest import build_tiny_tokenizer
from tests.pipelines.corpora import make_documents, write_corpus

SETTINGS = {
    "next-sentence": BuildConfig(seed=3, max_seq_length=64, examples_per_block=200),
    "unbalanced": BuildConfig(seed=3, max_seq_length=64, next_sentence_balance=False),
    "sentence-order": BuildConfig(seed=3, max_seq_length=64, objective="sentence-order"),
    "mlm": BuildConfig(seed=3, max_seq_length=64, objective="mlm", max_predictions_per_seq=5),
    "whole-words": BuildConfig(seed=3, max_seq_length=64, whole_word_mask=True, short_seq_prob=0.5),
}


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of the dataset of one name in `SETTINGS`: about 1,500 examples. Only read it."""
    folder = tmp_path_factory.mktemp("verifying")
    # Every id of the tiny vocabulary but the reserved ones, `##` pieces among them.
    documents = make_documents(600, ids=range(9, 201), max_sentences=14, max_tokens=30)
    groups = [documents[start : start + 100] for start in range(0, 600, 100)]
    files = {
        "train/a.parquet": groups[:3],
        "train/b.parquet": groups[3:5],
        "validation/a.parquet": groups[5:],
    }
    write_corpus(folder / "corpus", build_tiny_tokenizer(), files)

    @cache
    def build_once(name: str) -> Path:
        if name != "corpus":
            run_build(SETTINGS[name], str(folder / "corpus"), str(folder / name), workers=1)
        return folder / name

    return build_once
