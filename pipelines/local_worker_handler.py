"""A worker process of `pipelines.local_runner`, seen from the runner: its start, its death, its end.

In: where the runner listens, the pipeline's options. Out: a running process, or an error that says how it
died. Nothing here is deterministic or has to be.

Beam's own handler starts a process and takes no notice of it: when it dies, whoever waits for its results
waits for ever. Here a thread waits for the process and answers whatever is asked of a dead one with an
error.
"""

from __future__ import annotations

import contextlib
import logging
import re
import signal
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import grpc  # type: ignore[import-untyped]
from apache_beam.portability.api import beam_fn_api_pb2, endpoints_pb2
from apache_beam.runners.portability.fn_api_runner.worker_handlers import GrpcWorkerHandler, WorkerHandler
from google.protobuf import json_format, text_format  # type: ignore[import-untyped]

from pipelines.local_fork_server import read_tail, use_fork_server
from schemas.errors import ClozelineError

WORKER_URN = "clozeline:env:local_worker:v1"

_DEATH_SECONDS = 5.0
_POLL_SECONDS = 0.2
_LOG_LINE = re.compile(r"(DEBUG|INFO|WARNING|ERROR|CRITICAL):")

_LOGGER = logging.getLogger(__name__)


@WorkerHandler.register_environment(WORKER_URN, bytes)
class LocalWorkerHandler(GrpcWorkerHandler):
    """Starts one worker process, notices its death, and ends it."""

    def __init__(self, payload: bytes, state: Any, provision_info: Any, grpc_server: Any) -> None:
        super().__init__(state, provision_info, grpc_server)
        self._closing = threading.Event()
        # Taken for as long as this worker lives, and shared with the others.
        self._holding = contextlib.ExitStack()
        self._fork_server = self._holding.enter_context(use_fork_server())
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the worker)
        self._forgive_broken_streams()

    def start_worker(self) -> None:
        """Start the process and the thread that waits for its end."""
        environment = {
            "CONTROL_API_SERVICE_DESCRIPTOR": text_format.MessageToString(
                endpoints_pb2.ApiServiceDescriptor(url=self.control_address)
            ),
            "PIPELINE_OPTIONS": json_format.MessageToJson(
                self.provision_info.provision_info.pipeline_options
            ),
            "WORKER_ID": self.worker_id,
        }
        self._process = self._fork_server.fork(environment, self._output)
        threading.Thread(name="answer_for_worker", target=self._watch, daemon=True).start()

    def kill(self) -> None:
        """End the process without waiting for its work."""
        self._closing.set()
        self._process.kill()

    def close(self) -> None:
        """End the process: its results have arrived, and Beam promises no DoFn a `teardown`."""
        self.kill()
        self.control_conn.push(self.control_handler._DONE_MARKER)
        self.data_conn.close()
        self.stop_worker()

    def stop_worker(self) -> None:
        """Wait for the end of the process, and keep what it printed for `--debug`."""
        self._process.wait()
        for line in read_tail(self._output).splitlines():
            _LOGGER.debug("%s: %s", self.worker_id, line)
        self._output.close()
        self._holding.close()

    def explain(self, error: Exception) -> Exception:
        """The error to report for a bundle that failed: the death of the process, if that is the reason."""
        if self._closing.is_set() or str(error).startswith("Traceback"):
            return error
        try:
            code = self._process.wait(_DEATH_SECONDS)
        except TimeoutError:
            return error
        death = ClozelineError(self._describe_death(code))
        death.__cause__ = error
        return death

    def _watch(self) -> None:
        code = self._process.wait()
        # A bundle may be handed to the worker after its death was seen: keep answering until all are told.
        while not self._closing.is_set():
            message = self._describe_death(code)
            for instruction_id, future in list(self.control_conn._futures_by_id.items()):
                future.set(beam_fn_api_pb2.InstructionResponse(instruction_id=instruction_id, error=message))
            self._closing.wait(_POLL_SECONDS)

    def _forgive_broken_streams(self) -> None:
        # When a process dies, Beam's reading threads would each print a traceback; its death is reported
        # once, by the watching thread.
        read_control, read_inputs = self.control_conn.set_input, self.data_conn._read_inputs
        self.control_conn.set_input = lambda responses: read_control(_until_broken(responses))
        self.data_conn._read_inputs = lambda elements: read_inputs(_until_broken(elements))

    def _describe_death(self, code: int | None) -> str:
        output = read_tail(self._output)
        if code is None:
            how, output = "with the process that it was forked from", output or self._fork_server.last_words()
        else:
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        cause = "; the usual cause is too little memory" if code == -signal.SIGKILL else ""
        # Its last words, if they aren't a logger's: "Segmentation fault", "MemoryError", …
        lines = [line for line in output.splitlines() if line and not _LOG_LINE.match(line)]
        words = f": {lines[-1][:200]}" if lines else ""
        return (
            f"a worker process died ({how}){cause}{words}\n"
            f"Finished work is kept: run the same command again, with fewer --workers if memory is short."
        )


def _until_broken(stream: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from stream
    except grpc.RpcError as error:
        _LOGGER.debug("a connection to a worker ended: %r", error)
