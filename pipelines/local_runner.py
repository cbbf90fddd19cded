"""A Beam runner for the processes of one machine that deals work as workers ask for it.

In: any batch pipeline. Out: what Beam's FnApiRunner gives. Not deterministic: which worker gets which element
and in which order results arrive, so a pipeline must not depend on either (none of ours does).

It is FnApiRunner with three changes. Elements are dealt in small bundles to whichever worker is free, in
their order (so put the largest first), where FnApiRunner cuts them into one equal share a worker
beforehand. A worker that dies fails the pipeline with a message, where FnApiRunner waits for it for ever.
Workers get the pipeline's options, are quiet, and never outlive the runner. Name it by
`--runner=pipelines.local_runner.LocalRunner --direct_num_workers=N`.

It stands on private names of Beam, pinned to the release that they were read in; `pipelines.launching` takes
FnApiRunner where one is missing.
"""

from __future__ import annotations

import itertools
import logging
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import grpc  # type: ignore[import-untyped]
from apache_beam.metrics import monitoring_infos
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, WorkerOptions
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_fn_api_pb2, beam_provision_api_pb2, endpoints_pb2
from apache_beam.runners.portability.fn_api_runner.fn_runner import (
    BundleManager,
    ExtendedProvisionInfo,
    FnApiRunner,
)
from apache_beam.runners.portability.fn_api_runner.worker_handlers import GrpcWorkerHandler, WorkerHandler
from apache_beam.runners.portability.portable_runner import JobServiceHandle
from google.protobuf import json_format, text_format  # type: ignore[import-untyped]

from schemas.errors import ClozelineError

WORKER_URN = "clozeline:env:local_worker:v1"

_BUNDLES_A_WORKER = 4
_DEATH_SECONDS = 5.0
_POLL_SECONDS = 0.2
_TAIL_BYTES = 4096
# One process a core is the parallelism; threads inside a worker would only fight for the same cores.
_WORKER_ENVIRONMENT = {
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "ARROW_IO_THREADS": "2",
}

_LOG_LINE = re.compile(r"(DEBUG|INFO|WARNING|ERROR|CRITICAL):")

_LOGGER = logging.getLogger(__name__)

Bundle = dict[str, list[bytes]]


class LocalRunner(FnApiRunner):
    """Runs a pipeline in worker processes of this machine (`--direct_num_workers`, 0 for one a core)."""

    def run_pipeline(self, pipeline: Any, options: PipelineOptions) -> Any:
        """Run the pipeline to its end.

        Raises:
            ClozelineError: a worker process died.
            RuntimeError: a step raised; the message holds the traceback.
        """
        direct_options = options.view_as(DirectOptions)
        direct_options.direct_running_mode = "multi_processing"
        if not direct_options.direct_num_workers:
            direct_options.direct_num_workers = len(os.sched_getaffinity(0))
        worker_options = options.view_as(WorkerOptions)
        worker_options.default_sdk_harness_log_level = (
            worker_options.default_sdk_harness_log_level or "WARNING"
        )
        self._provision_info = ExtendedProvisionInfo(
            beam_provision_api_pb2.ProvisionInfo(
                pipeline_options=JobServiceHandle.encode_pipeline_options(
                    options.get_all_options(drop_default=True)
                )
            )
        )
        return super().run_pipeline(pipeline, options)

    def run_via_runner_api(self, pipeline_proto: Any, options: PipelineOptions) -> Any:
        """As FnApiRunner does, with worker processes of our own."""
        for environment in pipeline_proto.components.environments.values():
            if environment.urn == python_urns.SUBPROCESS_SDK:
                environment.urn = WORKER_URN
        return super().run_via_runner_api(pipeline_proto, options)

    def _get_bundle_manager(self, bundle_context_manager: Any) -> BundleManager:
        return _DealingBundleManager(
            bundle_context_manager,
            self._progress_frequency,
            cache_token_generator=FnApiRunner.get_cache_token_generator(static=False),
        )


class _PinnedContext:
    """A stage's context that knows one worker only, so that a BundleManager has no other to choose."""

    def __init__(self, context: Any, handler: WorkerHandler) -> None:
        self._context = context
        self.worker_handlers = [handler]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


class _DealingBundleManager(BundleManager):
    """Cuts the input of a stage into small bundles and gives each to the worker that asks next."""

    def process_bundle(
        self,
        inputs: Mapping[str, Any],
        expected_outputs: Any,
        fired_timers: Mapping[Any, Any],
        expected_output_timers: Any,
        dry_run: bool = False,
    ) -> Any:
        """Process the whole input of a stage; the same contract as FnApiRunner's managers."""
        context = self.bundle_context_manager
        handlers = context.worker_handlers
        # State and timers belong to a key, and a key to one worker: such a stage stays whole.
        whole = context.stage.is_stateful() or bool(expected_output_timers) or len(inputs) != 1

        def run(handler: WorkerHandler, bundle: Mapping[str, Any]) -> Any:
            manager = BundleManager(
                _PinnedContext(context, handler),
                self._progress_frequency,
                cache_token_generator=self._cache_token_generator,
            )
            return manager.process_bundle(
                bundle, expected_outputs, fired_timers, expected_output_timers, dry_run
            )

        bundles: list[Mapping[str, Any]] = [inputs] if whole else list(self._cut(inputs, len(handlers)))
        try:
            return _merge(_deal(bundles, handlers[: len(bundles)], run))
        except BaseException:
            # Nobody will use what the other workers are making: end them now, also on Ctrl-C.
            for handler in handlers:
                if isinstance(handler, LocalWorkerHandler):
                    handler.kill()
            raise

    def _cut(self, inputs: Mapping[str, Any], num_workers: int) -> Iterator[Bundle]:
        ((name, buffer),) = inputs.items()
        coder = self.bundle_context_manager.get_input_coder_impl(name)
        elements = [
            coder.encode_all([element]) for chunk in buffer for element in coder.decode_all(bytes(chunk))
        ]
        start = 0
        for size in bundle_sizes(len(elements), num_workers):
            yield {name: elements[start : start + size]}
            start += size


