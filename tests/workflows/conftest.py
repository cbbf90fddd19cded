"""A small dataset and a run of a few steps, made once a process by the commands themselves."""

from __future__ import annotations

import os

# Before torch is loaded: several test processes share the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from workflows.cli import main

TEXTS = [
    [
        f"the {animal} number {n} sat on the {place}.",
        f"it {verb} softly.",
        f"then the {animal} went home {n} times.",
    ]
    for n, (animal, place, verb) in enumerate(
        (animal, place, verb)
        for animal in ("cat", "dog", "bird", "horse")
        for place in ("mat", "roof", "tree")
        for verb in ("purred", "slept", "sang", "ate", "ran")
    )
]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def run_json(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    summary: dict[str, Any] = json.loads(result.stdout)
    return summary


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with texts.jsonl, tokenizer/, corpus/, dataset/ and run/."""
    folder = tmp_path_factory.mktemp("made")
    with (folder / "texts.jsonl").open("w") as stream:
        for n, sentences in enumerate(TEXTS):
            stream.write(json.dumps({"id": f"text-{n}", "text": " ".join(sentences)}) + "\n")
    source = ("--input", str(folder / "texts.jsonl"))
    tokenizer, corpus, dataset = (str(folder / name) for name in ("tokenizer", "corpus", "dataset"))
    run_json("vocab", *source, "--output", tokenizer, "--vocab-size", "150", "--workers", "1")
    run_json(
        *("ingest", *source, "--tokenizer", tokenizer, "--output", corpus),
        *("--validation-fraction", "0.2", "--workers", "1"),
    )
    run_json(
        *("build", "--corpus", corpus, "--output", dataset, "--max-seq-length", "32", "--workers", "1"),
        *("--duplicate-factor", "3", "--examples-per-block", "16"),
    )
    run_json(
        *("train", "--data", dataset, "--output", str(folder / "run"), "--model", "tiny", "--steps", "3"),
        *("--batch-size", "4", "--device", "cpu", "--precision", "fp32"),
    )
    return folder
