"""Workers are forked from one process, tell how they end, and never outlive it or this one."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pipelines.local_fork_server import ForkedWorker, ForkServer, read_tail, use_fork_server
from tests.pipelines.worker_processes import find_fork_servers, find_workers

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    """One server for all tests of this module: it takes a second to start."""
    with use_fork_server() as server:
        yield server


@contextlib.contextmanager
def waiting_worker(server: ForkServer) -> Iterator[tuple[ForkedWorker, psutil.Process]]:
    """A worker that waits for a runner which never answers."""
    with socket.create_server(("localhost", 0)) as silent, tempfile.TemporaryFile() as output:
        address = f"localhost:{silent.getsockname()[1]}"
        environment = {"CONTROL_API_SERVICE_DESCRIPTOR": f'url: "{address}"', "WORKER_ID": "worker"}
        worker = server.fork(environment, output)
        silent.accept()
        (process,) = find_workers()
        try:
            yield worker, process
        finally:
            worker.kill()
            worker.wait()


def test_a_worker_that_fails_says_why(server: ForkServer) -> None:
    with tempfile.TemporaryFile() as output:
        assert server.fork({}, output).wait() == 1
        assert "KeyError: 'CONTROL_API_SERVICE_DESCRIPTOR'" in read_tail(output)
    assert not find_workers()


def test_workers_come_one_after_another_from_the_same_process(server: ForkServer) -> None:
    (forked_from,) = find_fork_servers()
    with tempfile.TemporaryFile() as output:
        server.fork({}, output).wait()  # when this one's end was told, the process is at rest
    num_open_files = forked_from.num_fds()
    for _ in range(50):
        with use_fork_server() as same, tempfile.TemporaryFile() as output:
            assert same is server
            assert same.fork({}, output).wait() == 1
    assert find_fork_servers() == [forked_from]
    assert forked_from.num_fds() <= num_open_files + 1  # the last worker's socket may be about to close
    assert not find_workers()


def test_a_killed_worker_is_gone(server: ForkServer) -> None:
    with waiting_worker(server) as (worker, process):
        with pytest.raises(TimeoutError):
            worker.wait(0.01)
        worker.kill()
        assert worker.wait() == -signal.SIGKILL
        assert not process.is_running()
        worker.kill()  # nothing is left to do


def test_one_that_dies_by_itself_tells_how(server: ForkServer) -> None:
    with waiting_worker(server) as (worker, process):
        process.send_signal(signal.SIGABRT)
        assert worker.wait() == -signal.SIGABRT


def test_the_others_live_on(server: ForkServer) -> None:
    with waiting_worker(server) as (_, process), tempfile.TemporaryFile() as output:
        assert server.fork({}, output).wait() == 1
        assert process.is_running()


def test_workers_die_with_the_process_that_they_are_forked_from() -> None:
    server = ForkServer()
    before = set(find_workers())
    with socket.create_server(("localhost", 0)) as silent, tempfile.TemporaryFile() as output:
        address = f"localhost:{silent.getsockname()[1]}"
        worker = server.fork({"CONTROL_API_SERVICE_DESCRIPTOR": f'url: "{address}"'}, output)
        silent.accept()
        started = set(find_workers()) - before
        assert len(started) == 1
        server.close()
        assert worker.wait() is None
        _, alive = psutil.wait_procs(started, timeout=30)
        assert not alive
        # Nobody is there to be asked.
        assert server.fork({}, output).wait() is None


def test_a_dead_one_is_replaced() -> None:
    with use_fork_server() as first:
        first.close()
        with use_fork_server() as second, tempfile.TemporaryFile() as output:
            assert second is not first
            assert second.fork({}, output).wait() == 1


def test_what_is_kept_ends_with_the_process_that_started_it() -> None:
    program = """
        import psutil
        from pipelines.local_fork_server import keep_fork_server
        keep_fork_server()
        keep_fork_server()
        print(*(child.pid for child in psutil.Process().children()), flush=True)
        input()
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    (child,) = process.stdout.readline().split()
    server = psutil.Process(int(child))
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs([server], timeout=30)
    assert not alive


def test_nothing_of_beam_is_imported_with_it() -> None:
    program = "import pipelines.local_fork_server, sys; assert not {'apache_beam', 'grpc'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=REPOSITORY)
