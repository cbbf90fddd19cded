"""Examples a second into batches on one core, against other ways to stream the same examples; and data wait.

Compared: (1) clozeline's loader, verification and permutation included, into padded and into packed batches,
by an absolute bound; into padded ones by a WebDataset of one `.npy` triple an example, by `datasets` with a
collate, and by mosaicml-streaming. Before that, the batches of all are compared by what they hold. (2) In a
real run of a small model, the time that it waits for data by the time of its steps, the first one included.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tests.benchmarks.loader_ways import (
    OTHERS,
    fingerprint_batches,
    is_installed,
    read_batches,
    write_examples,
)
from tests.benchmarks.measuring import Measurement, Quantity, compare, interleave, measure
from tests.benchmarks.reporting import report_absence, report_run
from tests.benchmarks.rows import QUANTITIES, Goal, Row
from tests.benchmarks.training_data import Datasets
from tests.benchmarks.training_runs import Layout, RunSettings, run_training

_BOUND = 200_000
"""Examples a second on one core."""
_GOALS = {
    "WebDataset of .npy": Goal("at least", 50),
    "datasets": Goal("at least", 5),
    "mosaicml-streaming": Goal("at least", 5),
}
_REMEDIES = {
    "WebDataset of .npy": "pip install webdataset",
    "datasets": "pip install datasets",
    # Its own dependencies (an older NumPy and transformers among them) would change the environment.
    "mosaicml-streaming": "pip install --no-deps mosaicml-streaming "
    "Brotli python-snappy xxhash zstd catalogue cramjam",
}
_OURS: tuple[Layout, ...] = ("padded", "packed")
_LENGTH = 128
_NUM_EXAMPLES = 16_000
_NUM_EXAMPLES_OURS = 400_000
"""Read in several passes: one is too short to be timed."""
_STEPS, _TOKENS_PER_STEP = 50, 32 * _LENGTH
_MOST_WAITING = 0.02


def run(datasets: Datasets, folder: Path, rounds: int) -> list[Row]:
    """Measure; the work is done in `folder`."""
    dataset = datasets.with_length(_LENGTH)
    return [
        *compare_ways(dataset, folder, rounds, _NUM_EXAMPLES, _NUM_EXAMPLES_OURS),
        *compare_waiting(dataset, "mini", folder, rounds, _STEPS, _LENGTH, _TOKENS_PER_STEP),
    ]


def compare_ways(
    dataset: str, folder: Path, rounds: int, num_examples: int, num_examples_ours: int
) -> list[Row]:
    """Rows of examples a second.

    Args:
        dataset: URL of a dataset.
        folder: the same examples are written there in the forms of the others.
        rounds: how often each is measured.
        num_examples: of the dataset's head, rounded up to whole shards.
        num_examples_ours: that clozeline reads at least, in several passes.

    Raises:
        RuntimeError: the batches of one way hold something else.
    """
    sources: dict[str, str] = dict.fromkeys(_OURS, dataset)
    for way in OTHERS:
        if is_installed(way):
            sources[way] = str(folder / way.replace(" ", "-"))
            measure(write_examples, way, dataset, num_examples, sources[way])
        else:
            report_absence(way, _REMEDIES[way])
    found = {
        way: measure(fingerprint_batches, way, source, num_examples).value for way, source in sources.items()
    }
    if any(one != found["padded"] for one in found.values()):
        raise RuntimeError(f"The ways do not give the same examples: {found}")

    num_passes = -(-num_examples_ours // found["padded"]["num_examples"])

    def read(way: str) -> Callable[[], Measurement]:
        passes = num_passes if way in _OURS else 1
        return lambda: measure(read_batches, way, sources[way], num_examples, passes)

    runs = interleave({way: read(way) for way in sources}, rounds, report_run)
    bound = [
        _rate_row(f"{way} batches / bound", runs[way], [_BOUND] * rounds, Goal("at least", 1), quantity)
        for way in _OURS
        for quantity in ("wall_seconds", "cpu_seconds")
    ]
    others = [
        _rate_row(f"padded batches / {way}", runs["padded"], _rates(runs[way], quantity), goal, quantity)
        for way, goal in _GOALS.items()
        if way in runs
        for quantity in ("wall_seconds", "cpu_seconds")
    ]
    return bound + others


def compare_waiting(
    dataset: str,
    model: str,
    folder: Path,
    rounds: int,
    num_steps: int,
    row_length: int,
    tokens_per_step: int,
) -> list[Row]:
    """Rows of the share of a run's time in which it waits for data, a layout of batches each."""
    numbers = itertools.count()

    def work(settings: RunSettings) -> Callable[[], Measurement]:
        def start() -> Measurement:
            output = str(folder / f"wait-{next(numbers)}")
            return measure(run_training, replace(settings, output=output), one_core=False)

        return start

    contestants = {
        f"{model}, {layout}": work(
            RunSettings(
                dataset=dataset,
                model=model,
                output="",
                layout=layout,
                tokens_per_step=tokens_per_step,
                row_length=row_length,
                steps_per_window=num_steps,
                device="cpu",
            )
        )
        for layout in _OURS
    }
    runs = interleave(contestants, rounds, report_run)
    return [waiting_row(name, measurements) for name, measurements in runs.items()]


def waiting_row(name: str, runs: Sequence[Measurement]) -> Row:
    """A row of the time that runs waited for data by the time of their steps."""
    waited, seconds = ([one.value[key] for one in runs] for key in ("waited_seconds", "seconds"))
    medians = f"{statistics.median(waited):.3f} s / {statistics.median(seconds):.2f} s"
    title = f"{name}: waiting for data / all"
    return Row(title, "wall, steps", compare(waited, seconds), Goal("at most", _MOST_WAITING), medians)


def _rates(runs: Sequence[Measurement], quantity: Quantity) -> list[float]:
    return [one.value["num_examples"] / getattr(one, quantity) for one in runs]


def _rate_row(
    title: str, runs: Sequence[Measurement], others: Sequence[float], goal: Goal, quantity: Quantity
) -> Row:
    ours = _rates(runs, quantity)
    medians = " / ".join(f"{statistics.median(rates):,.0f} examples/s" for rates in (ours, others))
    return Row(title, QUANTITIES[quantity], compare(ours, others), goal, medians)
