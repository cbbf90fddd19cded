from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainer import pace as pace_module
from trainer.loop_state import LoopState
from trainer.model.config import preset_config
from trainer.model.costs import training_flops
from trainer.pace import Pace, peak_memory_bytes

MODEL = preset_config("tiny", 100)


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def perf_counter(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pace_module, "time", clock)
    return clock


def make_pace(device: str = "cpu", world_size: int = 1) -> Pace:
    job: Any = SimpleNamespace(
        ranks=SimpleNamespace(device=torch.device(device), world_size=world_size),
        record=SimpleNamespace(precision="bf16", model=MODEL, plan=SimpleNamespace(steps=100)),
    )
    return Pace(job)


def advance(state: LoopState, num_steps: int) -> None:
    state.step += num_steps
    state.num_tokens += 500 * num_steps
    state.sum_squared_lengths += 60_000 * num_steps
    state.num_masked_tokens += 70 * num_steps
    state.num_examples += 5 * num_steps


def test_rates_waiting_and_time_left_are_those_of_the_window(clock: Clock) -> None:
    state = LoopState(step=10, seconds=7.0, num_tokens=10_000)
    pace = make_pace()
    pace.begin(state)
    with pace.waiting_for_data():
        clock.seconds += 0.5
    clock.seconds += 1.5
    advance(state, 4)
    pace.stop(state)
    clock.seconds += 1000  # a checkpoint, an evaluation
    pace.start()
    clock.seconds += 2.0
    advance(state, 6)
    pace.stop(state)
    first = pace.close_window(state)
    assert first.pop("memory_bytes") == peak_memory_bytes(torch.device("cpu"))
    assert first == pytest.approx(
        {
            "tokens_per_second": 5000 / 4,
            "data_wait_seconds": 0.5,
            "data_wait_share": 0.125,
            "utilisation": None,
            "seconds": 11.0,
            "seconds_left": 80 * 0.4,
        }
    )
    pace.start()
    clock.seconds += 3.0
    advance(state, 3)
    pace.stop(state)
    second = pace.close_window(state)
    assert (second["tokens_per_second"], second["data_wait_seconds"], second["seconds"]) == (500.0, 0.0, 14.0)


def test_utilisation_is_of_all_devices_and_of_the_work_without_padding(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "NVIDIA H100 80GB HBM3")
    monkeypatch.setattr("torch.cuda.max_memory_allocated", lambda device: 123)
    pace, state = make_pace("cuda", world_size=2), LoopState()
    pace.begin(state)
    clock.seconds += 2.0
    advance(state, 10)
    pace.stop(state)
    metrics = pace.close_window(state)
    flops = training_flops(
        MODEL, num_tokens=5000, sum_squared_lengths=600_000, num_masked=700, num_examples=50
    )
    # The data sheet of the H100 SXM: 989.4 TFLOPS in bf16 without sparsity.
    assert metrics["utilisation"] == pytest.approx(flops / 2.0 / (2 * 989.4e12), rel=1e-3)
    assert metrics["memory_bytes"] == 123


def test_the_memory_of_this_process_is_in_bytes() -> None:
    # Python and torch alone take more than 100 MB; no test takes 100 GB.
    assert 100e6 < peak_memory_bytes(torch.device("cpu")) < 100e9
