"""Peak memory of a worker, for one copy of the corpus and for four.

Compared: the resident memory at its highest of the largest process of `ingest` + `build` with two workers,
over four copies of the corpus under other identifiers by that over one copy; and the highest peak by the
bound of 1.2 GB. Copies are kept in one comparison, so that four times the tokens are made, and dropped as
duplicates in the other, so that four times the hashes are compared.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.benchmarks import tasks
from tests.benchmarks.corpora import Corpus, copy_under_other_ids
from tests.benchmarks.measuring import Measurement, compare, interleave, measure
from tests.benchmarks.reporting import report_run
from tests.benchmarks.rows import Goal, Row

_COPIES = 4
_WORKERS = 2
_BOUND_BYTES = 1.2e9
_PEAK = "peak memory of a process"


def run(corpus: Corpus, folder: Path, rounds: int) -> list[Row]:
    """Measure; the work is done in `folder`."""
    outputs = (str(folder / f"memory-{number}") for number in itertools.count())
    parts = {1: corpus, _COPIES: copy_under_other_ids(corpus, _COPIES, folder)}

    def work(part: Corpus) -> Callable[[], Measurement]:
        arguments = (str(part.documents), str(part.tokenizer))
        return lambda: measure(
            tasks.ingest_and_build, *arguments, next(outputs), _WORKERS, part.keep_duplicates, one_core=False
        )

    rows: list[Row] = []
    for keep, name in ((True, "copies kept"), (False, "copies dropped")):
        contestants = {
            f"{copies} copies, {name}": work(replace(part, keep_duplicates=keep))
            for copies, part in parts.items()
        }
        one, several = (
            [float(max(run.peak_bytes, run.child_peak_bytes)) for run in runs]
            for runs in interleave(contestants, rounds, report_run).values()
        )
        medians = f"{statistics.median(several) / 1e6:.0f} MB / {statistics.median(one) / 1e6:.0f} MB"
        title = f"{_COPIES} copies / 1 copy, {name}"
        rows.append(Row(title, _PEAK, compare(several, one), Goal("at most", 1.1), medians))
        highest = max(*one, *several)
        rows.append(
            Row(
                f"highest / bound, {name}",
                _PEAK,
                compare([highest], [_BOUND_BYTES]),
                Goal("at most", 1),
                f"{highest / 1e6:.0f} MB / {_BOUND_BYTES / 1e6:.0f} MB",
            )
        )
    return rows
