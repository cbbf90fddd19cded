"""`clozeline quickstart`: the whole way on the text that every Python carries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from schemas.errors import UsageError
from workflows import options as shared
from workflows.recipe import load_recipe
from workflows.terminal import Terminal


@click.command(name="quickstart", cls=shared.ClozelineCommand)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=5.0,
    show_default=True,
    help="Time to train for.",
)
@click.option(
    "--output",
    metavar="FOLDER",
    default="quickstart",
    show_default=True,
    help="A local folder for all of it.",
)
@shared.workers_option
@shared.overwrite_option
def command(minutes: float, output: str, workers: int | None, overwrite: bool, as_json: bool) -> None:
    """Go the whole way on the text that every Python carries.

    The docstrings of this Python and its packages become a vocabulary, a corpus, a dataset and a small
    BERT, which is measured on held-out documents and asked to fill masks. Needs no network and no file of
    yours. Type it again to go on after an interruption.
    """
    from workflows.quickstart.journey import Journey, travel
    from workflows.quickstart.record import QuickstartRecord
    from workflows.quickstart.summary import next_command, quickstart_lines

    if "://" in output:
        raise UsageError(
            f"--output {output}: the quickstart works in a local folder.\nGive one, such as quickstart/."
        )
    values = _recipe_values()
    settings = {"minutes": minutes, **values}
    record = QuickstartRecord.open(Path(output), settings, overwrite=overwrite)
    terminal = Terminal(as_json=as_json)
    results = travel(Journey(terminal, record, values, minutes, workers))
    terminal.finish(results, quickstart_lines(results), next_command(output.rstrip("/")))


def _recipe_values() -> dict[str, Any]:
    return {name.replace("-", "_"): value for name, value in load_recipe("quickstart").items()}
