"""`clozeline inspect`: show examples of a dataset as a person reads them."""

from __future__ import annotations

from typing import Literal

import click

from schemas.errors import UsageError
from workflows.options import ClozelineCommand
from workflows.terminal import Terminal


@click.command(name="inspect", cls=ClozelineCommand)
@click.argument("dataset", metavar="DATASET")
@click.option(
    "--examples", "num_examples", type=click.IntRange(min=0), default=3, show_default=True, help="How many."
)
@click.option(
    "--first", type=click.IntRange(min=0), default=0, show_default=True, help="Number of the first one."
)
@click.option(
    "--split",
    type=click.Choice(["train", "validation"]),
    default="train",
    show_default=True,
    help="Of which split.",
)
def command(
    dataset: str, num_examples: int, first: int, split: Literal["train", "validation"], as_json: bool
) -> None:
    """Show examples of a dataset as a person reads them.

    A chosen position is shown as {what stands there <- what stood there}, or {what stands there kept}.
    """
    from trainer.data.dataset import open_dataset
    from workflows.dataset_statistics import summarize_shards
    from workflows.inspecting import describe_example, read_examples, terminal_width
    from workflows.summaries import command_line, dataset_lines

    opened = open_dataset(dataset)
    num_there = sum(shard.num_examples for shard in opened.manifest.shards_of(split))
    if first >= num_there > 0:
        raise UsageError(f"--first {first}: {split} has {num_there:,} examples, the first of them number 0.")
    examples = read_examples(opened, split, num_examples, first)
    config = opened.manifest.config
    statistics = {"objective": config.objective, **summarize_shards(opened.manifest.shards)}
    terminal = Terminal(as_json=as_json)
    if not as_json:
        for example in examples:
            for line in describe_example(example, terminal_width()):
                click.echo(line)
            click.echo()
    terminal.finish(
        {
            **statistics,
            "config": config.model_dump(mode="json"),
            "examples": [example.as_json() for example in examples],
        },
        [(dataset, ""), *dataset_lines(statistics)],
        command_line("verify", dataset),
    )
