"""`clozeline prepare`: vocab, ingest and build, one after the other, from one recipe."""

from __future__ import annotations

from typing import Any

import click

from workflows import options as shared
from workflows.recipe import recipe_option
from workflows.terminal import Stopwatch, Terminal


@click.command(name="prepare", cls=shared.BeamCommand)
@shared.input_options(required=False)
@click.option("--output", required=True, metavar="FOLDER", help="Gets tokenizer/, corpus/ and dataset/.")
@click.option("--tokenizer", metavar="PATH", help="Take this tokenizer rather than learn one.")
@click.option("--corpus", metavar="FOLDER", help="Take this corpus rather than ingest; --input is not read.")
@shared.vocab_options
@shared.ingest_options
@shared.seed_option
@shared.build_options
@recipe_option()
@shared.workers_option
@shared.overwrite_option
def command(
    output: str,
    tokenizer: str | None,
    corpus: str | None,
    workers: int | None,
    overwrite: bool,
    as_json: bool,
    **values: Any,
) -> None:
    """Run vocab, ingest and build from one recipe.

    All options are checked before anything starts. Stages that are already done are found done.
    """
    from workflows import stages, summaries
    from workflows.configuring import build_dataset_config, ingest_config, vocab_config
    from workflows.following import train_prepared
    from workflows.text_layout import check_text_layout

    if corpus is None and not values["inputs"]:
        message = "Missing option '--input'; give it, or an ingested --corpus."
        raise click.UsageError(message, click.get_current_context())
    # Every stage's options are checked before the first stage starts.
    build_config = build_dataset_config(values)
    text_configs = None if corpus is not None else (vocab_config(values), ingest_config(values))
    terminal = Terminal(as_json=as_json)
    options = stages.RunOptions(workers=workers, beam_args=shared.beam_arguments(), overwrite=overwrite)
    folder = output.rstrip("/")
    watch = Stopwatch()
    if text_configs is not None:
        with stages.importing_beam(options):
            check_text_layout(text_configs[1], options.beam_args)
    summary: dict[str, Any] = {}
    if text_configs is not None:
        if tokenizer is None:
            tokenizer = f"{folder}/tokenizer"
            summary["vocab"] = stages.run_vocab_stage(terminal, text_configs[0], tokenizer, options)
        corpus = f"{folder}/corpus"
        summary["ingest"] = stages.run_ingest_stage(terminal, text_configs[1], tokenizer, corpus, options)
    dataset = f"{folder}/dataset"
    summary["build"] = stages.run_build_stage(terminal, build_config, str(corpus), dataset, options)
    lines_of = {
        "vocab": summaries.vocab_lines,
        "ingest": summaries.ingest_lines,
        "build": summaries.build_lines,
    }
    lines = [
        line for stage, of in summary.items() for line in summaries.with_heading(stage, lines_of[stage](of))
    ]
    built = summary["build"]
    following = train_prepared(
        click.get_current_context(), folder, built["num_examples_by_split"]["train"], built["num_tokens"]
    )
    terminal.finish({**summary, "seconds": watch.seconds, "output": output}, lines, following)
