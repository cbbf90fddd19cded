from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from workflows.cli import main


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def cased(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of the same texts, by a vocabulary of its own that keeps case."""
    folder = tmp_path_factory.mktemp("cased")
    source = ("--input", made / "texts.jsonl", "--workers", "1")
    for arguments in (
        ("vocab", *source, "--output", folder / "tokenizer", "--cased", "--vocab-size", "120"),
        ("ingest", *source, "--tokenizer", folder / "tokenizer", "--output", folder / "corpus"),
        ("build", "--corpus", folder / "corpus", "--output", folder / "dataset", "--workers", "1"),
    ):
        assert run(*arguments).exit_code == 0
    return folder / "dataset"


def test_what_became_of_the_initial_weights_is_said(made: Path, cased: Path, tmp_path: Path) -> None:
    options = ("--model", "tiny", "--steps", "1", "--batch-size", "4", "--device", "cpu")
    result = run("train", "--data", cased, "--init", made / "run", "--output", tmp_path / "run", *options)
    assert result.exit_code == 0, result.output
    warnings = [line for line in result.stderr.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 2
    assert f"--init {made / 'run'}: the data has another vocabulary: " in warnings[0]
    assert "lowercase yes there, no here" in warnings[1]
