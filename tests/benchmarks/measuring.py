"""Measures tasks side by side: each run in a process of its own, in turns, and compared by ratios.

In: functions whose first argument is a `Watch`. Out: wall time, processor time and peak memory of each run,
and ratios of medians. A time alone says little (another machine, another load): the two sides of a ratio are
always measured in one run, A B A B …, so that whatever disturbs one disturbs the other.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

Quantity = Literal["wall_seconds", "cpu_seconds", "process_seconds"]

ONE_CORE = {
    "TOKENIZERS_PARALLELISM": "false",
    "RAYON_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


class Watch:
    """Adds up what happens inside `with watch:`; what a task prepares outside of it isn't counted."""

    def __init__(self) -> None:
        self.wall_seconds = 0.0
        self.cpu_seconds = 0.0

    def __enter__(self) -> None:
        self._start = (time.perf_counter(), _cpu_seconds())

    def __exit__(self, *_: object) -> None:
        self.wall_seconds += time.perf_counter() - self._start[0]
        self.cpu_seconds += _cpu_seconds() - self._start[1]


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One run of a task.

    Attributes:
        wall_seconds: inside the task's watch.
        cpu_seconds: of the process and its children that have ended, inside the watch.
        process_seconds: from the start of the process to its end, the interpreter and all imports included.
        peak_bytes: resident memory of the process at its highest (`VmHWM`).
        child_peak_bytes: of the largest of its children that have ended; 0 without any.
        value: what the task returned.
    """

    wall_seconds: float
    cpu_seconds: float
    process_seconds: float
    peak_bytes: int
    child_peak_bytes: int
    value: Any


def measure(
    task: Callable[..., Any],
    *arguments: Any,
    one_core: bool = True,
    environment: Mapping[str, str] | None = None,
) -> Measurement:
    """Run `task(watch, *arguments)` in a fresh process.

    Args:
        task: a function that another process can import.
        arguments: what it is given, beside the watch.
        one_core: hold it, with all its threads and children, to one core.
        environment: variables that are set before the process starts.

    Raises:
        RuntimeError: the process failed; its traceback stands on standard error.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    with _environment((ONE_CORE if one_core else {}) | dict(environment or {})):
        start = time.perf_counter()
        process = context.Process(target=_run, args=(sender, one_core, task, arguments))
        process.start()
        sender.close()
        try:
            fields = receiver.recv()
        except EOFError:
            fields = None
        process.join()
        process_seconds = time.perf_counter() - start
    if fields is None:
        raise RuntimeError(
            f"{task.__name__} failed with exit code {process.exitcode}: see its traceback above"
        )
    return Measurement(process_seconds=process_seconds, **fields)


def interleave(
    contestants: Mapping[str, Callable[[], Measurement]],
    rounds: int,
    report: Callable[[str, Measurement], None] = lambda name, measurement: None,
) -> dict[str, list[Measurement]]:
    """Run each contestant once a round, in turns; `report` hears of every run."""
    measurements: dict[str, list[Measurement]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            measurements[name].append(run())
            report(name, measurements[name][-1])
    return measurements


@dataclass(frozen=True)
class Ratio:
    """How one side compares with the other.

    Attributes:
        value: median of the one by median of the other.
        lowest: the lowest ratio within a round.
        highest: the highest one.
    """

    value: float
    lowest: float
    highest: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.lowest:.2f} to {self.highest:.2f})"


def compare(numerators: Sequence[float], denominators: Sequence[float]) -> Ratio:
    """The ratio of two sides that were measured in turns: a number a round of each."""
    rounds = [
        numerator / denominator for numerator, denominator in zip(numerators, denominators, strict=True)
    ]
    value = statistics.median(numerators) / statistics.median(denominators)
    return Ratio(value, min(rounds), max(rounds))


def compare_runs(
    numerators: Sequence[Measurement], denominators: Sequence[Measurement], quantity: Quantity
) -> Ratio:
    """`compare` for one quantity of runs."""
    return compare(
        [getattr(run, quantity) for run in numerators], [getattr(run, quantity) for run in denominators]
    )


def describe_machine() -> str:
    """Processor, cores, load at this moment and Python, on one line."""
    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        processor = names[0] if names else processor
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    return f"{processor}, {cores} cores, load {load:.1f} before the run, Python {platform.python_version()}"


def _run(sender: Connection, one_core: bool, task: Callable[..., Any], arguments: Sequence[Any]) -> None:
    if one_core:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    watch = Watch()
    value = task(watch, *arguments)
    sender.send(
        {
            "wall_seconds": watch.wall_seconds,
            "cpu_seconds": watch.cpu_seconds,
            "peak_bytes": _peak_bytes(),
            "child_peak_bytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10,
            "value": value,
        }
    )


def _cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _peak_bytes() -> int:
    # Not ru_maxrss: a process inherits that from the one that started it.
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise RuntimeError("/proc/self/status has no VmHWM: peak memory can be measured on Linux only")


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
