"""`ingest` + `build` against tokenizing alone, and a new seed against all of it; one worker on one core.

Compared: (1) JSONL to masked shards, Beam and its imports included, by `encode_batch_fast` alone on the same
sentences in memory; (2) `build` of the same corpus with a new seed by `ingest` + `build`.
"""

from __future__ import annotations

import itertools
from pathlib import Path

from tests.benchmarks import tasks
from tests.benchmarks.corpora import Corpus, write_sentences
from tests.benchmarks.measuring import Measurement, interleave, measure
from tests.benchmarks.reporting import report_run
from tests.benchmarks.rows import Goal, Row, compare_times


def run(corpus: Corpus, folder: Path, rounds: int) -> list[Row]:
    """Measure; the work is done in `folder`."""
    sentences = str(write_sentences(corpus, folder))
    documents, tokenizer = str(corpus.documents), str(corpus.tokenizer)
    numbers = itertools.count()
    made: list[str] = []

    def ingest_and_build() -> Measurement:
        made.append(str(folder / f"whole-{next(numbers)}"))
        return measure(tasks.ingest_and_build, documents, tokenizer, made[-1], 1, corpus.keep_duplicates)

    def build_again() -> Measurement:
        number = next(numbers)
        return measure(tasks.build_again, f"{made[-1]}/corpus", str(folder / f"again-{number}"), number)

    runs = interleave(
        {
            "encode_batch_fast": lambda: measure(tasks.encode_sentences, sentences, tokenizer),
            "ingest + build": ingest_and_build,
            "build, new seed": build_again,
        },
        rounds,
        report_run,
    )
    whole = runs["ingest + build"]
    return [
        *compare_times(
            "ingest + build / encode_batch_fast", whole, runs["encode_batch_fast"], Goal("at most", 1)
        ),
        *compare_times(
            "build, new seed / ingest + build", runs["build, new seed"], whole, Goal("at most", 0.2)
        ),
    ]
