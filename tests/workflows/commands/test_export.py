from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from workflows.cli import main


def _run_json(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(main, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    summary: dict[str, Any] = json.loads(result.stdout)
    return summary


@pytest.fixture(scope="module")
def exported(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "hf-model"
    summary = _run_json("export", "--checkpoint", str(made / "run"), "--output", str(folder))
    assert summary["step"] == 3
    assert summary["has_data_facts"]
    assert not summary["already_done"]
    assert summary["files"] == sorted(path.name for path in folder.iterdir())
    return folder


def test_commands_take_the_folder_as_they_take_the_run(made: Path, exported: Path) -> None:
    for command in (
        ("fill-mask", "the [MASK] sat on the mat."),
        ("next-sentence", "the cat sat on the mat.", "it purred softly."),
        ("evaluate", "--data", str(made / "dataset")),
    ):
        ours, theirs = (
            _run_json(*command, "--checkpoint", str(folder)) for folder in (made / "run", exported)
        )
        changing = ("checkpoint", "seconds", "step")
        assert {k: v for k, v in ours.items() if k not in changing} == {
            k: v for k, v in theirs.items() if k not in changing
        }


def test_a_person_reads_what_was_written_and_what_comes_next(made: Path, exported: Path) -> None:
    arguments = ["export", "--checkpoint", str(made / "run"), "--output", str(exported)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert "found done" in result.stdout
    assert "model.safetensors" in result.stdout
    assert result.stdout.splitlines()[-1].startswith(f"Next: clozeline fill-mask --checkpoint {exported} ")


def test_it_warns_where_the_data_is_gone(made: Path, tmp_path: Path) -> None:
    (made / "dataset").rename(made / "moved")
    try:
        arguments = ["export", "--checkpoint", str(made / "run"), "--output", str(tmp_path / "hf")]
        result = CliRunner().invoke(main, arguments)
    finally:
        (made / "moved").rename(made / "dataset")
    assert result.exit_code == 0, result.output
    assert "warning: the model card tells nothing of the data" in result.stderr


def test_an_existing_folder_is_a_usage_error(made: Path, tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("mine")
    arguments = ["export", "--checkpoint", str(made / "run"), "--output", str(tmp_path)]
    result = CliRunner().invoke(main, [*arguments, "--overwrite"])
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) <= 3
    assert "found letter" in result.stderr
