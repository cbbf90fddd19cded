from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.benchmarks.measuring import (
    ONE_CORE,
    Measurement,
    Watch,
    compare,
    compare_runs,
    interleave,
    measure,
)
from tests.benchmarks.rows import Goal, Row, compare_times, format_table


def _work(watch: Watch, num_bytes: int, cpu_seconds: float) -> dict[str, object]:
    held = bytearray(num_bytes)
    held[:: os.sysconf("SC_PAGE_SIZE")] = b"x" * len(range(0, num_bytes, os.sysconf("SC_PAGE_SIZE")))
    time.sleep(0.05)
    with watch:
        end = time.process_time() + cpu_seconds
        while time.process_time() < end:
            pass
    return {
        "cores": len(os.sched_getaffinity(0)),
        "environment": {name: os.environ.get(name) for name in ONE_CORE},
    }


def _start_a_child(watch: Watch) -> None:
    with watch:
        burn = "import time\nx = bytearray(b'x') * 200_000_000\nwhile time.process_time() < 0.3: pass"
        subprocess.run([sys.executable, "-c", burn], check=True)


def _look_up(_: Watch, name: str) -> str | None:
    return os.environ.get(name)


def _fail(_: Watch) -> None:
    raise ValueError("as it was meant to")


def _run_of(wall: float, cpu: float = 1.0) -> Measurement:
    return Measurement(
        wall_seconds=wall, cpu_seconds=cpu, process_seconds=wall, peak_bytes=0, child_peak_bytes=0, value=None
    )


def test_time_is_counted_inside_the_watch_and_memory_everywhere() -> None:
    before = os.sched_getaffinity(0)
    run = measure(_work, 150_000_000, 0.2)
    assert run.cpu_seconds >= 0.2
    assert run.wall_seconds >= 0.2
    assert run.process_seconds > run.wall_seconds + 0.05
    assert run.peak_bytes > 150_000_000
    assert run.value == {"cores": 1, "environment": ONE_CORE}
    assert os.sched_getaffinity(0) == before


def test_a_process_does_not_inherit_the_peak_of_the_one_that_starts_it() -> None:
    held = bytearray(b"x") * 300_000_000
    assert measure(_work, 0, 0.0).peak_bytes < len(held)


def test_all_cores_are_there_unless_one_is_asked_for() -> None:
    run = measure(_work, 0, 0.0, one_core=False)
    assert run.value["cores"] == len(os.sched_getaffinity(0))


def test_a_process_starts_with_the_environment_that_it_is_given() -> None:
    name = "MALLOC_TOP_PAD_"
    run = measure(_look_up, name, environment={name: "1048576"})
    assert (run.value, os.environ.get(name)) == ("1048576", None)


def test_children_are_counted() -> None:
    run = measure(_start_a_child)
    assert run.cpu_seconds >= 0.3
    assert run.child_peak_bytes > 200_000_000 > run.peak_bytes


def test_a_task_that_fails_says_so() -> None:
    with pytest.raises(RuntimeError, match="_fail failed with exit code 1"):
        measure(_fail)


def test_contestants_take_turns() -> None:
    order: list[str] = []

    def contestant(name: str) -> Callable[[], Measurement]:
        def run() -> Measurement:
            order.append(name)
            return _run_of(len(order))

        return run

    runs = interleave({"a": contestant("a"), "b": contestant("b")}, 2)
    assert order == ["a", "b", "a", "b"]
    assert [run.wall_seconds for run in runs["b"]] == [2, 4]


def test_a_ratio_is_of_medians_with_the_range_of_its_rounds() -> None:
    ratio = compare([1.0, 9.0, 2.0], [4.0, 3.0, 8.0])
    assert (ratio.value, ratio.lowest, ratio.highest) == (0.5, 0.25, 3.0)
    assert str(ratio) == "0.50 (0.25 to 3.00)"


def test_runs_are_compared_by_one_quantity() -> None:
    assert compare_runs([_run_of(3.0, 1.0)], [_run_of(1.0, 2.0)], "cpu_seconds").value == 0.5


@pytest.mark.parametrize(
    ("goal", "value", "reached"),
    [
        (Goal("at most", 1), 1.0, True),
        (Goal("at most", 1), 1.01, False),
        (Goal("at least", 1.8), 1.8, True),
        (Goal("at least", 1.8), 1.79, False),
    ],
)
def test_a_goal_is_reached_at_its_bound(goal: Goal, value: float, reached: bool) -> None:
    assert goal.is_reached_by(value) is reached


def test_a_table_shows_ratio_aim_and_medians() -> None:
    rows: list[Row] = compare_times(
        "a / b", [_run_of(3.0)], [_run_of(2.0)], Goal("at most", 1), ["wall_seconds"]
    )
    assert format_table(rows).splitlines() == [
        "| compared | measured by | ratio (range of rounds) | aim | reached | medians |",
        "| --- | --- | --- | --- | --- | --- |",
        "| a / b | wall | 1.50 (1.50 to 1.50) | at most 1 | **no** | 3.00 s / 2.00 s |",
    ]
