"""The quickstart on a part of the standard library, with a moment of training."""

import json
import shutil
import socket
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from workflows.quickstart import docstrings

PACKAGES = ("asyncio", "collections", "email", "json", "logging", "pydoc_data", "unittest")
STAGES = ("collect", "vocab", "ingest", "build", "train", "evaluate")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: socket.socket, address: object) -> None:
        raise AssertionError(f"the quickstart wants to reach {address}")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def small_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "python"
    for package in PACKAGES:
        shutil.copytree(Path(sysconfig.get_path("stdlib")) / package, folder / package)
    monkeypatch.setattr(docstrings, "python_folders", lambda: [folder])
    return folder


def test_the_whole_way_and_then_found_done(
    small_python: Path, tmp_path: Path, invoke: Callable[..., Result]
) -> None:
    output = tmp_path / "quickstart"
    arguments = ("quickstart", "--minutes", "0.05", "--output", str(output), "--workers", "1")
    first = invoke(*arguments, "--json")
    assert first.exit_code == 0, first.output
    summary = json.loads(first.stdout)
    assert all(f"{stage} ..." in first.stderr for stage in STAGES)
    assert summary.keys() >= {*STAGES, "fill_mask", "next_sentence", "seconds", "output"}
    assert summary["ingest"]["num_documents_read"] == summary["collect"]["num_documents"] > 100
    assert summary["build"]["num_examples"] > 1000
    assert summary["train"]["steps"] >= 1
    assert len(summary["fill_mask"]) == 5
    evaluation = summary["evaluate"]
    assert evaluation["masked_lm_loss"] < evaluation["before"]["masked_lm_loss"]
    assert 0 < evaluation["unigram"]["masked_lm_accuracy"] < 0.2

    files = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    second = invoke(*arguments, "--json")
    assert second.exit_code == 0, second.output
    again = json.loads(second.stdout)
    for stage in STAGES:
        expected = {**summary[stage], "already_done": True}
        assert again[stage] == expected, stage
    assert again["fill_mask"] == summary["fill_mask"]
    assert {path: path.read_bytes() for path in output.rglob("*") if path.is_file()} == files

    human = invoke(*arguments)
    for said in (
        f"collected {summary['collect']['num_documents']:,} documents",
        f"tokens {summary['ingest']['num_tokens']:,}",
        f"examples {summary['build']['num_examples']:,}",
        f"is next {summary['build']['is_next_share']:.1%}",
        f"{summary['ingest']['megabytes_per_second']:.1f} MB/s",
        f"masked LM loss {evaluation['before']['masked_lm_loss']:.3f} -> {evaluation['masked_lm_loss']:.3f}",
        f"masked LM accuracy {evaluation['before']['masked_lm_accuracy']:.1%} -> ",
        f"always the most frequent token: {evaluation['unigram']['masked_lm_accuracy']:.1%}",
        *(f"{stage} {output / folder}" for stage, folder in (("build", "dataset"), ("train", "run"))),
        "Next: clozeline prepare --input ",
    ):
        assert said in " ".join(human.stdout.split()), said
    assert human.stdout.count("[MASK]") >= 5

    other = invoke("quickstart", "--minutes", "1", "--output", str(output))
    assert (other.exit_code, other.stdout) == (2, "")
    assert "minutes 0.05 there, 1.0 now" in other.stderr


def test_a_stage_whose_result_was_deleted_is_done_again(
    small_python: Path, tmp_path: Path, invoke: Callable[..., Result]
) -> None:
    output = tmp_path / "quickstart"
    arguments = ("quickstart", "--minutes", "0.05", "--output", str(output), "--workers", "1", "--json")
    assert invoke(*arguments).exit_code == 0
    shard = output / "dataset" / "train-00000-of-00001.tar"
    text, examples = (output / "text" / "documents.jsonl").read_bytes(), shard.read_bytes()
    shutil.rmtree(output / "dataset")
    shutil.rmtree(output / "text")
    again = invoke(*arguments)
    assert again.exit_code == 0, again.output
    assert (output / "text" / "documents.jsonl").read_bytes() == text
    assert shard.read_bytes() == examples
