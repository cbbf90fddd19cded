from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from workflows.cli import load_command, main


def _run(made: Path, *arguments: str) -> Result:
    source = ("--input", str(made / "texts.jsonl"), "--tokenizer", str(made / "tokenizer"))
    return CliRunner().invoke(main, ["preview", *source, *arguments])


def test_json_holds_counts_documents_and_examples(made: Path) -> None:
    result = _run(made, "--documents", "8", "--examples", "2", "--max-seq-length", "32", "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["num_documents"] == len(summary["documents"]) == 8
    assert summary["num_sentences"] == 24
    assert summary["documents"][0]["document_id"] == "text-0"
    assert len(summary["examples"]) == 2
    assert all(len(example["tokens"]) <= 32 for example in summary["examples"])
    assert 0 <= summary["is_next_share"] <= 1
    shares = summary["mask_share"] + summary["random_share"] + summary["kept_share"]
    assert shares == pytest.approx(1, abs=1e-5)


def test_a_person_sees_sentences_tokens_and_masks(made: Path) -> None:
    result = _run(made, "--documents", "5", "--segmenter", "newline", "--objective", "mlm")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("text-0  ")
    assert lines[1].startswith("  1  the cat number 0 sat on the mat.")
    assert "and 2 more documents" in lines
    assert any(line.startswith("preview example 0  ") for line in lines)
    assert "{[MASK] <- " in result.stdout
    # What was given here is handed on to the command that comes next.
    assert lines[-1].startswith("Next: clozeline ingest --input ")
    assert "--segmenter newline" in lines[-1]
    assert "--objective" not in lines[-1]


def test_one_document_is_shown_with_what_can_not_be_made(made: Path) -> None:
    result = _run(made, "--documents", "1")
    assert result.exit_code == 0
    assert "text-0" in result.stdout
    assert "preview example 0" in result.stdout
    assert "warning: No pair can be made under --objective next-sentence" in result.stderr


def test_nothing_is_written(made: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert _run(made).exit_code == 0
    assert list(tmp_path.iterdir()) == []


def test_options_are_those_of_ingest_and_build() -> None:
    def names(command: str) -> set[str]:
        return {param.name or "" for param in load_command(command).params}

    elsewhere = {"output", "workers", "overwrite", "corpus"}
    assert (names("ingest") | names("build")) - elsewhere == names("preview") - {
        "num_documents",
        "num_examples",
    }


def test_a_recipe_fills_in_the_options(made: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    text = {"input": [str(made / "texts.jsonl")], "output": str(made), "max-seq-length": 16}
    recipe.write_text(json.dumps(text))
    result = CliRunner().invoke(main, ["preview", "--recipe", str(recipe), "--json"])
    assert result.exit_code == 0, result.output
    assert all(len(example["tokens"]) <= 16 for example in json.loads(result.stdout)["examples"])
    result = CliRunner().invoke(main, ["preview", "--recipe", str(recipe)])
    assert result.stdout.splitlines()[-1] == f"Next: clozeline ingest --recipe {recipe} --output corpus/"


def test_a_missing_tokenizer_is_a_usage_error(made: Path) -> None:
    result = CliRunner().invoke(
        main, ["preview", "--input", str(made / "texts.jsonl"), "--tokenizer", str(made / "absent")]
    )
    assert result.exit_code == 2
    assert "there is no tokenizer at" in result.stderr
    assert result.stdout == ""
