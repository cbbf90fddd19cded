"""Disks that fill up, folders that can't be written, inputs that change: named, exit 1, and on it goes."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import Result

from pipelines import build, ingest
from pipelines.ingest_steps import ReadDocumentsFn
from tests.end_to_end.conftest import PROGRAM
from tests.end_to_end.killed_command import read_files

Invoke = Callable[..., Result]
Step = Callable[[Path], object]

COMMANDS = {
    "ingest": (
        *("ingest", "--input", "in/*.jsonl", "--tokenizer", "tokenizer", "--output", "out"),
        *("--validation-fraction", "0.2", "--workers", "1"),
    ),
    "build": (
        *("build", "--corpus", "corpus", "--output", "out", "--max-seq-length", "32", "--workers", "1"),
    ),
}
MANIFESTS = {"ingest": "corpus.json", "build": "dataset.json"}


@pytest.fixture(scope="module")
def expected(
    made: Path, tmp_path_factory: pytest.TempPathFactory, invoke: Invoke
) -> dict[str, dict[str, bytes]]:
    """What each command writes where nothing is wrong."""
    folder = tmp_path_factory.mktemp("expected")
    outputs = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        _write_inputs(folder, made)
        for command, arguments in COMMANDS.items():
            result = invoke(*arguments)
            assert result.exit_code == 0, result.output
            outputs[command] = read_files(folder / "out")
            shutil.rmtree(folder / "out")
    return outputs


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with what both commands read. Paths are relative, so that bytes are the same."""
    _write_inputs(tmp_path, made)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _write_inputs(folder: Path, made: Path) -> None:
    shutil.copytree(made / "tokenizer", folder / "tokenizer")
    shutil.copytree(made / "corpus", folder / "corpus")
    (folder / "in").mkdir()
    for name in ("a", "b"):
        lines = [
            json.dumps(
                {"id": f"{name}{day}", "text": f"the cat went to the river on day {name} {day}. " * 20}
            )
            for day in range(60)
        ]
        (folder / "in" / f"{name}.jsonl").write_text("\n".join([*lines, "{"]) + "\n")


def assert_fails(result: Result, *said: str, code: int = 1) -> None:
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    error = result.stderr[result.stderr.index("error: ") :]
    assert len(error.splitlines()) <= 2, error
    assert "defect" not in error
    for text in said:
        assert re.search(text, error), error


