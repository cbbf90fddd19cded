"""Real runs of `trainer.train`, loader included, and what a look into their last steps shows.

In: a watch and the settings of a run; each run is taken in a fresh process. Out: tokens and seconds, the time
that the loop waited for data, memory and utilisation, as the run's own `metrics.jsonl` has them; and what
`StepProbe` found. On a GPU that is short of memory the step is halved until it fits.
"""

from __future__ import annotations

import contextlib
import operator
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

from tests.benchmarks.measuring import Watch
from trainer.config import TrainConfig
from trainer.data.batches import Batch
from trainer.loop import train
from trainer.loop_state import Metrics
from trainer.step_result import PendingResult
from trainer.stepping import Stepper

Layout = Literal["padded", "packed"]


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """A run of some windows of steps, each with a line of metrics.

    Attributes:
        dataset: URL of a dataset.
        model: a preset, or the path of a JSON configuration.
        output: where run folders are made.
        layout: of the batches.
        tokens_per_step: in a step at most, padding included.
        row_length: tokens of the dataset's longest examples.
        steps_per_window: steps between two lines of metrics.
        num_windows: that are timed.
        is_warmed_up: whether one more window comes first and isn't timed.
        is_probed: whether one more comes last, is looked into and isn't timed.
        device: as in `TrainConfig`.
        compile: as in `TrainConfig`.
    """

    dataset: str
    model: str
    output: str
    layout: Layout
    tokens_per_step: int
    row_length: int
    steps_per_window: int
    num_windows: int = 1
    is_warmed_up: bool = False
    is_probed: bool = False
    device: str = "auto"
    compile: bool = False

    @property
    def num_steps(self) -> int:
        """Of all windows."""
        return self.steps_per_window * (self.is_warmed_up + self.num_windows + self.is_probed)


@dataclass
class Findings:
    """What was seen in the probed steps of a run.

    Attributes:
        num_steps: that were looked into.
        host_syncs: what torch said of steps that waited for the GPU.
        num_stream_syncs: calls in the profile by which the host waited for a stream, between steps too.
        busy_share: of the time from the first work of the GPU to the last one, in which it had work; None
            where there is no GPU.
    """

    num_steps: int = 0
    host_syncs: list[str] = field(default_factory=list)
    num_stream_syncs: int = 0
    busy_share: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """The fields that are reported."""
        return {
            "num_probed_steps": self.num_steps,
            "num_host_syncs": len(self.host_syncs),
            "host_sync": self.host_syncs[0] if self.host_syncs else None,
            "num_stream_syncs": self.num_stream_syncs,
            "busy_share": self.busy_share,
        }


