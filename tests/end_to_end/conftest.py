"""The command as a person runs it: a process of its own, in a folder of its own."""

from __future__ import annotations

import os

# Before torch is loaded: several test processes share the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from workflows.cli import main

Cloze = Callable[..., subprocess.CompletedProcess[str]]
PROGRAM = (sys.executable, "-c", "from workflows.cli import main; main()")


@pytest.fixture(scope="session")
def clozeline() -> Cloze:
    """Run `clozeline` in a new process."""

    def run(*arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path.cwd()), **environment}
        return subprocess.run(
            [*PROGRAM, *arguments], capture_output=True, text=True, cwd=cwd, env=variables, check=False
        )

    return run


@pytest.fixture(scope="session")
def invoke() -> Callable[..., Result]:
    """Run `clozeline` in this process, which is faster."""

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments))

    return run


def write_text(folder: Path) -> Path:
    """Documents of BERT's own layout: a sentence a line, a blank line between documents."""
    documents = [
        [
            f"the {who} went to the {where} on day {day}.",
            f"there it {did} for {day} hours.",
            "then it came home.",
        ]
        for day, (who, where, did) in enumerate(
            (who, where, did)
            for who in ("cat", "dog", "bird")
            for where in ("garden", "river", "market", "tower")
            for did in ("slept", "sang", "ate", "ran")
        )
    ]
    path = folder / "my.txt"
    path.write_text("\n\n".join("\n".join(sentences) for sentences in documents) + "\n")
    return path


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, invoke: Callable[..., Result]) -> Path:
    """my.txt, tokenizer/, corpus/, dataset/ and run/ in a folder."""
    folder = tmp_path_factory.mktemp("made")
    text = write_text(folder)
    source = ("--input", str(text), "--format", "text-sentences")
    places = {name: str(folder / name) for name in ("tokenizer", "corpus", "dataset", "run")}
    for arguments in (
        ("vocab", *source, "--output", places["tokenizer"], "--vocab-size", "120"),
        (
            "ingest",
            *source,
            "--tokenizer",
            places["tokenizer"],
            "--output",
            places["corpus"],
            "--segmenter",
            "newline",
            "--validation-fraction",
            "0.2",
        ),
        ("build", "--corpus", places["corpus"], "--output", places["dataset"], "--max-seq-length", "32"),
        (
            "train",
            "--data",
            places["dataset"],
            "--output",
            places["run"],
            "--model",
            "tiny",
            "--steps",
            "2",
            "--batch-size",
            "4",
            "--device",
            "cpu",
        ),
    ):
        more = () if arguments[0] == "train" else ("--workers", "1")
        result = invoke(*arguments, *more)
        assert result.exit_code == 0, result.output
    return folder
