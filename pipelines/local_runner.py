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
import os
import queue
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from apache_beam.metrics import monitoring_infos
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, WorkerOptions
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_fn_api_pb2, beam_provision_api_pb2
from apache_beam.runners.portability.fn_api_runner.fn_runner import (
    BundleManager,
    ExtendedProvisionInfo,
    FnApiRunner,
)
from apache_beam.runners.portability.fn_api_runner.worker_handlers import WorkerHandler
from apache_beam.runners.portability.portable_runner import JobServiceHandle

from pipelines.local_fork_server import use_fork_server
from pipelines.local_worker_handler import WORKER_URN, LocalWorkerHandler

_BUNDLES_A_WORKER = 4
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
        with use_fork_server():  # before the first worker: it starts while Beam plans
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
