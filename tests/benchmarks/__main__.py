"""Runs the benchmarks: `python -m tests.benchmarks [NAME …] [--corpus FILE] [--megabytes N] [--rounds N]`.

In: names of benchmarks, all of them by default; a corpus, this Python's docstrings by default. Out: a
Markdown table of ratios on standard output. See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks import bench_memory, bench_peers, bench_speed, bench_workers
from tests.benchmarks.corpora import Corpus, prepare_corpus, take_head
from tests.benchmarks.measuring import describe_machine
from tests.benchmarks.rows import Row, format_table

Benchmark = Callable[[Corpus, Path, int], list[Row]]

_BENCHMARKS: dict[str, Benchmark] = {
    "speed": bench_speed.run,
    "peers": bench_peers.run,
    "workers": bench_workers.run,
    "memory": bench_memory.run,
}
_PEERS_MEGABYTES = 20.0
"""The plain-Python ways take minutes for more."""


def main() -> None:
    """Measure what the command line names and print it."""
    arguments = _parse_arguments()
    print(describe_machine(), flush=True)
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="clozeline-bench-") as name:
        folder = Path(name)
        whole = prepare_corpus(arguments.corpus, folder, keep_duplicates=arguments.keep_duplicates)
        for benchmark in arguments.names or list(_BENCHMARKS):
            megabytes = arguments.peers_megabytes if benchmark == "peers" else arguments.megabytes
            corpus = take_head(whole, None if megabytes is None else int(megabytes * 1e6), folder)
            with tempfile.TemporaryDirectory(dir=folder) as work:
                rows = _BENCHMARKS[benchmark](corpus, Path(work), arguments.rounds)
            print(f"\n{benchmark}: {corpus}, {arguments.rounds} rounds\n\n{format_table(rows)}", flush=True)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", choices=[[], *_BENCHMARKS], metavar="NAME", help=" ".join(_BENCHMARKS)
    )
    parser.add_argument(
        "--corpus", type=Path, help="JSONL with id and text (default: this Python's docstrings)"
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
