"""What the clock and the machine say about a run: rates, waiting, memory, utilisation, time left.

In: the moments between which a loop trains, and what it trained on. Out: entries for a line of metrics.
Nothing here is deterministic, and nothing here decides anything.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from trainer.job import TrainingJob
from trainer.loop_state import LoopState, Metrics
from trainer.model.costs import peak_flops, training_flops

_WORK_COUNTS = ("num_tokens", "sum_squared_lengths", "num_masked_tokens", "num_examples")


class Pace:
    """Times training steps, and leaves out evaluations and checkpoints.

    Args:
        job: what is trained, and where.
    """

    def __init__(self, job: TrainingJob) -> None:
        self._job = job
        self._peak_flops = _peak_flops_of(job)
        self._started = 0.0
        self._waited_seconds = 0.0
        self._window_seconds = 0.0
        self._window_start = dict.fromkeys((*_WORK_COUNTS, "step"), 0)

    def begin(self, state: LoopState) -> None:
        """Start the clock and the first window."""
        self._begin_window(state)
        self.start()

    def start(self) -> None:
        """Start the clock."""
        self._started = time.perf_counter()

    def stop(self, state: LoopState) -> None:
        """Stop the clock, and add what it shows to the run's seconds."""
        seconds = time.perf_counter() - self._started
        state.seconds += seconds
        self._window_seconds += seconds

    @contextmanager
    def waiting_for_data(self) -> Iterator[None]:
        """Count the time of the block as waiting."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._waited_seconds += time.perf_counter() - begun

    def close_window(self, state: LoopState) -> Metrics:
        """What the clock says of the steps since the last call; the clock stands still.

        Returns:
            `tokens_per_second`; `data_wait_seconds`, in which the loop waited for batches, and
            `data_wait_share`, the same as a share of the steps' time; `utilisation`, model FLOPs a second as
            a share of what the devices do at most, null where that is not known; `memory_bytes`, the most
            that this process has held, on the GPU where it trains on one; `seconds` of the run until now and
            `seconds_left` at this pace.
        """
        done = {name: getattr(state, name) - before for name, before in self._window_start.items()}
        seconds = max(self._window_seconds, 1e-9)
        steps_left = self._job.record.plan.steps - state.step
        metrics: Metrics = {
            "tokens_per_second": done["num_tokens"] / seconds,
            "data_wait_seconds": self._waited_seconds,
            "data_wait_share": self._waited_seconds / seconds,
            "utilisation": self._utilisation(done, seconds),
            "memory_bytes": peak_memory_bytes(self._job.ranks.device),
            "seconds": state.seconds,
            "seconds_left": steps_left * seconds / max(1, done["step"]),
        }
        self._begin_window(state)
        return metrics

    def _begin_window(self, state: LoopState) -> None:
        self._window_start = {name: getattr(state, name) for name in self._window_start}
        self._window_seconds = self._waited_seconds = 0.0

    def _utilisation(self, done: dict[str, int], seconds: float) -> float | None:
        if self._peak_flops is None:
            return None
        flops = training_flops(
            self._job.record.model,
            num_tokens=done["num_tokens"],
            sum_squared_lengths=done["sum_squared_lengths"],
            num_masked=done["num_masked_tokens"],
            num_examples=done["num_examples"],
        )
        return flops / (seconds * self._peak_flops * self._job.ranks.world_size)


def peak_memory_bytes(device: torch.device) -> int:
    """The most memory that this process has held: of the GPU, or resident in the machine's for a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Kilobytes on Linux, bytes on macOS (getrusage(2)).
    return peak if sys.platform == "darwin" else peak * 1024


def _peak_flops_of(job: TrainingJob) -> float | None:
    device = job.ranks.device
    if device.type != "cuda":
        return None
    return peak_flops(torch.cuda.get_device_name(device), job.record.precision)
