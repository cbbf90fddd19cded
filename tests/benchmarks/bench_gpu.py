"""Training on a GPU, loader included: tokens a second, utilisation, memory, waiting for data, host syncs.

Measured, for BERT-base on examples of 128 and BERT-large on examples of 512, padded and packed, compiled or
not, in processes that take turns: real runs of `trainer.train`. Utilisation is model FLOPs a second
(`trainer.model.costs`: padding and masked-out work don't count) by the dense peak of the device in the run's
precision. The last steps of each run are looked into: does the host wait for the GPU inside a step, and has
the GPU work all the time.

Packed rows have no dropout of attention probabilities, since the kernel for them (`varlen_attn`) knows none;
all other dropout stays.
"""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.benchmarks.bench_loader import waiting_row
from tests.benchmarks.measuring import Measurement, compare, interleave, measure
from tests.benchmarks.reporting import report_run
from tests.benchmarks.rows import Goal, Row
from tests.benchmarks.training_data import Datasets
from tests.benchmarks.training_runs import Layout, RunSettings, run_training


@dataclass(frozen=True)
class Case:
    """A model on examples of one length.

    Attributes:
        name: of the model.
        sizes: its JSON configuration.
        length: of the examples at most.
        tokens_per_step: on a GPU that has the memory.
        aim: utilisation of the packed runs.
    """

    name: str
    sizes: Mapping[str, Any]
    length: int
    tokens_per_step: int
    aim: float


CASES = (
    Case("base at 128", {"num_hidden_layers": 12, "hidden_size": 768}, 128, 65_536, 0.4),
    Case("large at 512", {"num_hidden_layers": 24, "hidden_size": 1024}, 512, 65_536, 0.5),
)
_VARIANTS: tuple[tuple[Layout, bool], ...] = (
    ("padded", False),
    ("padded", True),
    ("packed", False),
    ("packed", True),
)
_STEPS_PER_WINDOW = 20
_NUM_WINDOWS = 2


def why_not() -> str | None:
    """Why nothing can be measured here; None where there is a GPU."""
    import torch

    if torch.cuda.is_available():
        return None
    return f"No GPU: torch {torch.__version__} sees no CUDA device here, so that `gpu` measures nothing."


def run(datasets: Datasets, folder: Path, rounds: int) -> list[Row]:
    """Measure; the work is done in `folder`."""
    rows: list[Row] = []
    for case in CASES:
        dataset = datasets.with_length(case.length)
        rows += measure_case(case, dataset, folder, rounds, "cuda", _STEPS_PER_WINDOW, _NUM_WINDOWS)
    return rows


def measure_case(
    case: Case,
    dataset: str,
    folder: Path,
    rounds: int,
    device: str,
    steps_per_window: int,
    num_windows: int,
    variants: Sequence[tuple[Layout, bool]] = _VARIANTS,
) -> list[Row]:
    """Rows of one model.

    Args:
        case: the model.
        dataset: URL of a dataset of the case's length.
        folder: for run folders.
        rounds: how often each variant is measured.
        device: what it runs on.
        steps_per_window: see `RunSettings`.
        num_windows: that are timed; one before them warms up, one after them is looked into.
        variants: layouts, and whether the model is compiled; others are compared with the first.
    """
    numbers = itertools.count()

    def work(settings: RunSettings) -> Callable[[], Measurement]:
        def start() -> Measurement:
            output = str(folder / f"{case.name.replace(' ', '-')}-{next(numbers)}")
            return measure(run_training, replace(settings, output=output), one_core=False)

        return start

    contestants = {
        f"{case.name}, {layout}{', compiled' if is_compiled else ''}": work(
            RunSettings(
                dataset=dataset,
                model=_write_model(case, layout, folder),
                output="",
                layout=layout,
                tokens_per_step=case.tokens_per_step,
                row_length=case.length,
                steps_per_window=steps_per_window,
                num_windows=num_windows,
                is_warmed_up=True,
                is_probed=True,
                device=device,
                compile=is_compiled,
            )
        )
        for layout, is_compiled in variants
    }
    runs = interleave(contestants, rounds, report_run)
    first = next(iter(contestants))
    return [
        row
        for (name, measurements), (layout, _) in zip(runs.items(), variants, strict=True)
        for row in _rows(name, measurements, first, runs[first], case.aim if layout == "packed" else None)
    ]


def _rows(
    name: str, runs: Sequence[Measurement], first: str, first_runs: Sequence[Measurement], aim: float | None
) -> list[Row]:
    values = [one.value for one in runs]
    rows: list[Row] = []
    utilisations = [value["utilisation"] for value in values]
    if None not in utilisations:
        title = f"{name}: model FLOPs / peak in {values[0]['precision']}"
        goal = None if aim is None else Goal("at least", aim)
        ones = [1.0] * len(values)
        rows.append(Row(title, "wall, loader included", compare(utilisations, ones), goal, _describe(values)))
    rates, first_rates = ([_rate(one.value) for one in side] for side in (runs, first_runs))
    medians = " / ".join(f"{statistics.median(side):,.0f} tokens/s" for side in (rates, first_rates))
    rows.append(
        Row(f"{name} / {first}", "non-padding tokens a second", compare(rates, first_rates), None, medians)
    )
    rows.append(waiting_row(name, runs))
    steps = [float(value["num_probed_steps"]) for value in values]
    syncs = [float(value["num_host_syncs"]) for value in values]
    title = f"{name}: steps in which the host waits for the GPU / steps"
    rows.append(
        Row(title, "torch's sync debug mode", compare(syncs, steps), Goal("at most", 0), _describe(values))
    )
    return rows


def _rate(value: Mapping[str, Any]) -> float:
    return float(value["num_tokens"]) / float(value["seconds"])


def _describe(values: Sequence[Mapping[str, Any]]) -> str:
    """What a run was like, beside the ratio."""
    last = values[-1]
    gigabytes = max(value["memory_bytes"] for value in values) / 1e9
    parts = [
        f"{statistics.median(map(_rate, values)):,.0f} tokens/s",
        f"{last['tokens_per_step']:,} tokens a step at most",
        f"{gigabytes:.2f} GB",
        f"{last['num_stream_syncs']} waits for a stream in {last['num_probed_steps']} steps",
    ]
    if last["busy_share"] is not None:
        parts.append(f"GPU busy {last['busy_share']:.1%}")
    if last["host_sync"] is not None:
        parts.append(last["host_sync"])
    return ", ".join(parts)


def _write_model(case: Case, layout: Layout, folder: Path) -> str:
    sizes = dict(case.sizes) | ({"attention_probs_dropout_prob": 0.0} if layout == "packed" else {})
    path = folder / f"{case.name.replace(' ', '-')}-{layout}.json"
    path.write_text(json.dumps(sizes), encoding="utf-8")
    return str(path)
