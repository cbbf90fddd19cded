"""`ingest` killed, interrupted, damaged, out of space: finished work is kept, and the result is the same."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from pipelines import ingest_plan
from pipelines.ingest import run_ingest
from pipelines.work_folder import WorkFolder
from schemas.configs import IngestConfig
from schemas.errors import ClozelineError, UsageError
from tests.pipelines.worker_processes import find_workers

REPOSITORY = Path(__file__).parents[2]
NUM_READS = 6
INPUT = "in.jsonl"
OUTPUT = "out"

# Runs `ingest` over in.jsonl in a process that is told where to be harmed.
PROGRAM = """
    import os, resource, signal, sys
    from pathlib import Path
    from pipelines import ingest, ingest_plan, work_folder
    from schemas.configs import IngestConfig
    from schemas.errors import ClozelineError

    STEPS_BEFORE_READS = 6 + 1  # hashing six reads, and one comparison

    ingest_plan.choose_read_bytes = lambda files: sum(file.size_bytes for file in files) // 6 + 1
    tokenizer, harm, signal_name = sys.argv[1:]

    def harm_self():
        os.kill(os.getpid(), getattr(signal, signal_name))

    def harm_at_call(owner, name, number, *, after=False):
        real, calls = getattr(owner, name), []
        def wrapped(*args, **kwargs):
            calls.append(1)
            if len(calls) == number and not after:
                harm_self()
            result = real(*args, **kwargs)
            if len(calls) == number and after:
                harm_self()
            return result
        setattr(owner, name, wrapped)

    if harm == "while writing":
        harm_at_call(work_folder.HashingWriter, "write", 20)
    elif harm == "before a sidecar":
        harm_at_call(work_folder.WorkFolder, "finish", STEPS_BEFORE_READS + 3)
    elif harm == "after a sidecar":
        harm_at_call(work_folder.WorkFolder, "finish", STEPS_BEFORE_READS + 3, after=True)
    elif harm == "before the manifest":
        harm_at_call(work_folder.WorkFolder, "commit", 1)
    elif harm == "after the manifest":
        harm_at_call(work_folder.WorkFolder, "commit", 1, after=True)
    elif harm == "no space":
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
    try:
        ingest.run_ingest(
            IngestConfig(inputs=("in.jsonl",), validation_fraction=0.2), tokenizer, "out", workers=1
        )
    except ClozelineError as error:
        sys.exit(f"{type(error).__name__}: {error}")
