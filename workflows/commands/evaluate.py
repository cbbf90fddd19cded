"""`clozeline evaluate`: measure a trained model on held-out examples."""

from __future__ import annotations

from typing import Literal

import click

from workflows import options as shared
from workflows.terminal import Stopwatch, Terminal, format_seconds


@click.command(name="evaluate", cls=shared.ClozelineCommand)
@click.option("--data", required=True, metavar="DATASET", help="What `clozeline build` wrote.")
@shared.checkpoint_option
@click.option(
    "--split",
    type=click.Choice(["train", "validation"]),
    default="validation",
    show_default=True,
    help="Of which split.",
)
@click.option(
    "--batch-size", type=click.IntRange(min=1), default=128, show_default=True, help="Examples at once."
)
@shared.device_option
def command(
    data: str,
    checkpoint: str,
    split: Literal["train", "validation"],
    batch_size: int,
    device: str,
    as_json: bool,
) -> None:
    """Measure a trained model on held-out examples."""
    from workflows.summaries import command_line, evaluation_lines
    from workflows.training import evaluate_checkpoint

    terminal = Terminal(as_json=as_json)
    watch = Stopwatch()
    result = evaluate_checkpoint(terminal, data, checkpoint, split, batch_size, device)
    summary = {**result, "split": split, "seconds": watch.seconds}
    lines = [*evaluation_lines(result), ("time", format_seconds(watch.seconds))]
    following = command_line("fill-mask", "--checkpoint", checkpoint, "the [MASK] sat on the mat")
    terminal.finish(summary, lines, following)