@WorkerHandler.register_environment(WORKER_URN, bytes)
class LocalWorkerHandler(GrpcWorkerHandler):
    """Starts one worker process, notices its death, and ends it."""

    def __init__(self, payload: bytes, state: Any, provision_info: Any, grpc_server: Any) -> None:
        super().__init__(state, provision_info, grpc_server)
        self._closing = threading.Event()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the worker)
        self._forgive_broken_streams()

    def start_worker(self) -> None:
        """Start the process and the thread that waits for its end."""
        options = json_format.MessageToJson(self.provision_info.provision_info.pipeline_options)
        environment = {
            **os.environ,
            **_WORKER_ENVIRONMENT,
            # Workers import what the launching process imports, wherever it was found.
            "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path),
            "CONTROL_API_SERVICE_DESCRIPTOR": text_format.MessageToString(
                endpoints_pb2.ApiServiceDescriptor(url=self.control_address)
            ),
            "PIPELINE_OPTIONS": options,
            "WORKER_ID": self.worker_id,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pipelines.local_worker"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            # Ctrl-C reaches the runner alone, which then ends its workers.
            start_new_session=True,
        )
        threading.Thread(name="watch_worker", target=self._watch, daemon=True).start()

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
        if self._process.stdin is not None:
            self._process.stdin.close()
        for line in self._read_output().splitlines():
            _LOGGER.debug("%s: %s", self.worker_id, line)
        self._output.close()

    def explain(self, error: Exception) -> Exception:
        """The error to report for a bundle that failed: the death of the process, if that is the reason."""
        if self._closing.is_set() or str(error).startswith("Traceback"):
            return error
        try:
            code = self._process.wait(_DEATH_SECONDS)
        except subprocess.TimeoutExpired:
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

    def _describe_death(self, code: int) -> str:
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        cause = "; the usual cause is too little memory" if code == -signal.SIGKILL else ""
        # Its last words, if they aren't a logger's: "Segmentation fault", "MemoryError", …
        lines = [line for line in self._read_output().splitlines() if line and not _LOG_LINE.match(line)]
        words = f": {lines[-1][:200]}" if lines else ""
        return (
            f"a worker process died ({how}){cause}{words}\n"
            f"Finished work is kept: run the same command again, with fewer --workers if memory is short."
        )

    def _read_output(self) -> str:
        try:
            size = os.fstat(self._output.fileno()).st_size
            return os.pread(self._output.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES)).decode(
                errors="replace"
            )
        except ValueError:  # closed meanwhile
            return ""


def bundle_sizes(num_elements: int, num_workers: int) -> list[int]:
    """How many elements each bundle gets, in the order of dealing.

    Guided self-scheduling (Polychronopoulos and Kuck 1987), with a smaller share: a bundle takes a quarter of
    what would be one worker's part of the rest, and one element at the end, so that workers finish together.
    The sizes add up to `num_elements`; no elements still make one (empty) bundle, as a stage must run.
    """
    sizes, left = [], num_elements
    while left:
        sizes.append(max(1, left // (_BUNDLES_A_WORKER * num_workers)))
        left -= sizes[-1]
    return sizes or [0]


def _until_broken(stream: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from stream
    except grpc.RpcError as error:
        _LOGGER.debug("a connection to a worker ended: %r", error)


def _deal(bundles: list[Mapping[str, Any]], handlers: list[WorkerHandler], run: Any) -> list[Any]:
    """Run every bundle on the next free worker; the results, or the first exception, come back."""
    waiting = iter(bundles)
    lock = threading.Lock()
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def work(handler: WorkerHandler) -> None:
        while True:
            with lock:
                bundle = next(waiting, None)
            if bundle is None:
                return
            try:
                done.put(run(handler, bundle))
            except Exception as error:
                done.put(handler.explain(error) if isinstance(handler, LocalWorkerHandler) else error)
                return

    for handler in handlers:
        threading.Thread(target=work, args=(handler,), name="deal_bundles", daemon=True).start()
    results = []
    for _ in bundles:
        result = done.get()
        if isinstance(result, Exception):
            raise result
        results.append(result)
    return results


def _merge(results: list[Any]) -> Any:
    responses = [response.process_bundle for response, _ in results]
    merged = beam_fn_api_pb2.ProcessBundleResponse(
        monitoring_infos=monitoring_infos.consolidate(
            itertools.chain.from_iterable(response.monitoring_infos for response in responses)
        ),
        residual_roots=itertools.chain.from_iterable(response.residual_roots for response in responses),
    )
    splits = [split for _, bundle_splits in results for split in bundle_splits]
    return beam_fn_api_pb2.InstructionResponse(process_bundle=merged), splits
