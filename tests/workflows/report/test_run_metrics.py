from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.report.run_metrics import RunMetrics, finite, parse_metrics


def _parse(*lines: object, torn: str = "") -> RunMetrics:
    return parse_metrics(("".join(json.dumps(line) + "\n" for line in lines) + torn).encode())


def test_curves_by_name() -> None:
    metrics = _parse(
        {"step": 0, "validation_masked_lm_loss": 9.0},
        {"step": 10, "loss": 5.0, "learning_rate": 1},
        {"step": 20, "loss": None, "learning_rate": 2},
        {"step": 30, "loss": 3.0, "validation_masked_lm_loss": 4.0},
    )
    assert metrics.curve("loss") == ((10.0, 5.0), (20.0, None), (30.0, 3.0))
    assert metrics.curve("learning_rate", 0.5) == ((10.0, 0.5), (20.0, 1.0))
    assert metrics.curve("nothing") == ()
    assert metrics.last_step == 30
    assert metrics.last("learning_rate") == 2
    assert metrics.last("nothing") is None
    assert [line["step"] for line in metrics.evaluations()] == [0, 30]
    assert [line["step"] for line in metrics.training_lines] == [10, 20, 30]
    assert metrics.steps_without_loss() == [20]


def test_values_that_are_no_numbers_are_gaps() -> None:
    metrics = _parse(
        *({"step": n, "loss": value} for n, value in enumerate((math.nan, math.inf, "1", True, [1], 2)))
    )
    assert [value for _, value in metrics.curve("loss")] == [None, None, None, None, None, 2]
    assert _parse({"step": 1, "loss": None}).curve("loss") == ()


def test_a_torn_last_line_is_no_fault_and_a_strange_one_is_counted() -> None:
    torn = _parse({"step": 1, "loss": 2.0}, torn='{"step": 2, "lo')
    assert (torn.last_step, torn.num_unreadable) == (1, 0)
    assert _parse({"step": 1}, torn='{"step": 2}').last_step == 2
    strange = _parse(
        {"step": 1},
        {"loss": 1},
        [],
        {"step": "x"},
        {"step": True},
        {"step": -1},
        {"step": 10**400},
        {"step": 5},
    )
    assert (strange.last_step, strange.num_unreadable) == (5, 6)


def test_a_step_that_comes_again_counts_once() -> None:
    metrics = _parse({"step": 1, "loss": 9.0}, {"step": 2, "loss": 8.0}, {"step": 1, "loss": 7.0})
    assert metrics.curve("loss") == ((1.0, 7.0), (2.0, 8.0))


@pytest.mark.parametrize("content", [b"", b"\n", b"\n\n", b'{"step"'])
def test_nothing_yet(content: bytes) -> None:
    metrics = parse_metrics(content)
    assert (metrics.lines, metrics.num_unreadable, metrics.last_step) == ((), 0, 0)
    assert metrics.evaluations() == ()


@given(st.binary(max_size=200))
def test_any_bytes_are_read(content: bytes) -> None:
    metrics = parse_metrics(content)
    assert len(metrics.lines) + metrics.num_unreadable <= content.count(b"\n") + 1


def test_scaling() -> None:
    assert finite(3, 2.0) == 6
    assert finite(-math.inf) is None
    # An integer that no float holds.
    assert finite(10**400) is None
