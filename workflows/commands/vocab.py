"""`clozeline vocab`: learn a WordPiece vocabulary from text."""

from __future__ import annotations

from typing import Any

import click

from workflows import options as shared
from workflows.recipe import recipe_option
from workflows.terminal import Terminal


@click.command(name="vocab", cls=shared.BeamCommand)
@shared.input_options()
@shared.output_option
@shared.vocab_options
@shared.seed_option
@recipe_option()
@shared.workers_option
@shared.overwrite_option
def command(output: str, workers: int | None, overwrite: bool, as_json: bool, **values: Any) -> None:
    """Learn a WordPiece vocabulary from text."""
    from workflows.configuring import vocab_config
    from workflows.following import hand_on
    from workflows.stages import RunOptions, run_vocab_stage
    from workflows.summaries import vocab_lines

    config = vocab_config(values)
    terminal = Terminal(as_json=as_json)
    options = RunOptions(workers=workers, beam_args=shared.beam_arguments(), overwrite=overwrite)
    summary = run_vocab_stage(terminal, config, output, options)
    following = hand_on(click.get_current_context(), "ingest", "--tokenizer", output, "--output", "corpus/")
    terminal.finish(summary, vocab_lines(summary), following)