def run_training(watch: Watch, settings: RunSettings) -> dict[str, Any]:
    """Train, in the watch from the first to the last step of all windows; see `summarise` for the result."""
    while True:
        try:
            return _run_once(watch, settings)
        except torch.OutOfMemoryError:
            if settings.tokens_per_step < 2 * settings.row_length:
                raise
        # Only now: as long as the error is handled, it holds on to the tensors of its frames.
        torch.cuda.empty_cache()
        settings = replace(settings, tokens_per_step=settings.tokens_per_step // 2)


def summarise(lines: list[Metrics], settings: RunSettings) -> dict[str, Any]:
    """What the timed lines of a run's metrics say together.

    Returns:
        `num_tokens` that are no padding, `seconds`, `waited_seconds` for data, `utilisation` (None where the
        device's peak is unknown) and `memory_bytes` at the highest.
    """
    first = int(settings.is_warmed_up)
    timed = lines[first : first + settings.num_windows]
    ends = [0.0, *(float(line["seconds"] or 0.0) for line in lines)]
    tokens = [0, *(int(line["num_tokens"] or 0) for line in lines)]
    end = first + settings.num_windows
    lasted = [ends[number + 1] - ends[number] for number in range(first, end)]
    known = [line["utilisation"] for line in timed if line["utilisation"] is not None]
    seconds = sum(lasted)
    return {
        "num_tokens": tokens[end] - tokens[first],
        "seconds": seconds,
        "waited_seconds": sum(float(line["data_wait_seconds"] or 0.0) for line in timed),
        "utilisation": sum(map(operator.mul, known, lasted)) / seconds if len(known) == len(timed) else None,
        "memory_bytes": max(int(line["memory_bytes"] or 0) for line in timed),
    }


@contextlib.contextmanager
def probe_steps(first: int, last: int) -> Iterator[Findings]:
    """Look into the steps `first` … `last` of the run in the block.

    In each of them torch is told to fail where the host waits for the GPU, and from the first to the end of
    the last all is profiled, what lies between steps too.
    """
    findings = Findings()
    take = Stepper.take
    on_gpu = torch.cuda.is_available()
    profiler = torch.profiler.profile(activities=_activities(on_gpu))

    def probed(
        self: Stepper, step: int, microbatches: list[Batch], learning_rate: float, wants_stop: bool = False
    ) -> PendingResult:
        if not first <= step <= last:
            return take(self, step, microbatches, learning_rate, wants_stop)
        if step == first:
            profiler.start()
        findings.num_steps += 1
        try:
            with _refusing_syncs(on_gpu):
                return take(self, step, microbatches, learning_rate, wants_stop)
        except RuntimeError as error:
            if "synchronizing" not in str(error):
                raise
            findings.host_syncs.append(str(error).splitlines()[0])
            # What was taken of the step is thrown away: the numbers of this run are nobody's.
            self.optimiser.zero_grad(set_to_none=True)
            return take(self, step, microbatches, learning_rate, wants_stop)
        finally:
            if step == last:
                profiler.stop()
                _read_profile(profiler, findings)

    Stepper.take = probed  # type: ignore[method-assign,assignment]
    try:
        yield findings
    finally:
        Stepper.take = take  # type: ignore[method-assign]


def busy_share(intervals: Iterable[tuple[float, float]]) -> float | None:
    """The share of the time from the first start to the last end that lies in some interval."""
    ordered = sorted(intervals)
    if not ordered:
        return None
    busy, reached = 0.0, ordered[0][0]
    for start, end in ordered:
        busy += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    length = reached - ordered[0][0]
    return busy / length if length > 0 else None


def _run_once(watch: Watch, settings: RunSettings) -> dict[str, Any]:
    size = (
        {"batch_size": max(1, settings.tokens_per_step // settings.row_length)}
        if settings.layout == "padded"
        else {"tokens_per_batch": settings.tokens_per_step}
    )
    config = TrainConfig(
        data=(settings.dataset,),
        output=os.path.join(settings.output, f"run-{settings.tokens_per_step}"),
        model=settings.model,
        steps=settings.num_steps,
        log_every=settings.steps_per_window,
        save_every=settings.num_steps,
        device=settings.device,
        compile=settings.compile,
        **size,
    )
    lines: list[Metrics] = []
    first_probed = settings.num_steps - settings.steps_per_window * settings.is_probed + 1
    with probe_steps(first_probed, settings.num_steps) as findings, watch:
        summary = train(config, on_log=lines.append)
    return {
        **summarise(lines, settings),
        **findings.as_dict(),
        "tokens_per_step": settings.tokens_per_step,
        "precision": summary.precision,
    }


def _activities(on_gpu: bool) -> list[torch.profiler.ProfilerActivity]:
    kinds = torch.profiler.ProfilerActivity
    return [kinds.CPU, kinds.CUDA] if on_gpu else [kinds.CPU]


@contextlib.contextmanager
def _refusing_syncs(on_gpu: bool) -> Iterator[None]:
    if not on_gpu:
        yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def _read_profile(profiler: torch.profiler.profile, findings: Findings) -> None:
    events = list(profiler.events() or ())  # type: ignore[no-untyped-call]
    findings.num_stream_syncs = sum(event.name == "cudaStreamSynchronize" for event in events)
    on_device = [event.time_range for event in events if event.device_type != torch.profiler.DeviceType.CPU]
    findings.busy_share = busy_share((one.start, one.end) for one in on_device)
