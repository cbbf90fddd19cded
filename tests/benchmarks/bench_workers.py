"""Two workers against one, with the time to start and without it.

Compared: wall time of `ingest` + `build` by one worker (in the launching process) and by two (processes of
the local runner). What a start costs is what the same work costs on the first few megabytes, measured in
turns with the rest, and is taken off both sides for the ratio without it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks import tasks
from tests.benchmarks.corpora import Corpus, take_head
from tests.benchmarks.measuring import Measurement, compare, interleave, measure
from tests.benchmarks.reporting import report_run
from tests.benchmarks.rows import Goal, Row, compare_times

_START_BYTES = 3 << 20
"""Three reads: the least that two workers share."""


def run(corpus: Corpus, folder: Path, rounds: int) -> list[Row]:
    """Measure; the work is done in `folder`."""
    outputs = (str(folder / f"workers-{number}") for number in itertools.count())
    start = take_head(corpus, _START_BYTES, folder)

    def work(part: Corpus, workers: int) -> Callable[[], Measurement]:
        return lambda: measure(
            tasks.ingest_and_build,
            str(part.documents),
            str(part.tokenizer),
            next(outputs),
            workers,
            part.keep_duplicates,
            one_core=False,
        )

    runs = interleave(
        {
            "start, 1 worker": work(start, 1),
            "start, 2 workers": work(start, 2),
            "1 worker": work(corpus, 1),
            "2 workers": work(corpus, 2),
        },
        rounds,
        report_run,
    )
    rows = compare_times(
        "1 worker / 2 workers",
        runs["1 worker"],
        runs["2 workers"],
        Goal("at least", 1.6),
        ["process_seconds"],
    )
    without = {
        workers: [
            whole.process_seconds - begun.process_seconds
            for whole, begun in zip(runs[workers], runs[f"start, {workers}"], strict=True)
        ]
        for workers in ("1 worker", "2 workers")
    }
    ratio = compare(without["1 worker"], without["2 workers"])
    medians = " / ".join(f"{sorted(times)[len(times) // 2]:.2f} s" for times in without.values())
    rows.append(Row("1 worker / 2 workers", "wall, start-up excluded", ratio, Goal("at least", 1.8), medians))
    return rows
