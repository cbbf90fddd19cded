"""Peak memory of a worker, for one copy of the corpus and for four.

Compared: the resident memory at its highest of the largest process of `ingest` + `build`, over four copies of
the corpus under other identifiers by that over one copy; with one worker and with two. The first ratio is of
the highest peak to the bound of 1.2 GB.
"""

from __future__ import annotations

import itertools
import statistics
from pathlib import Path

from tests.benchmarks import tasks
from tests.benchmarks.corpora import Corpus, copy_under_other_ids
from tests.benchmarks.measuring import Measurement, compare, interleave, measure
from tests.benchmarks.reporting import report_run
from tests.benchmarks.rows import Goal, Row

_COPIES = 4
_BOUND_BYTES = 1.2e9


def run(corpus: Corpus, folder: Path, rounds: int) -> list[Row]:
    """Measure; the work is done in `folder`."""
    outputs = (str(folder / f"memory-{number}") for number in itertools.count())
    parts = {1: corpus, _COPIES: copy_under_other_ids(corpus, _COPIES, folder)}
    rows: list[Row] = []
    for workers in (1, 2):
        runs = interleave(
            {
                f"{copies} copies, {workers} workers": lambda part=part, workers=workers: measure(
                    tasks.ingest_and_build,
                    str(part.documents),
                    str(part.tokenizer),
                    next(outputs),
                    workers,
                    one_core=False,
                )
                for copies, part in parts.items()
            },
            rounds,
            report_run,
        )
        one, several = ([_peak_bytes(run) for run in measured] for measured in runs.values())
        medians = f"{statistics.median(several) / 1e6:.0f} MB / {statistics.median(one) / 1e6:.0f} MB"
        name = f"{_COPIES} copies / 1 copy, {workers} {'worker' if workers == 1 else 'workers'}"
        highest = [max(pair) for pair in zip(one, several, strict=True)]
        bound = compare(highest, [_BOUND_BYTES] * len(highest))
        rows.append(
            Row(name, "peak memory of a worker", compare(several, one), Goal("at most", 1.1), medians)
        )
        rows.append(
            Row(
                f"highest / 1.2 GB, {workers} {'worker' if workers == 1 else 'workers'}",
                "peak memory of a worker",
                bound,
                Goal("at most", 1),
                f"{max(highest) / 1e6:.0f} MB / {_BOUND_BYTES / 1e6:.0f} MB",
            )
        )
    return rows


def _peak_bytes(run: Measurement) -> float:
    return float(max(run.peak_bytes, run.child_peak_bytes))
