"""`clozeline report`: write an HTML page that shows a corpus, a dataset or a training run."""

from __future__ import annotations

import click

from workflows.options import ClozelineCommand, overwrite_option
from workflows.terminal import Stopwatch, Terminal, format_seconds


@click.command(name="report", cls=ClozelineCommand)
@click.argument("folder", metavar="FOLDER")
@click.option("--output", required=True, metavar="FILE", help="The page, local, gs:// or s3://.")
@click.option(
    "--examples",
    "num_examples",
    type=click.IntRange(0, 1000),
    default=10,
    show_default=True,
    help="How many examples, or beginnings of documents, to show.",
)
@click.option(
    "--sample-tokens",
    type=click.IntRange(min=1),
    default=8_000_000,
    show_default=True,
    help="About how many tokens to read; the page says how much that was.",
)
@overwrite_option
def command(
    folder: str, output: str, num_examples: int, sample_tokens: int, overwrite: bool, as_json: bool
) -> None:
    """Write an HTML page that shows a corpus, a dataset or a training run.

    The page stands alone: counts, what was left out and why, lengths, masking, labels, tokens, examples, and
    how it was made. Counts are those of the manifest; lengths and tokens come from a sample that is the same
    every time. Of a run, done or going on: its curves, held-out figures and what to compare them with,
    checkpoints, and the command to continue.
    """
    from trainer.data.dataset import Dataset
    from workflows.report.opening import Corpus, open_folder
    from workflows.report.writing import ReportFile, write_report
    from workflows.summaries import command_line

    file = ReportFile(output, overwrite=overwrite)
    opened = open_folder(folder)
    if isinstance(opened, Dataset):
        unit, following = "shards", command_line("verify", folder)
    elif isinstance(opened, Corpus):
        unit, following = "row groups", command_line("build", "--corpus", folder, "--output", "dataset/")
    else:
        unit, following = "pages", command_line("train", "--resume", folder)
    terminal = Terminal(as_json=as_json)
    watch = Stopwatch()
    with terminal.work("report", unit) as progress:
        summary = write_report(
            opened, file, num_examples=num_examples, sample_tokens=sample_tokens, progress=progress
        )
    summary["seconds"] = watch.seconds
    if summary.get("is_finished"):
        following = command_line("fill-mask", "--checkpoint", folder, "the [MASK] sat on the mat")
    lines = [
        ("page", f"{summary['report_bytes'] / 1e3:,.0f} kB, {format_seconds(summary['seconds'])}"),
        ("output", output),
    ]
    terminal.finish(summary, lines, following)