@contextmanager
def largest_file(num_bytes: int) -> Iterator[None]:
    """The kernel refuses to let a file of this process grow further, also to root."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("command", COMMANDS)
def test_whichever_write_fails_the_command_goes_on_when_there_is_room(
    command: str, folder: Path, expected: dict[str, dict[str, bytes]], invoke: Invoke
) -> None:
    output = folder / "out"
    num_failed = 0
    for num_bytes in (0, 10, 400, 900, 2_000, 4_000, 8_000, 16_000, 1 << 30):
        with largest_file(num_bytes):
            result = invoke(*COMMANDS[command])
        if result.exit_code == 0:
            break
        num_failed += 1
        assert_fails(result, r"can't write out/\S+: File too large")
        assert not (output / MANIFESTS[command]).exists()
        assert not list(output.rglob("*.tmp"))
    assert num_failed >= 5
    assert read_files(output) == expected[command]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("place", ["/proc/clozeline", "/sys/clozeline", "/dev/full/out", "in/a.jsonl/out"])
def test_an_output_that_nobody_may_write_is_named(
    command: str, place: str, folder: Path, invoke: Invoke
) -> None:
    before = read_files(folder)
    arguments = [place if word == "out" else word for word in COMMANDS[command]]
    assert_fails(invoke(*arguments), re.escape(place))
    assert read_files(folder) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_where_work_should_lie_is_named(command: str, folder: Path, invoke: Invoke) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "_work").write_text("not a folder")
    assert_fails(invoke(*COMMANDS[command]), "out/_work")
    assert (folder / "out" / "_work").read_text() == "not a folder"


@contextmanager
def happening_after_the_plan(command: str, step: Step, path: Path) -> Iterator[None]:
    """Something happens to a file when the command has listed what it will read."""
    module, name = {"ingest": (ingest, "plan_ingest"), "build": (build, "assign_pools")}[command]
    plan = getattr(module, name)

    def plan_and_harm(*arguments: object) -> object:
        planned = plan(*arguments)
        step(path)
        return planned

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, plan_and_harm)
        yield


def _append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b'{"text": "one more"}\n')


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def _flip_a_bit_of_the_tokens(path: Path) -> None:
    group = pq.read_metadata(path).row_group(0)
    (column,) = [c for i in range(3) if (c := group.column(i)).path_in_schema.startswith("token_ids")]
    content = bytearray(path.read_bytes())
    content[column.data_page_offset + column.total_compressed_size // 2] ^= 1
    path.write_bytes(content)


def _become_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("command", "step", "said"),
    [
        ("ingest", Path.unlink, "can't read in/b.jsonl: No such file"),
        ("ingest", _become_a_folder, "in/b.jsonl was changed while it was read"),
        ("ingest", _append, r"in/b.jsonl was changed while it was read: it had \d+ bytes, now \d+"),
        ("ingest", _cut, r"in/b.jsonl was changed while it was read: it had \d+ bytes, now \d+"),
        ("build", Path.unlink, r"corpus/train/\S+parquet"),
        ("build", _become_a_folder, r"corpus/train/\S+parquet"),
        ("build", _append, r"corpus/train/\S+parquet"),
        ("build", _cut, r"corpus/train/\S+parquet"),
        ("build", _flip_a_bit_of_the_tokens, r"corpus/train/\S+parquet"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_file_that_is_not_what_was_listed_is_named_and_the_work_goes_on_when_it_is_put_back(
    command: str,
    step: Step,
    said: str,
    folder: Path,
    expected: dict[str, dict[str, bytes]],
    invoke: Invoke,
) -> None:
    path = next((folder / {"ingest": "in", "build": "corpus/train"}[command]).glob("[!a]*"))
    content = path.read_bytes()
    with happening_after_the_plan(command, step, path):
        assert_fails(invoke(*COMMANDS[command]), said)
    assert not (folder / "out" / MANIFESTS[command]).exists()
    assert not list((folder / "out").rglob("*.tmp"))
    if path.is_dir():
        path.rmdir()
    path.write_bytes(content)
    result = invoke(*COMMANDS[command])
    assert result.exit_code == 0, result.output
    assert read_files(folder / "out") == expected[command]


def test_a_text_that_changes_between_two_readings_and_keeps_its_size_is_named(
    folder: Path, expected: dict[str, dict[str, bytes]], invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "in" / "b.jsonl"
    content = path.read_bytes()
    read_again = ReadDocumentsFn.process

    def change_and_read(self: ReadDocumentsFn, *arguments: Any) -> Any:
        path.write_bytes(content.replace(b"river", b"tower"))
        return read_again(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(ReadDocumentsFn, "process", change_and_read)
        said = "in/[ab].jsonl.* was changed after it was first read\n.*--overwrite"
        assert_fails(invoke(*COMMANDS["ingest"]), said)
    assert not (folder / "out" / "corpus.json").exists()
    path.write_bytes(content)
    assert invoke(*COMMANDS["ingest"]).exit_code == 0
    assert read_files(folder / "out") == expected["ingest"]


def test_an_input_that_stays_changed_is_told_how_to_go_on(folder: Path, invoke: Invoke) -> None:
    path = folder / "in" / "b.jsonl"
    with happening_after_the_plan("ingest", _append, path):
        assert_fails(invoke(*COMMANDS["ingest"]), "same command again.*--overwrite")
    result = invoke(*COMMANDS["ingest"], "--overwrite")
    assert result.exit_code == 0, result.output
    shutil.copytree(folder / "out", folder / "first")
    shutil.rmtree(folder / "out")
    assert invoke(*COMMANDS["ingest"]).exit_code == 0
    assert read_files(folder / "out") == read_files(folder / "first")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_second_process_on_the_same_output_is_refused(
    command: str, folder: Path, expected: dict[str, dict[str, bytes]], invoke: Invoke
) -> None:
    first = subprocess.Popen(
        [*PROGRAM, *COMMANDS[command]],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    lock = folder / "out" / "_work" / "lock"
    while first.poll() is None and not (lock.exists() and lock.read_text().startswith("process")):
        time.sleep(0.0005)
    first.send_signal(signal.SIGSTOP)
    other = ("--segmenter", "newline") if command == "ingest" else ("--seed", "2")
    for arguments in (COMMANDS[command], (*COMMANDS[command], *other), (*COMMANDS[command], "--overwrite")):
        assert_fails(invoke(*arguments), f"^error: out is being written by process {first.pid} on ")
    first.send_signal(signal.SIGCONT)
    errors = first.communicate()[1]
    assert first.returncode == 0, errors
    assert read_files(folder / "out") == expected[command]


# What a machine without the packages for object stores says.
WITHOUT_PACKAGES = """
    import json, sys
    for name in ("boto3", "botocore", "s3fs", "gcsfs", "google.cloud", "google.cloud.storage", "apitools"):
        sys.modules[name] = None
    from click.testing import CliRunner
    from workflows.cli import main
    results = [CliRunner().invoke(main, line.split()) for line in json.loads(sys.argv[1])]
    print(json.dumps([(result.exit_code, result.stderr) for result in results]))
"""


def test_a_missing_package_for_an_object_store_is_told_with_its_pip_line(folder: Path) -> None:
    lines = [
        line.replace("URL", f"{scheme}://bucket/folder")
        for scheme in ("s3", "gs")
        for line in (
            "vocab --input URL/*.jsonl --output t",
            "ingest --input URL/*.jsonl --tokenizer tokenizer --output o",
            "ingest --input in/a.jsonl --tokenizer tokenizer --output URL",
            "ingest --input in/a.jsonl --tokenizer URL --output o",
            "build --corpus URL --output o",
            "build --corpus corpus --output URL",
            "verify URL",
            "inspect URL",
            "report URL --output r.html",
            "train --data URL --output o --steps 1",
            "train --resume URL",
            "evaluate --data URL --checkpoint c",
            "fill-mask --checkpoint URL a",
        )
    ]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(WITHOUT_PACKAGES), json.dumps(lines)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for line, (code, errors) in zip(lines, json.loads(done.stdout), strict=True):
        extra = "aws" if "s3://" in line else "gcp"
        assert code == 2, (line, errors)
        error = errors[errors.index("error: ") :].splitlines()
        assert len(error) == 2, (line, errors)
        assert f"{extra.replace('aws', 's3').replace('gcp', 'gs')}://bucket/folder" in error[0]
        assert error[1] == f"Install it: pip install 'clozeline[{extra}]'", (line, errors)
