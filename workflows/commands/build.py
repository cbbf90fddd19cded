"""`clozeline build`: turn a corpus into shards of masked examples."""

from __future__ import annotations

from typing import Any

import click

from workflows import options as shared
from workflows.recipe import recipe_option
from workflows.terminal import Terminal


@click.command(name="build", cls=shared.BeamCommand)
@click.option("--corpus", required=True, metavar="FOLDER", help="What `clozeline ingest` wrote.")
@shared.output_option
@shared.seed_option
@shared.build_options
@recipe_option()
@shared.workers_option
@shared.overwrite_option
def command(
    corpus: str, output: str, workers: int | None, overwrite: bool, as_json: bool, **values: Any
) -> None:
    """Turn a corpus into shards of masked examples.

    Sentence pairs are sampled, tokens masked, and the examples shuffled and written as WebDataset shards. The
    same seed gives the same bytes; another seed gives another dataset without tokenizing again.
    """
    from workflows.configuring import build_dataset_config
    from workflows.following import train_command
    from workflows.stages import RunOptions, run_build_stage
    from workflows.summaries import build_lines

    config = build_dataset_config(values)
    terminal = Terminal(as_json=as_json)
    options = RunOptions(workers=workers, beam_args=shared.beam_arguments(), overwrite=overwrite)
    summary = run_build_stage(terminal, config, corpus, output, options)
    terminal.finish(
        summary,
        build_lines(summary),
        train_command(output, "run/", summary["num_examples_by_split"]["train"], summary["num_tokens"]),
    )
