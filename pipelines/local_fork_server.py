"""Where the worker processes of `pipelines.local_runner` come from: a process that is forked.

In: environment variables for a worker, a file for what it prints. Out: a running worker, later its exit code.
Nothing here is deterministic or has to be.

A fresh Python takes more than a second to import Beam, for every worker and every job. So one process
(`pipelines.local_worker`) imports it once and is forked whenever a worker is asked for, in milliseconds. It
is started afresh, not forked from this process, whose threads and connections wouldn't survive a fork. This
module imports no Beam, so that a command can begin with `keep_fork_server` and import Beam meanwhile.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import IO

STATUS_BYTES = 4
_TAIL_BYTES = 4096
# One process a core is the parallelism; threads inside a worker would only fight for the same cores.
_ENVIRONMENT = {
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "ARROW_IO_THREADS": "2",
}


class ForkedWorker:
    """A worker process, which lives no longer than the one that asked for it.

    Args:
        channel: the other end is with the fork server. Closing this one ends the worker; its exit code comes
            through it.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._code: Future[int | None] = Future()
        threading.Thread(target=self._receive, name="watch_worker", daemon=True).start()

    def wait(self, seconds: float | None = None) -> int | None:
        """Wait for the end of the process.

        Returns:
            Its exit code, negative for a signal; None where the fork server died and nobody knows it.

        Raises:
            TimeoutError: it still runs after so many seconds.
        """
        return self._code.result(seconds)

    def kill(self) -> None:
        """End the process at once."""
        with contextlib.suppress(OSError):  # it has ended already
            self._channel.shutdown(socket.SHUT_WR)

    def _receive(self) -> None:
        status = b""
        with self._channel, contextlib.suppress(OSError):
            while len(status) < STATUS_BYTES and (part := self._channel.recv(STATUS_BYTES)):
                status += part
        whole = len(status) == STATUS_BYTES
        self._code.set_result(int.from_bytes(status, "little", signed=True) if whole else None)


class ForkServer:
    """Starts the process that is forked; it ends, with all its workers, when this one does."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the server)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pipelines.local_worker"],
                env={**os.environ, **_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(_import_path())},
                stdin=theirs.fileno(),
                stdout=self._output,
                stderr=subprocess.STDOUT,
                # Ctrl-C reaches the runner alone, which then ends its workers.
                start_new_session=True,
            )

    def fork(self, environment: Mapping[str, str], output: IO[bytes]) -> ForkedWorker:
        """Start a worker.

        Args:
            environment: variables that it has beside those of this process.
            output: a file that gets what it prints.
        """
        request = {
            "environment": {**os.environ, **_ENVIRONMENT, **environment},
            "folder": os.getcwd(),
            # Workers import what the launching process imports, wherever it was found.
            "path": _import_path(),
        }
        ours, theirs = socket.socketpair()
        with theirs, tempfile.TemporaryFile() as order:
            order.write(json.dumps(request).encode())
            order.flush()
            with contextlib.suppress(OSError):  # it died, which the worker's watcher will find out
                socket.send_fds(self._control, [b"\n"], [theirs.fileno(), output.fileno(), order.fileno()])
        return ForkedWorker(ours)

    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the process, and with it every worker that is left."""
        self._control.close()
        self._process.kill()  # it may be importing still, which nobody wants to wait for
        self._process.wait()
        self._output.close()

    def last_words(self) -> str:
        """What the process printed at last, which says why it died."""
        return read_tail(self._output)


def read_tail(file: IO[bytes]) -> str:
    """The last lines of what a process printed to a file; none of one that is closed."""
    try:
        start = max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES)
        return os.pread(file.fileno(), _TAIL_BYTES, start).decode(errors="replace")
    except ValueError:  # closed meanwhile
        return ""


class _SharedServer:
    """One fork server for all jobs of this process, as long as anybody wants it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_users = 0
        self._server: ForkServer | None = None
        self._kept = False

    def keep(self) -> None:
        if not self._kept:
            self._kept = True
            self.enter()
            atexit.register(self.leave)

    def enter(self) -> ForkServer:
        with self._lock:
            if self._server is not None and not self._server.is_running():
                self._server.close()
                self._server = None
            self._server = self._server or ForkServer()
            self._num_users += 1
            return self._server

    def leave(self) -> None:
        with self._lock:
            self._num_users -= 1
            if not self._num_users and self._server is not None:
                self._server.close()
                self._server = None


_shared = _SharedServer()


def keep_fork_server() -> None:
    """Start the fork server now and keep it for all jobs until this process ends."""
    _shared.keep()


@contextlib.contextmanager
def use_fork_server() -> Iterator[ForkServer]:
    """The fork server that others of this process use too, or one for the time of the block."""
    server = _shared.enter()
    try:
        yield server
    finally:
        _shared.leave()


def _import_path() -> list[str]:
    return [entry or os.getcwd() for entry in sys.path]
