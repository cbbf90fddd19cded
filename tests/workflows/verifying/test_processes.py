from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from schemas.errors import ClozelineError
from tests.workflows.verifying import piecework
from workflows.verifying.processes import choose_workers, spread

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_every_piece_is_done_once(workers: int) -> None:
    results = dict(spread(piecework.square, list(range(6)), workers))
    assert {number: square for number, (square, _) in results.items()} == {n: n * n for n in range(6)}
    processes = {process for _, process in results.values()}
    assert len(processes) <= workers
    assert (processes == {os.getpid()}) == (workers == 1)


def test_one_piece_needs_no_process() -> None:
    assert list(spread(piecework.square, [3], 8)) == [(0, (9, os.getpid()))]
    assert list(spread(piecework.square, [], 8)) == []


def test_an_error_ends_the_work_and_its_processes() -> None:
    before = set(multiprocessing.active_children())
    with pytest.raises(ValueError, match="two is not wanted"):
        list(spread(piecework.fail_at_two, list(range(50)), 2))
    assert set(multiprocessing.active_children()) == before


def test_a_process_that_dies_ends_the_work_with_an_error() -> None:
    before = set(multiprocessing.active_children())
    with pytest.raises(ClozelineError, match=r"^a worker process died; .*\n.* with fewer --workers\.$"):
        list(spread(piecework.die_at_two, list(range(50)), 2))
    assert set(multiprocessing.active_children()) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_the_one_that_started_it(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.workflows.verifying.piecework", str(tmp_path)]
    # A shell in the background has its children ignore SIGINT; a terminal does not.
    program = subprocess.Popen(
        command,
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
        process_group=0,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        while len(list(tmp_path.iterdir())) < 2:
            assert program.poll() is None
            time.sleep(0.05)
        # Ctrl-C reaches the whole group, the others one process.
        (os.killpg if number == signal.SIGINT else os.kill)(program.pid, number)
        assert program.wait() != 0
        for worker in tmp_path.iterdir():
            while psutil.pid_exists(int(worker.name)) and _runs(int(worker.name)):
                time.sleep(0.05)
    finally:
        program.kill()
        program.wait()


def _runs(process: int) -> bool:
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_as_many_processes_as_are_worth_their_start() -> None:
    assert choose_workers(None, "data", 1000) == 1
    assert choose_workers(None, "data", 1 << 40) == len(os.sched_getaffinity(0))
    assert choose_workers(3, "gs://bucket/data", 1000) == 3
    assert choose_workers(3, "memory://data", 1 << 40) == 1
