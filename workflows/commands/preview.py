"""`clozeline preview`: show what the first documents would become."""

from __future__ import annotations

from typing import Any

import click

from workflows import options as shared
from workflows.recipe import recipe_option
from workflows.terminal import Stopwatch, Terminal, format_seconds


@click.command(name="preview", cls=shared.ClozelineCommand)
@shared.input_options()
@shared.tokenizer_option
@click.option(
    "--documents",
    "num_documents",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    help="How many to take.",
)
@click.option(
    "--examples",
    "num_examples",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="How many of theirs to show.",
)
@shared.ingest_options
@shared.seed_option
@shared.build_options
@recipe_option()
def command(tokenizer: str, num_documents: int, num_examples: int, as_json: bool, **values: Any) -> None:
    """Show what the first documents would become.

    They go the whole way of ingest and build, in seconds, before hours are spent: sentences, tokens, pairs,
    masks. Nothing is written. A chosen position is shown as {what stands there <- what stood there}.
    """
    from workflows.configuring import build_dataset_config, ingest_config
    from workflows.following import hand_on
    from workflows.previewing import describe_preview, preview_lines, summarize_preview
    from workflows.stages import importing_beam

    ingest, build = ingest_config(values), build_dataset_config(values)
    with importing_beam():
        from pipelines.preview import preview_documents

    terminal = Terminal(as_json=as_json)
    watch = Stopwatch()
    preview = preview_documents(ingest, build, tokenizer, num_documents=num_documents)
    summary = summarize_preview(preview, num_examples)
    if not as_json:
        for line in describe_preview(preview, num_examples):
            click.echo(line)
    for note in preview.notes:
        terminal.warn(note)
    seconds = watch.seconds
    lines = [*preview_lines(summary, build.max_seq_length), ("time", format_seconds(seconds))]
    terminal.finish(
        {**summary, "seconds": seconds},
        lines,
        hand_on(click.get_current_context(), "ingest", "--output", "corpus/"),
    )
