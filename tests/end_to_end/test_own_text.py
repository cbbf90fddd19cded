"""The whole way on a person's own text, by the commands of the documentation, each in its own process."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import Result

KEYS = {
    "ingest": {
        *("num_documents", "num_rejected", "rejected", "num_sentences", "num_tokens", "seconds", "output"),
    },
    "build": {
        *("num_examples", "num_tokens", "num_shards", "is_next_share", "mask_share", "random_share"),
        *("kept_share", "seconds", "output"),
    },
    "evaluate": {
        *("masked_lm_loss", "perplexity", "masked_lm_accuracy", "next_sentence_loss"),
        *("next_sentence_accuracy", "num_examples", "num_masked_tokens"),
    },
}


def _summary(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def test_every_command_in_processes_of_their_own(
    made: Path, tmp_path: Path, clozeline: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    shutil.copy(made / "my.txt", tmp_path / "my.txt")
    source = ("--input", "my.txt", "--format", "text-sentences")

    def run(*arguments: str) -> dict[str, Any]:
        return _summary(clozeline(*arguments, "--json", cwd=tmp_path))

    vocab = run("vocab", *source, "--output", "tokenizer", "--vocab-size", "120", "--workers", "1")
    assert 0 < vocab["vocab_size"] <= 120
    assert vocab["exhausted_at_min_frequency"] == (2 if vocab["vocab_size"] < 120 else None)
    ingest = run(
        *("ingest", *source, "--tokenizer", "tokenizer", "--output", "corpus", "--segmenter", "newline"),
        *("--validation-fraction", "0.2", "--workers", "2"),
    )
    assert set(ingest) >= KEYS["ingest"]
    assert (ingest["num_documents"], ingest["num_rejected"], ingest["num_sentences"]) == (48, 0, 144)
    build = run(
        "build", "--corpus", "corpus", "--output", "dataset", "--max-seq-length", "32", "--workers", "2"
    )
    assert set(build) >= KEYS["build"]
    assert sum(build[share] for share in ("mask_share", "random_share", "kept_share")) > 0.999
    assert run("verify", "dataset")["ok"] is True
    train = run(
        "train",
        "--data",
        "dataset",
        "--output",
        "run",
        "--model",
        "tiny",
        "--steps",
        "2",
        "--batch-size",
        "4",
    )
    assert train["steps"] == 2
    evaluation = run("evaluate", "--data", "dataset", "--checkpoint", "run")
    assert set(evaluation) >= KEYS["evaluate"]
    filled = run("fill-mask", "--checkpoint", "run", "the [MASK] went to the [MASK].")
    assert [len(gap) for gap in filled["texts"][0]["gaps"]] == [5, 5]
    judged = run("next-sentence", "--checkpoint", "run", "the cat went home.", "there it slept.")
    assert 0.0 < judged["is_next_probability"] < 1.0

    # The same with one worker, in another place: the same bytes.
    for name in ("train-00000-of-00001.tar", "validation-00000-of-00001.tar", "tokenizer.json"):
        assert (tmp_path / "dataset" / name).read_bytes() == (made / "dataset" / name).read_bytes()


def test_a_second_time_everything_is_found_done(made: Path, invoke: Callable[..., Result]) -> None:
    source = ("--input", str(made / "my.txt"), "--format", "text-sentences")
    before = {path: path.stat().st_mtime_ns for path in made.rglob("*") if path.is_file()}
    for arguments in (
        ("vocab", *source, "--output", str(made / "tokenizer"), "--vocab-size", "120"),
        (
            "ingest",
            *source,
            "--tokenizer",
            str(made / "tokenizer"),
            "--output",
            str(made / "corpus"),
            "--segmenter",
            "newline",
            "--validation-fraction",
            "0.2",
        ),
        (
            "build",
            "--corpus",
            str(made / "corpus"),
            "--output",
            str(made / "dataset"),
            "--max-seq-length",
            "32",
        ),
    ):
        result = invoke(*arguments)
        assert result.exit_code == 0, result.output
        assert "found done" in result.stdout
    assert {path: path.stat().st_mtime_ns for path in made.rglob("*") if path.is_file()} == before


def test_prepare_runs_all_three(made: Path, tmp_path: Path, invoke: Callable[..., Result]) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        f"input: {made / 'my.txt'}\nformat: text-sentences\nsegmenter: newline\nvocab-size: 120\n"
        f"validation-fraction: 0.2\nmax-seq-length: 32\noutput: {tmp_path / 'all'}\nworkers: 1\n"
    )
    result = invoke("prepare", "--recipe", str(recipe), "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert set(summary) >= {"vocab", "ingest", "build", "seconds", "output"}
    name = "train-00000-of-00001.tar"
    assert (tmp_path / "all" / "dataset" / name).read_bytes() == (made / "dataset" / name).read_bytes()
    again = invoke("prepare", "--recipe", str(recipe), "--corpus", str(tmp_path / "all" / "corpus"), "--json")
    assert set(json.loads(again.stdout)) == {"build", "seconds", "output"}


def test_prepare_skips_what_is_done(made: Path, tmp_path: Path, invoke: Callable[..., Result]) -> None:
    folder = tmp_path / "all"

    def prepare(*more: str) -> list[bool]:
        source = ("--input", str(made / "my.txt"), "--format", "text-sentences", "--vocab-size", "120")
        result = invoke("prepare", *source, "--output", str(folder), "--workers", "1", *more, "--json")
        assert result.exit_code == 0, result.output
        summary = json.loads(result.stdout)
        return [summary[stage]["already_done"] for stage in ("vocab", "ingest", "build")]

    def find_files() -> dict[Path, tuple[int, bytes]]:
        files = (path for path in folder.rglob("*") if path.is_file())
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    assert prepare("--max-seq-length", "32") == [False, False, False]
    before = find_files()
    assert prepare("--max-seq-length", "32") == [True, True, True]
    assert find_files() == before
    shutil.rmtree(folder / "dataset")
    assert prepare("--max-seq-length", "32") == [True, True, False]
    after = find_files()
    assert {path: content for path, (_, content) in after.items()} == {
        path: content for path, (_, content) in before.items()
    }
    assert all(after[path] == before[path] for path in before if folder / "dataset" not in path.parents)


def test_the_summary_ends_with_the_command_to_type_next(
    made: Path, tmp_path: Path, invoke: Callable[..., Result]
) -> None:
    dataset = str(tmp_path / "other")
    arguments = (
        "build",
        "--corpus",
        str(made / "corpus"),
        "--output",
        dataset,
        "--seed",
        "2",
        "--workers",
        "1",
    )
    result = invoke(*arguments, "--max-seq-length", "32")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1].startswith(f"Next: clozeline train --data {dataset} ")
    name = "train-00000-of-00001.tar"
    assert (tmp_path / "other" / name).read_bytes() != (made / "dataset" / name).read_bytes()


def test_train_resumes_a_finished_run_without_a_step(made: Path, invoke: Callable[..., Result]) -> None:
    result = invoke("train", "--resume", str(made / "run"), "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert (summary["steps"], summary["already_done"]) == (2, True)
