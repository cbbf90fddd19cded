"""`clozeline verify`: check every file and every example of a corpus or a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from schemas.errors import CorruptDataError, UsageError
from workflows.options import ClozelineCommand, workers_option
from workflows.terminal import Stopwatch, Terminal, format_count, format_seconds

if TYPE_CHECKING:
    from schemas.manifests import CorpusManifest
    from trainer.data.dataset import Dataset
    from workflows.report.opening import Corpus
    from workflows.verifying.dataset_checks import DatasetVerification
    from workflows.verifying.draw_statistics import Statistic

_MOST_FAULTS_SHOWN = 20

Lines = list[tuple[str, str]]


@click.command(name="verify", cls=ClozelineCommand)
@click.argument("folder", metavar="FOLDER")
@click.option("--quick", is_flag=True, help="Look for every file and its size alone; read none.")
@workers_option
def command(folder: str, quick: bool, workers: int | None, as_json: bool) -> None:
    """Check every file and every example of a corpus or a dataset.

    Sizes, checksums, schemas and counts are compared with the manifest. Every example is held to the rules of
    pairing and masking, and the draws of all of them to their chances: shares, labels, positions, random ids.
    Exit code 1 means that a fault was found.
    """
    from trainer.data.dataset import Dataset
    from workflows.report.opening import Corpus, open_folder

    opened = open_folder(folder)
    terminal = Terminal(as_json=as_json)
    watch = Stopwatch()
    if isinstance(opened, Dataset):
        found, lines, following = _verify_dataset(opened, quick, workers, terminal)
    elif isinstance(opened, Corpus):
        found, lines, following = _verify_corpus(opened, quick, workers, terminal)
    else:
        raise UsageError(
            f"{folder} is a training run; verify checks a corpus or a dataset.\n"
            f"Give the folder that `clozeline ingest` or `clozeline build` wrote."
        )
    seconds, faults = watch.seconds, found["faults"]
    summary: dict[str, Any] = {"ok": not faults, "quick": quick, **found, "seconds": seconds}
    time = format_seconds(seconds)
    if not quick:
        rate = found["num_bytes"] / 1e6 / seconds if seconds else 0.0
        summary["megabytes_per_second"] = round(rate, 2)
        time += f", {rate:,.1f} MB/s"
    lines = [*lines[:1], ("time", time), *lines[1:]]
    if not faults:
        terminal.finish(summary, [*lines, ("faults", "none")], following)
        return
    lines += [(_count(len(faults), "fault"), "")]
    lines += [(f"{number}.", fault) for number, fault in enumerate(faults[:_MOST_FAULTS_SHOWN], start=1)]
    if len(faults) > _MOST_FAULTS_SHOWN:
        lines.append(("…", "all of them are printed with --json"))
    terminal.finish(summary, lines, "")
    more = f"\n{_count(len(faults) - 1, 'fault')} more: see above." if len(faults) > 1 else ""
    raise CorruptDataError(f"{folder} is faulty: {faults[0]}{more}")


def _verify_dataset(
    dataset: Dataset, quick: bool, workers: int | None, terminal: Terminal
) -> tuple[dict[str, Any], Lines, str]:
    """What `--json` prints, what a person reads, and the command to type next."""
    from workflows.following import train_command
    from workflows.verifying.dataset_checks import verify_dataset, verify_sizes
    from workflows.verifying.processes import choose_workers

    shards = dataset.manifest.shards
    num_bytes = sum(shard.size_bytes for shard in shards)
    with terminal.work("verify", "files" if quick else "shards") as progress:
        if quick:
            outcome = verify_sizes(dataset, progress)
        else:
            outcome = verify_dataset(dataset, progress, choose_workers(workers, dataset.url, num_bytes))
    summary = {
        "kind": "dataset",
        "num_shards": len(shards),
        "num_bytes": num_bytes,
        "faults": list(outcome.faults),
        "strays_looked_for": outcome.listed,
    }
    checked = _count(len(shards), "shard")
    if quick:
        lines = [("checked", f"{checked}: names and sizes alone"), *_note_listing(outcome.listed)]
        return summary, lines, _command_line("verify", dataset.url)
    examples, tokens = outcome.num_examples, outcome.num_tokens
    summary |= {"num_examples": examples, "num_tokens": tokens}
    summary["statistics"] = [statistic.as_json() for statistic in outcome.statistics]
    summary["lengths"] = outcome.lengths
    checked += f", {_count(examples, 'example')}, {format_count(tokens)} tokens"
    lines = [("checked", checked), *_note_listing(outcome.listed), *_statistics_lines(outcome, dataset)]
    num_trained = sum(shard.num_examples for shard in dataset.manifest.shards_of("train"))
    return summary, lines, train_command(dataset.url, "run/", num_trained, tokens)


def _verify_corpus(
    corpus: Corpus, quick: bool, workers: int | None, terminal: Terminal
) -> tuple[dict[str, Any], Lines, str]:
    from workflows.verifying.corpus_checks import verify_corpus
    from workflows.verifying.processes import choose_workers

    manifest: CorpusManifest = corpus.manifest
    num_bytes = sum(file.size_bytes for file in (*manifest.files, *manifest.rejects))
    with terminal.work("verify", "files") as progress:
        workers = choose_workers(workers, corpus.url, num_bytes)
        outcome = verify_corpus(corpus, progress, workers, sizes_only=quick)
    summary = {
        "kind": "corpus",
        "num_files": outcome.num_files,
        "num_bytes": num_bytes,
        "faults": list(outcome.faults),
        "strays_looked_for": outcome.listed,
    }
    checked = _count(outcome.num_files, "Parquet file")
    if quick:
        lines = [("checked", f"{checked}: names and sizes alone"), *_note_listing(outcome.listed)]
        return summary, lines, _command_line("verify", corpus.url)
    documents, tokens = outcome.num_documents, outcome.num_tokens
    summary |= {"num_documents": documents, "num_tokens": tokens}
    checked += f", {_count(documents, 'document')}, {format_count(tokens)} tokens"
    lines = [("checked", checked), *_note_listing(outcome.listed)]
    return summary, lines, _command_line("build", "--corpus", corpus.url, "--output", "dataset/")


def _count(number: int, thing: str) -> str:
    return f"{format_count(number)} {thing}{'s' if number != 1 else ''}"


def _note_listing(listed: bool) -> Lines:
    return [] if listed else [("not checked", "files too many: the folder can't be listed")]


def _statistics_lines(outcome: DatasetVerification, dataset: Dataset) -> Lines:
    """A table: what was counted, what was found, what was expected, the verdict, over how many."""
    if not outcome.statistics:
        return []
    rows = [_statistic_cells(statistic) for statistic in outcome.statistics]
    lengths: Mapping[str, float] = outcome.lengths
    figures = f"{lengths['shortest']:,.0f} to {lengths['longest']:,.0f}"
    limit = f"at most {dataset.manifest.config.max_seq_length:,}"
    spread = f"median {lengths['median']:,.0f}, mean {lengths['mean']:,.1f}, "
    spread += f"{lengths['short_share']:.1%} below half"
    rows.append(("lengths", figures, limit, "ok", spread))
    rows.insert(0, ("", "found", "expected", "", ""))
    widths = [max(len(row[column]) for row in rows) for column in (1, 2, 3)]
    heading = "statistics of the shards without a fault" if outcome.faults else "statistics"
    return [(heading, ""), *((row[0], _align(row[1:], widths)) for row in rows)]


def _statistic_cells(statistic: Statistic) -> tuple[str, str, str, str, str]:
    return (
        statistic.title,
        statistic.found_text,
        statistic.expected_text,
        "ok" if statistic.ok else "WRONG",
        f"{format_count(statistic.num_draws)} {statistic.unit}",
    )


def _align(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (f"{cell:<{width}}" for cell, width in zip(cells, (*widths, 0), strict=True))
    return "  ".join(padded).rstrip()


def _command_line(*words: str) -> str:
    from workflows.summaries import command_line

    return command_line(*words)
