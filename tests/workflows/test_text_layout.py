import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from schemas.configs import IngestConfig, VocabConfig
from schemas.errors import UsageError
from workflows.cli import main
from workflows.text_layout import LARGEST_TEXT_BYTES, check_text_layout


def _make(path: Path, num_bytes: int) -> Path:
    with path.open("wb") as stream:
        stream.truncate(num_bytes)
    return path


def test_a_corpus_from_one_text_file_is_warned_of(tmp_path: Path) -> None:
    path = _make(tmp_path / "my.txt", 1234)
    (warning,) = check_text_layout(IngestConfig(inputs=(f"{tmp_path}/*.txt",)))
    assert warning.startswith(f"{path} is read as one document, and a dataset needs many. ")
    for layout in ("--format text-lines", "text-sentences", "text (the whole file)"):
        assert layout in warning


def test_a_text_file_too_large_for_a_document_is_refused(tmp_path: Path) -> None:
    _make(tmp_path / "a.txt", 10)
    _make(tmp_path / "b.txt", LARGEST_TEXT_BYTES + 1)
    for config in (IngestConfig(inputs=(f"{tmp_path}/*",)), VocabConfig(inputs=(f"{tmp_path}/*",))):
        with pytest.raises(
            UsageError, match=r"b\.txt would be read as one document of 16\.0 MB\."
        ) as refused:
            check_text_layout(config)
        assert len(str(refused.value).splitlines()) == 2


@pytest.mark.parametrize("layout", ["text", "text-lines", "text-sentences"])
def test_a_layout_that_is_told_is_not_questioned(tmp_path: Path, layout: str) -> None:
    path = _make(tmp_path / "my.txt", LARGEST_TEXT_BYTES + 1)
    assert check_text_layout(IngestConfig.model_validate({"inputs": (str(path),), "format": layout})) == ()


def test_texts_a_document_each_and_other_formats_pass(tmp_path: Path) -> None:
    _make(tmp_path / "a.txt", LARGEST_TEXT_BYTES)
    _make(tmp_path / "b.txt.gz", 10)
    _make(tmp_path / "c.jsonl", LARGEST_TEXT_BYTES + 1)
    assert check_text_layout(IngestConfig(inputs=(f"{tmp_path}/*",))) == ()
    assert check_text_layout(IngestConfig(inputs=(f"{tmp_path}/c.jsonl",))) == ()
    assert check_text_layout(VocabConfig(inputs=(f"{tmp_path}/a.txt",))) == ()


@pytest.mark.parametrize("command", ["ingest", "prepare"])
def test_it_is_refused_before_anything_is_written(made: Path, tmp_path: Path, command: str) -> None:
    text = _make(tmp_path / "my.txt", LARGEST_TEXT_BYTES + 1)
    options = ("--input", str(text), "--tokenizer", str(made / "tokenizer"))
    result = CliRunner().invoke(main, [command, *options, "--output", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "would be read as one document" in result.stderr
    assert not (tmp_path / "out").exists()


def test_ingest_says_the_warning(made: Path, tmp_path: Path) -> None:
    (tmp_path / "my.txt").write_text("the cat sat on the mat.\nit purred softly.\n")
    options = ("--input", str(tmp_path / "my.txt"), "--tokenizer", str(made / "tokenizer"), "--workers", "1")
    result = CliRunner().invoke(main, ["ingest", *options, "--output", str(tmp_path / "out"), "--json"])
    assert result.exit_code == 0, result.output
    (warning,) = json.loads(result.stdout)["warnings"]
    assert "--format text-lines" in warning
    assert f"warning: {warning}" in result.stderr
