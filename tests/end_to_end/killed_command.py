"""A `clozeline` command that is killed at a moment, and what it leaves on disk."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

REPOSITORY = Path(__file__).parents[2]

# Small inputs are cut into several reads, and small corpora into several pools.
PROGRAM = """
    from pipelines import ingest_plan, pools
    from workflows.cli import main
    ingest_plan.choose_read_bytes = lambda files: sum(file.size_bytes for file in files) // 6 + 1
    pools.MIN_POOL_TOKENS = 20_000
    main()
"""


@dataclass(frozen=True)
class Moment:
    """When a command is killed, and which of its processes.

    Attributes:
        seconds: after the start, or after the event where there is one.
        event: a glob below the output folder, and how many files it must match.
        victim: the command itself, or one of the processes that it started, by the order of their numbers.
    """

    seconds: float
    event: tuple[str, int] | None = None
    victim: Literal["command"] | int = "command"

    def __str__(self) -> str:
        event = "start" if self.event is None else f"{self.event[1]} of {self.event[0]}"
        return f"{self.victim}, {self.seconds:.3f} s after {event}"


def draw_moments(seed: int, number: int, seconds: float, events: list[tuple[str, int]]) -> list[Moment]:
    """Moments spread over all that a command does: half by the clock, half by what appears on disk.

    Args:
        seed: the same moments for the same seed and length.
        number: how many.
        seconds: the length of an uninterrupted run.
        events: globs below the output folder, and how many files each must match.
    """
    stream = random.Random(seed)
    by_clock = [Moment(stream.uniform(0.3, 1) * seconds) for _ in range(number // 2)]
    by_event = [
        Moment(
            stream.choice([0.0, 0.0, stream.uniform(0, 0.1)]),
            events[index % len(events)],
            stream.choice(["command", "command", 0, 1, 2]),
        )
        for index in range(number - len(by_clock))
    ]
    return [*by_clock, *by_event]


def run_command(folder: Path, *arguments: str) -> float:
    """Run a command to its end, which must be a good one; returns its seconds."""
    start = time.monotonic()
    process = _start(folder, arguments)
    errors = process.communicate()[1]
    assert process.returncode == 0, errors
    return time.monotonic() - start


def kill_command(folder: Path, moment: Moment, *arguments: str) -> None:
    """Run a command and kill it at a moment, or let it end where the moment never comes.

    Returns when all its processes have ended, which they must do by themselves.
    """
    process = _start(folder, arguments)
    output = folder / arguments[arguments.index("--output") + 1]
    while moment.event and process.poll() is None and not _has_happened(output, moment.event):
        time.sleep(0.0005)
    _sleep_while_running(process, moment.seconds)
    family = _family(process)
    if moment.victim == "command":
        process.send_signal(signal.SIGKILL)
    elif family:
        _kill(family[moment.victim % len(family)])
    errors = process.communicate()[1]
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not alive
    if moment.victim == "command":
        assert process.returncode in (0, -signal.SIGKILL), errors
        return
    assert process.returncode in (0, 1), errors
    if process.returncode == 1:
        error = errors[errors.index("error: ") :].splitlines()
        assert len(error) <= 2
        assert "worker process" in errors, errors
        assert "run the same command again" in errors, errors


def _start(folder: Path, arguments: tuple[str, ...]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _has_happened(output: Path, event: tuple[str, int]) -> bool:
    pattern, number = event
    try:
        return sum(1 for _ in output.glob(pattern)) >= number
    except OSError:  # a folder went away while it was listed
        return False


def _sleep_while_running(process: subprocess.Popen[str], seconds: float) -> None:
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.002)


def _family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        return sorted(psutil.Process(process.pid).children(recursive=True), key=lambda child: child.pid)
    except psutil.NoSuchProcess:
        return []


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return


Identity = tuple[int, int]
"""Number and time of change of a file: another pair, and it was written again."""


def find_finished(output: Path) -> dict[Path, Identity]:
    """The files of all pieces whose record is there, and the records themselves."""
    files: dict[Path, Identity] = {}
    for sidecar in (output / "_work").glob("*.json"):
        check, _, content = sidecar.read_bytes().partition(b"\n")
        if sidecar.name == "config.json":
            continue
        assert hashlib.sha256(content.rstrip(b"\n")).hexdigest().encode() == check
        paths = [sidecar, *(output / file["name"] for file in json.loads(content)["files"])]
        files.update((path, identify(path)) for path in paths)
    return files


def identify(path: Path) -> Identity:
    """What tells a file from one of the same name that was written later."""
    status = path.stat()
    return status.st_ino, status.st_mtime_ns


def read_files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
