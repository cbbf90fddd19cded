"""`clozeline verify`: check every shard and every example of a dataset."""

from __future__ import annotations

import click

from schemas.errors import CorruptDataError
from workflows.options import ClozelineCommand
from workflows.terminal import Stopwatch, Terminal, format_count, format_seconds

_MOST_FAULTS_SHOWN = 20


@click.command(name="verify", cls=ClozelineCommand)
@click.argument("dataset", metavar="DATASET")
def command(dataset: str, as_json: bool) -> None:
    """Check every shard and every example of a dataset.

    Sizes, checksums, schema and counts are compared with the manifest; every example is held to the rules of
    pairing and masking. Exit code 1 means that a fault was found.
    """
    from trainer.data.dataset import open_dataset
    from workflows.following import train_command
    from workflows.verifying import verify_dataset

    opened = open_dataset(dataset)
    terminal = Terminal(as_json=as_json)
    watch = Stopwatch()
    with terminal.work("verify", "shards") as progress:
        outcome = verify_dataset(opened, progress)
    seconds = watch.seconds
    num_bytes = sum(shard.size_bytes for shard in opened.manifest.shards)
    rate = num_bytes / 1e6 / seconds if seconds else 0.0
    summary = {
        "ok": not outcome.faults,
        "num_shards": outcome.num_shards,
        "num_examples": outcome.num_examples,
        "num_tokens": outcome.num_tokens,
        "faults": outcome.faults,
        "seconds": seconds,
        "megabytes_per_second": round(rate, 2),
    }
    lines = [
        ("checked", f"{outcome.num_shards} shards, {format_count(outcome.num_examples)} examples"),
        ("time", f"{format_seconds(seconds)}, {rate:.1f} MB/s"),
    ]
    if outcome.faults:
        shown = [("fault", fault) for fault in outcome.faults[:_MOST_FAULTS_SHOWN]]
        terminal.finish(summary, [*lines, *shown], "")
        more = f" and {len(outcome.faults) - 1} more" if len(outcome.faults) > 1 else ""
        raise CorruptDataError(f"{dataset} is faulty: {outcome.faults[0]}{more}")
    num_examples = sum(shard.num_examples for shard in opened.manifest.shards if shard.split == "train")
    following = train_command(dataset, "run/", num_examples, outcome.num_tokens)
    terminal.finish(summary, [*lines, ("faults", "none")], following)
