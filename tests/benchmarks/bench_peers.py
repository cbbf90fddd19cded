"""Documents a second on one core, against other ways from text to masked examples.

Compared, each on the same head of the corpus, from reading the file to writing the examples:
`ingest` + `build`; the reference script's algorithm in plain Python, with WordPiece in plain Python and with
the library's; a map of `datasets`; LDDL's functions, where they are installed. A ratio above 1 means that
clozeline is faster. Its imports are counted and those of the others are not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks import peers, tasks
from tests.benchmarks.corpora import Corpus, write_sentences
from tests.benchmarks.measuring import Measurement, interleave, measure
from tests.benchmarks.reporting import report_run
from tests.benchmarks.rows import Goal, Row, compare_times

_GOALS = {
    "plain Python, plain WordPiece": Goal("at least", 10),
    "plain Python, library's WordPiece": Goal("at least", 10),
    "datasets map": Goal("at least", 5),
    "LDDL's functions without Dask": Goal("at least", 5),
}


def run(corpus: Corpus, folder: Path, rounds: int) -> list[Row]:
    """Measure; the work is done in `folder`."""
    sentences = str(write_sentences(corpus, folder))
    documents, tokenizer = str(corpus.documents), str(corpus.tokenizer)
    outputs = (str(folder / f"peer-{number}") for number in itertools.count())
    contestants: dict[str, Callable[[], Measurement]] = {
        "ingest + build": lambda: measure(
            tasks.ingest_and_build, documents, tokenizer, next(outputs), 1, corpus.keep_duplicates
        ),
        "plain Python, plain WordPiece": lambda: measure(
            peers.run_reference, sentences, tokenizer, next(outputs), False
        ),
        "plain Python, library's WordPiece": lambda: measure(
            peers.run_reference, sentences, tokenizer, next(outputs), True
        ),
        "datasets map": lambda: measure(peers.run_datasets_map, documents, tokenizer, next(outputs)),
    }
    if peers.has_lddl():
        contestants["LDDL's functions without Dask"] = lambda: measure(
            peers.run_lddl_functions, documents, tokenizer, next(outputs)
        )
    runs = interleave(contestants, rounds, report_run)
    return [
        row
        for name in list(contestants)[1:]
        for row in compare_times(f"{name} / ingest + build", runs[name], runs["ingest + build"], _GOALS[name])
    ]
