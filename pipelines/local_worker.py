"""The process that works for `pipelines.local_runner`, and the one that it is forked from.

In: requests through a socket as standard input, each with a socket to the launching process, a file for what
the worker prints, and a file with its environment (Beam's variables: where the runner listens, the pipeline
options). Out: nothing but what the pipeline writes, and the exit code of each worker through its socket. A
worker ends when the launching process closes its socket, and all end when that process does, which the
operating system sees to whichever way it dies.

`python -m pipelines.local_worker` imports Beam and the steps once and is forked for every worker. A fork
takes along only the thread that asks for it, so nothing here may start one, or use gRPC, before that.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import threading
import traceback
from typing import Any, NoReturn

from pipelines.fast_import import importing_fast
from pipelines.local_fork_server import STATUS_BYTES

_EXIT_FAILED = 1
_EXIT_ORPHANED = 3
_SAMPLING_MILLISECONDS = 5


def main() -> None:
    """Import what workers need, then fork one for each request until the launching process ends."""
    with importing_fast():
        import apache_beam.runners.worker.sdk_worker_main  # noqa: F401

        import pipelines.build_steps
        import pipelines.ingest_steps  # noqa: F401

    _sample_often()
    _ForkServer(socket.socket(fileno=os.dup(0))).serve()


class _ForkServer:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._workers: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        # Workers hold the reading end and see it closed when this process dies.
        self._lifeline, self._life = os.pipe()
        self._ended, self._wake = socket.socketpair()

    def serve(self) -> None:
        self._wake.setblocking(False)
        signal.set_wakeup_fd(self._wake.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(self._control, selectors.EVENT_READ)
        self._selector.register(self._ended, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._control:
                    if not self._take_request():
                        return
                elif key.fileobj is self._ended:
                    self._ended.recv(1 << 10)
                    self._report_ended()
                else:
                    self._selector.unregister(key.fileobj)
                    # Not yet waited for, so that the number is still this worker's.
                    if key.data in self._workers:
                        os.kill(key.data, signal.SIGKILL)

    def _take_request(self) -> bool:
        message, descriptors, _, _ = socket.recv_fds(self._control, 1, 3)
        if not message:
            for pid in self._workers:
                os.kill(pid, signal.SIGKILL)
            return False
        pid = os.fork()
        if pid == 0:
            self._become_worker(*descriptors)
        channel, output, order = descriptors
        os.close(output)
        os.close(order)
        self._workers[pid] = socket.socket(fileno=channel)
        self._selector.register(self._workers[pid], selectors.EVENT_READ, pid)
        return True

    def _report_ended(self) -> None:
        for pid in list(self._workers):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended:
                continue
            channel = self._workers.pop(pid)
            with contextlib.suppress(KeyError):  # it was killed at the launching process's wish
                self._selector.unregister(channel)
            with channel, contextlib.suppress(OSError):
                code = os.waitstatus_to_exitcode(status)
                channel.sendall(code.to_bytes(STATUS_BYTES, "little", signed=True))

    def _become_worker(self, channel: int, output: int, order: int) -> NoReturn:
        code = _EXIT_FAILED
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(output, 1)
            os.dup2(output, 2)
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            for descriptor in (channel, output, null, self._life):
                os.close(descriptor)
            for end in (self._control, self._ended, self._wake, *self._workers.values()):
                end.close()
            self._selector.close()
            with os.fdopen(order, "rb") as stream:
                stream.seek(0)
                _work(json.load(stream), self._lifeline)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _work(request: dict[str, Any], lifeline: int) -> None:
    """Run Beam's worker until the runner ends it."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.path[:] = request["path"]
    threading.Thread(target=_end_with, args=(lifeline,), name="end_with_the_runner", daemon=True).start()
    from apache_beam.runners.worker import sdk_worker_main

    sdk_worker_main.main(sys.argv)


def _end_with(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(_EXIT_ORPHANED)


def _sample_often() -> None:
    """Let a bundle end when its work does.

    Beam looks five times a second at which step is running, and the end of a bundle waits for the last look:
    a tenth of a second, for each bundle.
    """
    from apache_beam.runners.worker import statesampler

    statesampler.StateSampler.__init__.__defaults__ = (_SAMPLING_MILLISECONDS,)


if __name__ == "__main__":
    main()
