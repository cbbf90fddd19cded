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
    notes = [line for line in result.stderr.splitlines() if line.startswith("note: ")]
    (warning,) = (line for line in result.stderr.splitlines() if line.startswith("warning: "))
    assert len(notes) == 1
    assert f"--init {made / 'run'}: the data has another vocabulary: " in notes[0]
    assert "lowercase yes there, no here" in warning


def test_datasets_in_sequence_or_by_weights(made: Path, tmp_path: Path) -> None:
    dataset = made / "dataset"
    options = ("--model", "tiny", "--steps", "2", "--batch-size", "4", "--device", "cpu")
    twice = ("train", "--data", dataset, "--data", dataset, *options)
    for schedule in (("--data-schedule", "sequence"), ("--data-weight", "1", "--data-weight", "0.5")):
        result = run(*twice, *schedule, "--output", tmp_path / schedule[0][2:])
        assert result.exit_code == 0, result.output
        assert f"note: Passes over the data in this run, about: {dataset} " in result.stderr
    report = run("report", tmp_path / "data-weight", "--output", tmp_path / "run.html")
    assert report.exit_code == 0, report.output
    page = (tmp_path / "run.html").read_text()
    assert "--data-weight 1.0" in page
    assert "--data-weight 0.5" in page


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (("--data-weight", "1"), "1 weights for 2 datasets: give each one."),
        (
            ("--data-weight", "1", "--data-weight", "-1"),
            "--data-weight -1.0: Input should be greater than 0.",
        ),
        (
            ("--data-schedule", "sequence", "--data-weight", "1", "--data-weight", "1"),
            "datasets that are read in sequence have no weights: leave them out.",
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused(
    weights: tuple[str, ...], message: str, made: Path, tmp_path: Path
) -> None:
    dataset = made / "dataset"
    result = run(
        "train", "--data", dataset, "--data", dataset, "--steps", "1", "--output", tmp_path, *weights
    )
    assert result.exit_code == 2
    assert message in result.stderr.splitlines()[0]
