"""`clozeline train`: train a BERT on one or more datasets."""

from __future__ import annotations

from typing import Any

import click

from workflows import options as shared
from workflows.recipe import recipe_option
from workflows.terminal import Terminal

_OPTIONS_WITH_RESUME = frozenset({"resume", "data", "device", "skip_nonfinite", "as_json", "debug"})


@click.command(name="train", cls=shared.ClozelineCommand)
@click.option("--data", multiple=True, metavar="DATASET", help="What `clozeline build` wrote. Repeats.")
@click.option(
    "--data-schedule",
    type=click.Choice(["together", "sequence"]),
    help="Read several datasets as one, or one in each epoch, in turn.  [default: together]",
)
@click.option(
    "--data-weight",
    "data_weights",
    type=float,
    multiple=True,
    metavar="NUMBER",
    help="Mix datasets: the share of examples of each --data. Repeats.  [default: as many as each has]",
)
@click.option("--output", metavar="FOLDER", help="The run folder.")
@click.option(
    "--model",
    metavar="NAME",
    help="tiny, mini, small, medium, base, large, or a JSON file of sizes.  "
    "[default: base, or the sizes of --init]",
)
@click.option(
    "--init", metavar="PATH", help="Begin with the weights of this run, checkpoint or Hugging Face folder."
)
@click.option("--resume", metavar="FOLDER", help="Go on with the run in this folder; its options are kept.")
@click.option("--steps", type=int, help="Optimiser steps in all.")
@click.option("--minutes", type=float, help="Rather than --steps: train for about so long.")
@click.option(
    "--batch-size",
    type=int,
    help="Examples in a step at most, padded. Some steps take a few less, to cut the data evenly.  "
    "[default: 256]",
)
@click.option(
    "--tokens-per-batch",
    type=int,
    help="Rather than --batch-size: tokens in a step, packed into rows of the data's --max-seq-length.",
)
@click.option("--gradient-accumulation", type=int, help="Microbatches a step on each rank.  [default: 1]")
@click.option("--learning-rate", type=float, help="The peak.  [default: 0.0001]")
@click.option("--warmup-steps", type=int, help="[default: a tenth of the steps, at most 10000]")
@click.option(
    "--optimizer",
    type=click.Choice(["adamw", "lamb"]),
    help="lamb is for batches of thousands of examples.  [default: adamw]",
)
@click.option("--weight-decay", type=float, help="Not for biases and layer norms.  [default: 0.01]")
@click.option("--adam-beta2", type=float, help="Decay of the second moment.  [default: 0.999]")
@click.option("--max-grad-norm", type=float, help="Clip the gradient's norm; 0 never does.  [default: 1.0]")
@click.option("--skip-nonfinite", type=int, help="Steps with no finite loss to leave out.  [default: 0]")
@click.option("--dropout", type=float, help="Replaces the model's dropout probabilities.")
@click.option("--precision", type=click.Choice(["auto", "fp32", "bf16"]), help="[default: auto]")
@click.option("--compile/--no-compile", "compile_", default=None, help="Use torch.compile.  [default: no]")
@click.option(
    "--activation-checkpointing/--no-activation-checkpointing",
    default=None,
    help="Compute each layer twice, to need less memory.  [default: no]",
)
@click.option("--device", metavar="NAME", help="auto, cpu, cuda or cuda:N.  [default: auto]")
@shared.seed_option
@click.option("--save-every", type=int, help="Steps between checkpoints.  [default: 1000]")
@click.option("--keep-checkpoints", type=int, help="How many of the newest stay.  [default: 3]")
@click.option("--log-every", type=int, help="Steps between lines of metrics.jsonl.  [default: 50]")
@click.option("--evaluate-every", type=int, help="Steps between evaluations.  [default: never]")
@click.option("--evaluation-examples", type=int, help="Held-out examples in one at most.  [default: all]")
@recipe_option()
@shared.overwrite_option
def command(resume: str | None, overwrite: bool, as_json: bool, **values: Any) -> None:
    """Train a BERT on one or more datasets.

    On several devices: `torchrun --no-python --nproc-per-node 8 clozeline train …`, a process a device.

    Killed at any moment, the same command or --resume goes on from the newest checkpoint and repeats the
    uninterrupted run.
    """
    from workflows.summaries import train_lines
    from workflows.training import resume_training, run_training, train_config

    terminal = Terminal(as_json=as_json)
    if resume is not None:
        _refuse_options_of_a_new_run(click.get_current_context(), resume)
        summary = resume_training(
            terminal, resume, values["data"] or None, values["device"], values["skip_nonfinite"]
        )
    else:
        summary = run_training(terminal, train_config(values), overwrite=overwrite)
    terminal.finish(summary, train_lines(summary), _following(summary["data"][0], summary["output"]))


def _following(data: str, run_folder: str) -> str:
    from trainer.data.dataset import open_dataset
    from workflows.summaries import command_line

    if any(shard.split == "validation" for shard in open_dataset(data).manifest.shards):
        return command_line("evaluate", "--data", data, "--checkpoint", run_folder)
    return command_line("fill-mask", "--checkpoint", run_folder, "the [MASK] sat on the mat")


def _refuse_options_of_a_new_run(ctx: click.Context, run_folder: str) -> None:
    given = [
        param.opts[0]
        for param in ctx.command.params
        if param.name not in _OPTIONS_WITH_RESUME
        and ctx.get_parameter_source(param.name or "") is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        message = f"--resume keeps the run's own options; leave out {', '.join(given)}."
        if not {"--steps", "--minutes"}.isdisjoint(given):
            message += f" To train longer from its weights, begin a new run with `--init {run_folder}`."
        raise click.UsageError(message, ctx)