"""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer_path: Path) -> Path:
    """A folder with an input of six reads, and what a run gives that nothing disturbs."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with (folder / INPUT).open("w") as stream:
        for number in range(120):
            sentence = f"The cat {number} sat on the mat. It purred softly and ran over hill {number * 7}. "
            stream.write(json.dumps({"id": str(number), "text": sentence * 12}) + "\n")
        stream.write('{"text": 5}\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        cut_into_six(patch)
        run(tiny_tokenizer_path)
    assert len(list((folder / OUTPUT / "train").iterdir())) == NUM_READS
    return folder


@pytest.fixture
def expected(undisturbed: Path) -> dict[str, bytes]:
    return read_files(undisturbed / OUTPUT)


@pytest.fixture
def folder(undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with the input. Paths are relative, so that manifests are the same everywhere."""
    shutil.copy(undisturbed / INPUT, tmp_path)
    monkeypatch.chdir(tmp_path)
    cut_into_six(monkeypatch)
    return tmp_path


def cut_into_six(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        ingest_plan, "choose_read_bytes", lambda files: sum(f.size_bytes for f in files) // NUM_READS + 1
    )


def run(tokenizer: Path, *, output: str = OUTPUT, workers: int = 1, **config: object) -> None:
    settings = {"inputs": (INPUT,), "validation_fraction": 0.2, **config}
    run_ingest(IngestConfig(**settings), str(tokenizer), output, workers=workers)


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run_harmed(tokenizer: Path, harm: str, signal_name: str = "SIGKILL") -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tokenizer), harm, signal_name],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("harm", "num_finished"),
    [
        ("while writing", 0),
        ("before a sidecar", 2),
        ("after a sidecar", 3),
        ("before the manifest", NUM_READS),
        ("after the manifest", NUM_READS),
    ],
)
def test_killed_and_run_again_it_gives_the_same_bytes(
    folder: Path, tiny_tokenizer_path: Path, expected: dict[str, bytes], harm: str, num_finished: int
) -> None:
    code, errors = run_harmed(tiny_tokenizer_path, harm)
    assert code == -signal.SIGKILL, errors
    output = folder / "out"
    finished = [name for name in WorkFolder(str(output)).finished_names() if "." not in name]
    assert len(finished) == num_finished or (harm == "while writing" and len(finished) < NUM_READS)
    assert (output / "corpus.json").exists() == (harm == "after the manifest")
    kept = {
        path: path.stat().st_ino
        for path in output.rglob("*.parquet")
        if path.stem in finished and path.exists()
    }
    assert len(kept) >= num_finished

    run(tiny_tokenizer_path)
    assert read_files(output) == expected
    assert {path: path.stat().st_ino for path in kept} == kept  # not written again


def test_interrupted_by_ctrl_c_it_can_go_on(
    folder: Path, tiny_tokenizer_path: Path, expected: dict[str, bytes]
) -> None:
    code, errors = run_harmed(tiny_tokenizer_path, "after a sidecar", "SIGINT")
    assert code == -signal.SIGINT
    assert "KeyboardInterrupt" in errors
    assert not (folder / "out" / "corpus.json").exists()
    assert WorkFolder(str(folder / "out")).count_finished() in (2, 3)
    run(tiny_tokenizer_path, workers=2)
    assert read_files(folder / "out") == expected


def test_a_full_disk_is_told_in_a_line_or_two(folder: Path, tiny_tokenizer_path: Path) -> None:
    # A limit on the size of files fails the same write that a full disk would, and holds for root too.
    with (folder / "in.jsonl").open("a") as stream:
        words = " ".join(f"{number * number % 9973}" for number in range(40_000))
        stream.write(json.dumps({"id": "large", "text": words}) + "\n")
    code, errors = run_harmed(tiny_tokenizer_path, "no space")
    message = errors.strip().splitlines()
    assert code == 1
    assert message[-1].startswith("ClozelineError: can't write ")
    assert message[-1].endswith(".parquet: File too large")
    assert "Traceback" not in errors
    output = folder / "out"
    assert not (output / "corpus.json").exists()
    assert not list(output.rglob("*.tmp"))
    run(tiny_tokenizer_path)
    run(tiny_tokenizer_path, output="again")
    assert read_files(output) == read_files(folder / "again")


def test_damaged_files_are_made_again(
    folder: Path, tiny_tokenizer_path: Path, expected: dict[str, bytes]
) -> None:
    run_harmed(tiny_tokenizer_path, "before the manifest")
    output = folder / OUTPUT
    train = sorted((output / "train").iterdir())
    (reject,) = (output / "rejects").iterdir()
    sidecar = output / "_work" / f"{train[1].stem}.json"
    damaged = [train[0], sidecar, reject]
    for path in damaged:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    inodes = {path: path.stat().st_ino for path in output.glob("*/*.parquet")}
    run(tiny_tokenizer_path)
    assert read_files(output) == expected
    redone = {path.stem for path, inode in inodes.items() if path.stat().st_ino != inode}
    assert redone == {path.stem for path in damaged}


def test_unfinished_work_of_another_configuration_is_refused(folder: Path, tiny_tokenizer_path: Path) -> None:
    run_harmed(tiny_tokenizer_path, "after a sidecar")
    before = read_files(folder / "out")
    with pytest.raises(
        UsageError, match=r'unfinished work .*config\.segmenter was "sentencex", is now "newline"'
    ):
        run(tiny_tokenizer_path, segmenter="newline")
    (folder / "in.jsonl").open("a").write("\n")
    with pytest.raises(UsageError, match=r"num_input_bytes was \d+, is now \d+"):
        run(tiny_tokenizer_path)
    after = read_files(folder / "out")
    assert {**after, "_work/lock": b""} == {**before, "_work/lock": b""}


def test_a_second_process_is_refused(folder: Path, tiny_tokenizer_path: Path) -> None:
    with (
        WorkFolder(str(folder / "out")).hold(),
        pytest.raises(ClozelineError, match=r"out is being written by process \d+ on "),
    ):
        run(tiny_tokenizer_path)


def test_a_dead_worker_is_an_error_and_what_is_finished_is_kept(
    folder: Path, tiny_tokenizer_path: Path, expected: dict[str, bytes]
) -> None:
    killed = threading.Event()

    def kill_first_worker() -> None:
        while not killed.is_set():
            for worker in find_workers()[:1]:
                worker.kill()
                killed.set()
            time.sleep(0.01)

    killer = threading.Thread(target=kill_first_worker)
    killer.start()
    try:
        with pytest.raises(ClozelineError, match=r"a worker process died \(signal SIGKILL\)"):
            run(tiny_tokenizer_path, workers=2)
    finally:
        killed.set()
        killer.join()
    assert not find_workers()
    assert not (folder / "out" / "corpus.json").exists()
    run(tiny_tokenizer_path)
    assert read_files(folder / "out") == expected
