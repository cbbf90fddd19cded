from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.benchmarks import __main__ as command
from tests.benchmarks.corpora import Corpus
from tests.benchmarks.measuring import compare
from tests.benchmarks.rows import Row
from tests.benchmarks.training_data import Datasets


def test_torch_does_not_come_with_the_command() -> None:
    code = "import sys, tests.benchmarks.__main__; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_each_benchmark_gets_what_it_works_on(
    small_dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = Corpus(tmp_path / "corpus.jsonl", tmp_path, 3, 1000)
    given: dict[str, Any] = {}

    def load(name: str) -> SimpleNamespace:
        def run(examples: Corpus | Datasets, folder: Path, rounds: int) -> list[Row]:
            given[name] = examples
            assert folder.is_dir()
            return [Row(f"row of {name}", "wall", compare([1.0], [2.0]), None, "")] * rounds

        return SimpleNamespace(run=run, why_not=lambda: "No GPU.")

    monkeypatch.setattr(command, "_load", load)
    monkeypatch.setattr(command, "prepare_corpus", lambda *_, **__: corpus)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--data", small_dataset, "--rounds", "2"])
    command.main()
    # Without a name and without a GPU: all others.
    assert set(given) == {"speed", "peers", "workers", "memory", "model", "loader"}
    assert all(given[name] is corpus for name in command.OF_PIPELINES)
    assert isinstance(given["loader"], Datasets)
    assert given["loader"].with_length(32) == small_dataset
    captured = capsys.readouterr()
    assert captured.out.count("| row of loader | wall | 0.50 (0.50 to 0.50) |") == 2
    assert "loader: 70 examples of up to 32 tokens" in captured.out
    assert captured.err == "No GPU.\n"
