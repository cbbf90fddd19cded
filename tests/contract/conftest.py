"""A dataset written by the pipelines, to be read by others than they."""

from __future__ import annotations

import os

# Before torch is loaded: several test processes share the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
from pathlib import Path

import pytest

from pipelines.build import run_build
from pipelines.ingest import run_ingest
from pipelines.vocabulary import run_vocab
from schemas.configs import BuildConfig, IngestConfig, VocabConfig


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """texts.jsonl, tokenizer/, corpus/ and dataset/."""
    folder = tmp_path_factory.mktemp("contract")
    with (folder / "texts.jsonl").open("w") as stream:
        for n in range(60):
            text = f"The cat number {n} sat on the mat. It purred softly. [MASK] and [SEP] are {n} words."
            stream.write(json.dumps({"text": text}) + "\n")
    inputs = (str(folder / "texts.jsonl"),)
    run_vocab(VocabConfig(inputs=inputs, vocab_size=120), str(folder / "tokenizer"), workers=1)
    config = IngestConfig(inputs=inputs, validation_fraction=0.2)
    run_ingest(config, str(folder / "tokenizer"), str(folder / "corpus"), workers=1)
    build = BuildConfig(seed=5, max_seq_length=32, examples_per_block=7, duplicate_factor=2)
    run_build(build, str(folder / "corpus"), str(folder / "dataset"), workers=1)
    return folder
