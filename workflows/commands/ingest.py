"""`clozeline ingest`: turn text into a corpus of tokenized documents."""

from __future__ import annotations

from typing import Any

import click

from workflows import options as shared
from workflows.recipe import recipe_option
from workflows.terminal import Terminal


@click.command(name="ingest", cls=shared.BeamCommand)
@shared.input_options()
@shared.tokenizer_option
@shared.output_option
@shared.ingest_options
@recipe_option()
@shared.workers_option
@shared.overwrite_option
def command(
    tokenizer: str, output: str, workers: int | None, overwrite: bool, as_json: bool, **values: Any
) -> None:
    """Turn text into a corpus of tokenized documents.

    Documents are split into sentences and tokenized; some are held out for validation, by a hash of their
    text. What can't be used is written to OUTPUT/rejects with the reason.
    """
    from workflows.configuring import ingest_config
    from workflows.stages import RunOptions, run_ingest_stage
    from workflows.summaries import command_line, ingest_lines

    config = ingest_config(values)
    terminal = Terminal(as_json=as_json)
    options = RunOptions(workers=workers, beam_args=shared.beam_arguments(), overwrite=overwrite)
    summary = run_ingest_stage(terminal, config, tokenizer, output, options)
    terminal.finish(
        summary, ingest_lines(summary), command_line("build", "--corpus", output, "--output", "dataset/")
    )
