"""SIGKILL at any moment of `ingest` and `build`, of the command or of a worker; the same command again."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import Result

from tests.end_to_end.killed_command import (
    Moment,
    draw_moments,
    find_finished,
    identify,
    kill_command,
    read_files,
    run_command,
)

Invoke = Callable[..., Result]

COMMANDS = {
    "ingest": (
        *("ingest", "--input", "in.jsonl", "--tokenizer", "tokenizer", "--output", "out"),
        *("--validation-fraction", "0.2", "--workers", "2"),
    ),
    "build": ("build", "--corpus", "corpus", "--output", "out", "--seed", "3", "--workers", "2"),
}
EVENTS = {
    "ingest": [
        ("_work/lock", 1), ("_work/config.json", 1), ("tokenizer.json", 1), ("_work/reads.jsonl", 1),
        ("_work/*.hashes.json", 1), ("_work/*.hashes.json", 4), ("_work/*.repeats.json", 1),
        ("_work/*.tmp", 1), ("train/*.parquet", 1), ("_work/*[0-9a-f].json", 2),
        ("_work/*[0-9a-f].json", 4), ("_work/*[0-9a-f].json", 6), ("corpus.json", 1),
    ],
    "build": [
        ("_work/lock", 1), ("_work/config.json", 1), ("tokenizer.json", 1), ("_work/pools.jsonl", 1),
        ("_work/*.tmp", 1), ("train-*.tar", 1), ("_work/train-*.json", 1), ("train-*.tar", 3),
        ("_work/train-*.json", 3), ("_work/validation-*.json", 1), ("dataset.json", 1),
    ],
}  # fmt: skip
MANIFESTS = {"ingest": "corpus.json", "build": "dataset.json"}


@dataclass(frozen=True)
class Undisturbed:
    """A folder in which both commands were run to their ends, and how long each took."""

    folder: Path
    seconds: dict[str, float]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer_path: Path) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    shutil.copytree(tiny_tokenizer_path, folder / "tokenizer")
    with (folder / "in.jsonl").open("w") as stream:
        for number in range(600):
            text = "".join(
                f"The cat {number * i} sat on mat {i * 7}. It purred softly and ran over hill {number}. "
                for i in range(number % 40 + 2)
            )
            stream.write(json.dumps({"id": str(number), "text": text}) + "\n")
        stream.write('{"text": 5}\n')
        stream.write(json.dumps({"text": text}) + "\n")
    seconds = {"ingest": run_command(folder, *COMMANDS["ingest"])}
    (folder / "out").rename(folder / "corpus")
    seconds["build"] = run_command(folder, *COMMANDS["build"])
    (folder / "out").rename(folder / "dataset")
    assert len(list((folder / "corpus").glob("train/*.parquet"))) == 6
    assert len(list((folder / "dataset").glob("train-*.tar"))) >= 3
    return Undisturbed(folder, seconds)


@pytest.fixture
def folder(undisturbed: Undisturbed, tmp_path: Path) -> Path:
    """What both commands read, in a folder without an output."""
    for name in ("tokenizer", "corpus"):
        (tmp_path / name).symlink_to(undisturbed.folder / name)
    (tmp_path / "in.jsonl").symlink_to(undisturbed.folder / "in.jsonl")
    return tmp_path


def check_killed(
    command: str, moments: list[Moment], folder: Path, undisturbed: Undisturbed, made: Path, invoke: Invoke
) -> None:
    """Kill a command once or several times, finish it, and compare with what nothing disturbed."""
    output = folder / "out"
    finished = {}
    for moment in moments:
        kill_command(folder, moment, *COMMANDS[command])
        was_kept = {path: identify(path) for path in finished if path.exists()}
        assert was_kept == {path: finished[path] for path in was_kept}, moment
        if (output / MANIFESTS[command]).exists():
            break
        assert set(was_kept) == set(finished)
        finished = find_finished(output)
        check_refused(output, made, invoke)
    run_command(folder, *COMMANDS[command])
    expected = read_files(undisturbed.folder / {"ingest": "corpus", "build": "dataset"}[command])
    assert read_files(output) == expected, moments
    assert not (output / "_work").exists()
    kept = {path: identity for path, identity in finished.items() if path.parent.name != "_work"}
    assert {path: identify(path) for path in kept} == kept, moments  # not written again


def check_refused(output: Path, made: Path, invoke: Invoke) -> None:
    """No command takes a folder for a corpus or a dataset whose manifest isn't there."""
    for arguments in (
        ("train", "--data", str(output), "--output", str(output.parent / "run"), "--steps", "1"),
        ("evaluate", "--data", str(output), "--checkpoint", str(made / "run")),
        ("verify", str(output)),
        ("inspect", str(output)),
        ("report", str(output), "--output", str(output.parent / "report.html")),
        ("build", "--corpus", str(output), "--output", str(output.parent / "built")),
    ):
        result = invoke(*arguments)
        assert result.exit_code == 2, (arguments, result.output)
        assert result.stdout == ""
        error = result.stderr[result.stderr.index("error: ") :]
        assert len(error.splitlines()) <= 2
        said = "(is not|isn't) finished" if (output / "_work").exists() else "not exist|there is no corpus"
        assert re.search(said, error), error
        assert str(output) in error
    assert not any((output.parent / name).exists() for name in ("run", "report.html", "built"))


@pytest.mark.parametrize(
    ("command", "moments"),
    [
        ("ingest", [Moment(0.0, ("_work/*.hashes.json", 3)), Moment(0.0, ("_work/*[0-9a-f].json", 2))]),
        ("ingest", [Moment(0.0, ("_work/*.tmp", 1), victim=1)]),
        ("build", [Moment(0.0, ("_work/train-*.json", 1))]),
        ("build", [Moment(0.0, ("dataset.json", 1))]),
    ],
    ids=["twice", "a worker while it writes", "after a shard", "at the commit"],
)
def test_a_killed_command_run_again_gives_the_same_bytes(
    command: str, moments: list[Moment], folder: Path, undisturbed: Undisturbed, made: Path, invoke: Invoke
) -> None:
    check_killed(command, moments, folder, undisturbed, made, invoke)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
@pytest.mark.parametrize("command", ["ingest", "build"])
def test_killed_at_twenty_random_moments(
    command: str, number: int, folder: Path, undisturbed: Undisturbed, made: Path, invoke: Invoke
) -> None:
    moments = draw_moments(5, 20, undisturbed.seconds[command], EVENTS[command])
    # Every fourth time it is killed once more on its second way.
    again = [moments[(number + 7) % 20]] if number % 4 == 0 else []
    check_killed(command, [moments[number], *again], folder, undisturbed, made, invoke)
