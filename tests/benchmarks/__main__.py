"""Runs the benchmarks: `python -m tests.benchmarks [NAME …] [--corpus FILE] [--data DATASET] [--rounds N]`.

In: names of benchmarks, by default all that can be measured here; a corpus, this Python's docstrings by
default; for those of the trainer datasets, built from the corpus by default. Out: a Markdown table of ratios
on standard output. Exit status 2 where `gpu` is asked for and there is none. See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.corpora import Corpus, prepare_corpus, take_head
from tests.benchmarks.measuring import describe_machine
from tests.benchmarks.rows import Row, format_table

if TYPE_CHECKING:
    from tests.benchmarks.training_data import Datasets

OF_PIPELINES = ("speed", "peers", "workers", "memory")
OF_TRAINER = ("model", "loader", "gpu")
_NAMES = (*OF_PIPELINES, *OF_TRAINER)
_PEERS_MEGABYTES = 20.0
"""The plain-Python ways take minutes for more."""


def main() -> None:
    """Measure what the command line names and print it."""
    arguments = _parse_arguments()
    names = arguments.names or list(_NAMES)
    obstacle = _load("gpu").why_not() if "gpu" in names else None
    if obstacle is not None:
        print(obstacle, file=sys.stderr)
        if arguments.names:
            sys.exit(2)
        names = [name for name in names if name != "gpu"]
    print(describe_machine(), flush=True)
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="clozeline-bench-") as name:
        _measure(names, arguments, Path(name))


def _measure(names: list[str], arguments: argparse.Namespace, folder: Path) -> None:
    @functools.cache
    def whole() -> Corpus:
        return prepare_corpus(arguments.corpus, folder, keep_duplicates=arguments.keep_duplicates)

    def head(megabytes: float | None) -> Corpus:
        return take_head(whole(), None if megabytes is None else int(megabytes * 1e6), folder)

    datasets = _open_datasets(arguments.data, lambda: head(arguments.megabytes), folder)
    for name in names:
        with tempfile.TemporaryDirectory(dir=folder) as work:
            examples: Corpus | Datasets = datasets
            if name in OF_PIPELINES:
                examples = head(arguments.peers_megabytes if name == "peers" else arguments.megabytes)
            rows: list[Row] = _load(name).run(examples, Path(work), arguments.rounds)
        print(f"\n{name}: {examples}, {arguments.rounds} rounds\n\n{format_table(rows)}", flush=True)


def _load(name: str) -> Any:
    # A process that is measured imports this module too: torch must not come with it.
    return importlib.import_module(f"tests.benchmarks.bench_{name}")


def _open_datasets(given: list[str], corpus: Callable[[], Corpus], folder: Path) -> Datasets:
    from tests.benchmarks.training_data import Datasets

    return Datasets(given, corpus, folder)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *_NAMES], metavar="NAME", help=" ".join(_NAMES))
    parser.add_argument(
        "--corpus", type=Path, help="JSONL with id and text (default: this Python's docstrings)"
    )
    parser.add_argument(
        "--data",
        action="append",
        default=[],
        help="a dataset built before, of 128 or 512 tokens, for the trainer's benchmarks; may be repeated",
    )
    parser.add_argument("--megabytes", type=float, help="work on a head of that size (default: all of it)")
    parser.add_argument(
        "--peers-megabytes", type=float, default=_PEERS_MEGABYTES, help="the same for `peers`"
    )
    parser.add_argument("--keep-duplicates", action="store_true", help="work on repeated documents too")
    parser.add_argument("--rounds", type=int, default=3, help="how often each side is measured")
    parser.add_argument("--folder", type=Path, help="where to work (default: the system's temporary folder)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
