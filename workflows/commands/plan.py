"""`clozeline plan`: work out what a training run takes, before hardware is rented."""

from __future__ import annotations

from typing import Any

import click

from workflows.options import ClozelineCommand
from workflows.terminal import Terminal


@click.command(name="plan", cls=ClozelineCommand)
@click.option(
    "--model",
    default="base",
    show_default=True,
    metavar="NAME",
    help="tiny, mini, small, medium, base, large, or a JSON file of sizes.",
)
@click.option("--data", metavar="DATASET", help="Take lengths, masks and vocabulary from what `build` wrote.")
@click.option(
    "--max-seq-length",
    type=click.IntRange(8, 2048),
    help="Without --data: tokens in an example.  [default: 128]",
)
@click.option("--vocab-size", type=click.IntRange(5), help="Without --data: entries.  [default: 30522]")
@click.option("--batch-size", type=click.IntRange(1), help="Examples in a step, padded.  [default: 256]")
@click.option(
    "--tokens-per-batch",
    type=click.IntRange(1),
    help="Rather than --batch-size: tokens in a step, packed into rows of --max-seq-length.",
)
@click.option(
    "--gradient-accumulation",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Microbatches a step on each device.",
)
@click.option("--steps", type=click.IntRange(1), help="Optimiser steps of the run.")
@click.option("--epochs", type=click.FloatRange(0, min_open=True), help="Rather: passes over --data.")
@click.option(
    "--device",
    default="h100",
    show_default=True,
    metavar="NAME",
    help="cpu, or a GPU: a100, h100, h100-pcie, h200, l4, l40s, a10g, v100, t4, b200, …",
)
@click.option(
    "--devices", "num_devices", type=click.IntRange(1), default=1, show_default=True, help="How many."
)
@click.option(
    "--precision",
    type=click.Choice(["fp32", "bf16"]),
    help="[default: bf16 where the device is known for it, else fp32]",
)
@click.option(
    "--utilisation",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.4,
    show_default=True,
    help="Share of the device's peak that arrives as useful work.",
)
@click.option(
    "--peak-tflops", type=click.FloatRange(0, min_open=True), help="Of a device that is not known by name."
)
@click.option("--dropout", type=click.FloatRange(0, 1, max_open=True), help="Replaces the model's.")
def command(as_json: bool, **values: Any) -> None:
    """Work out what a training run takes.

    Parameters, operations and memory of a step, and the time of a run, by arithmetic alone: no GPU, no data
    but a dataset's manifest. Time follows from --utilisation, the one thing that has to be assumed.
    """
    from workflows.planning import PlanRequest, plan_run

    summary, lines = plan_run(PlanRequest(**values))
    Terminal(as_json=as_json).finish(summary, lines, "")
