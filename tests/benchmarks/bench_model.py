"""Non-padding tokens a second of training on the CPU, against transformers' `BertForPreTraining`.

Compared, on the same real examples from the same weights, with the same optimiser and the same settings of
the allocator, in processes that take turns: (1) the same mathematics, float32 with dropout 0.1, clozeline
padded by length or packed; (2) clozeline's own choice of precision, packed, against transformers in float32
and against transformers in the same precision. Before any step the losses of all sides on the first batch
are compared: sides that compute different things would not be comparable.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from tests.benchmarks.measuring import Measurement, Quantity, compare, interleave, measure
from tests.benchmarks.model_steps import Workload, train_ours, train_transformers
from tests.benchmarks.reporting import report_run
from tests.benchmarks.rows import QUANTITIES, Goal, Row
from tests.benchmarks.training_data import MIXES, Datasets

# glibc keeps what tensors free, on both sides: read when a process starts.
ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "-1",
    "MALLOC_TOP_PAD_": str(256 << 20),
}
_ROW_LENGTH = 128
_SIZES = {"mini": (32, 6), "base": (8, 3)}
"""Examples in a step, and steps in a pass."""
_AIMS = {
    ("mini", "near-128"): (2.0, 4.0),
    ("mini", "short"): (3.2, 7.0),
    ("base", "near-128"): (1.15, 3.0),
    ("base", "short"): (1.6, 4.0),
}
"""At least so many times the tokens, with the same mathematics and with the trainer's defaults."""
_THEIRS, _THEIRS_BF16 = "transformers, fp32", "transformers, bf16"
_PADDED, _PACKED = "padded, fp32", "packed, fp32"
_DEFAULTS, _NO_DROPOUT = "packed, precision auto", "packed, precision auto, no dropout"
_LARGEST_DIFFERENCE = {"fp32": 1e-4, "bf16": 0.05}
"""Between losses in nats that lie around 11: float32 sums in another order; bfloat16 has three digits."""


def run(datasets: Datasets, folder: Path, rounds: int) -> list[Row]:
    """Measure; nothing is written into `folder`."""
    dataset = datasets.with_length(_ROW_LENGTH)
    rows: list[Row] = []
    for model, (batch_size, num_steps) in _SIZES.items():
        for mix in MIXES:
            work = Workload(dataset=dataset, model=model, mix=mix, batch_size=batch_size, num_steps=num_steps)
            rows += compare_sides(work, rounds, _AIMS[model, mix])
    return rows


def compare_sides(work: Workload, rounds: int, aims: tuple[float, float]) -> list[Row]:
    """Rows for one model and one mix of lengths.

    Args:
        work: what all sides train.
        rounds: how often each is measured.
        aims: ratios to reach, with the same mathematics and with the defaults.

    Raises:
        RuntimeError: the sides did not compute the same.
    """
    start = partial(measure, one_core=False, environment=ALLOCATOR)
    contestants: dict[str, Callable[[], Measurement]] = {
        _THEIRS: lambda: start(train_transformers, work, "fp32"),
        _PADDED: lambda: start(train_ours, work, "padded", "fp32"),
        _PACKED: lambda: start(train_ours, work, "packed", "fp32"),
        _DEFAULTS: lambda: start(train_ours, work, "packed", "auto"),
        _NO_DROPOUT: lambda: start(train_ours, work, "packed", "auto", 0.0),
        _THEIRS_BF16: lambda: start(train_transformers, work, "bf16"),
    }
    title = f"{work.model}, {work.mix}"
    runs = interleave(contestants, rounds, lambda name, one: report_run(f"{title}, {name}", one))
    check_sides(runs, _THEIRS)
    same, defaults = (Goal("at least", aim) for aim in aims)
    return [
        *compare_rates(title, runs, _PADDED, _THEIRS),
        *compare_rates(title, runs, _PACKED, _THEIRS, same),
        *compare_rates(title, runs, _DEFAULTS, _THEIRS, defaults),
        *compare_rates(title, runs, _NO_DROPOUT, _THEIRS),
        *compare_rates(title, runs, _DEFAULTS, _THEIRS_BF16),
    ]


def check_sides(runs: Mapping[str, list[Measurement]], reference: str) -> None:
    """Check that all sides had the same examples and the same loss on the first batch.

    Raises:
        RuntimeError: one had not.
    """
    expected = runs[reference][0].value
    for name, measurements in runs.items():
        found = measurements[0].value
        if found["num_tokens"] != expected["num_tokens"]:
            raise RuntimeError(f"{name}: {found['num_tokens']} tokens, {reference}: {expected['num_tokens']}")
        allowed = max(_LARGEST_DIFFERENCE[side["precision"]] for side in (found, expected))
        # Written so that a loss that is no number fails too.
        if not abs(found["loss"] - expected["loss"]) <= allowed:
            raise RuntimeError(
                f"{name}: loss {found['loss']} on the first batch, {reference}: {expected['loss']}"
            )


def compare_rates(
    title: str, runs: Mapping[str, list[Measurement]], ours: str, theirs: str, goal: Goal | None = None
) -> list[Row]:
    """Rows of tokens a second by tokens a second: of the clock, and of the processor's time on all cores."""
    precision = runs[ours][0].value["precision"]
    compared = f"{title}: {ours.replace('auto', f'auto ({precision})')} / {theirs}"
    rows = []
    quantities: tuple[Quantity, ...] = ("wall_seconds", "cpu_seconds")
    for quantity in quantities:
        rates = [
            [one.value["num_tokens"] / getattr(one, quantity) for one in runs[name]]
            for name in (ours, theirs)
        ]
        medians = " / ".join(f"{statistics.median(rate):,.0f} tokens/s" for rate in rates)
        rows.append(Row(compared, QUANTITIES[quantity], compare(*rates), goal, medians))
    return rows
