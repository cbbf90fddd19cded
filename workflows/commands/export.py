"""`clozeline export`: write a trained model as a folder that transformers opens."""

from __future__ import annotations

import click

from workflows import options as shared
from workflows.terminal import Stopwatch, Terminal, format_count, format_seconds


@click.command(name="export", cls=shared.ClozelineCommand)
@click.option(
    "--checkpoint", required=True, metavar="FOLDER", help="A run folder, or one of its checkpoints."
)
@shared.output_option
@shared.overwrite_option
def command(checkpoint: str, output: str, overwrite: bool, as_json: bool) -> None:
    """Write a trained model as a folder that transformers opens.

    AutoModelForPreTraining, AutoModelForMaskedLM, AutoModel and AutoTokenizer take the folder. Its README.md
    tells of the model's data, training and results.
    """
    from trainer.export import export_checkpoint
    from workflows.summaries import command_line

    terminal = Terminal(as_json=as_json)
    watch = Stopwatch()
    with terminal.work("export", "files") as progress:
        summary = export_checkpoint(checkpoint, output, overwrite=overwrite, progress=progress)
    if not summary.has_data_facts:
        terminal.warn("the model card tells nothing of the data: the run's dataset is not where it was.")
    lines = [
        ("checkpoint", f"{summary.checkpoint}, step {format_count(summary.step)}"),
        ("model", f"{format_count(summary.num_parameters)} parameters"),
        ("files", f"{', '.join(summary.files)} ({summary.size_bytes / 1e6:,.1f} MB)"),
        ("time", "found done" if summary.already_done else format_seconds(watch.seconds)),
        ("output", output),
    ]
    terminal.finish(
        {**summary.as_dict(), "seconds": watch.seconds},
        lines,
        command_line("fill-mask", "--checkpoint", output, "the [MASK] sat on the mat"),
    )
