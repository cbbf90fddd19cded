"""The command `clozeline`: a group whose subcommands are imported only when they run.

In: the arguments of the process. Out: an exit code and what the subcommand prints. `clozeline --help`
imports neither Beam, nor torch, nor Arrow; each line of its list stands here and is held equal to the
subcommand's own help by a test.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from workflows.failures import run_to_exit_code

COMMANDS: dict[str, tuple[str, str]] = {
    "quickstart": ("quickstart", "Go the whole way on the text that every Python carries."),
    "vocab": ("vocab", "Learn a WordPiece vocabulary from text."),
    "preview": ("preview", "Show what the first documents would become."),
    "ingest": ("ingest", "Turn text into a corpus of tokenized documents."),
    "build": ("build", "Turn a corpus into shards of masked examples."),
    "prepare": ("prepare", "Run vocab, ingest and build from one recipe."),
    "inspect": ("inspect", "Show examples of a dataset as a person reads them."),
    "verify": ("verify", "Check every file and every example of a corpus or a dataset."),
    "report": ("report", "Write an HTML page that shows a corpus, a dataset or a training run."),
    "plan": ("plan", "Work out what a training run takes."),
    "train": ("train", "Train a BERT on one or more datasets."),
    "evaluate": ("evaluate", "Measure a trained model on held-out examples."),
    "fill-mask": ("fill_mask", "Let a trained model fill each [MASK] of a text."),
    "next-sentence": ("next_sentence", "Judge whether one sentence follows another."),
    "export": ("export", "Write a trained model as a folder that transformers opens."),
}


class LazyGroup(click.Group):
    """A click group that knows its subcommands by name and loads one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order a person meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of one subcommand."""
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The subcommand that the arguments name; a misspelt one is answered with the nearest."""
        if args and args[0] not in COMMANDS and (close := difflib.get_close_matches(args[0], COMMANDS, n=1)):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of subcommands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def main(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command line; every failure ends in one or two lines and the exit code of its kind."""
        arguments = list(sys.argv[1:] if args is None else args)
        # torch's OpenMP threads spin while they wait for each other. On a machine that others use too,
        # that made training 50 times slower (350 against 19,800 tokens/s). Read when torch is loaded.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

        def call() -> Any:
            return super(LazyGroup, self).main(arguments, prog_name, standalone_mode=False, **extra)

        if not standalone_mode:
            return call()
        return sys.exit(run_to_exit_code(call, arguments))


def load_command(name: str) -> click.Command:
    """The click command of one name in `COMMANDS`."""
    module = importlib.import_module(f"workflows.commands.{COMMANDS[name][0]}")
    command: click.Command = module.command
    return command


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(package_name="clozeline", message="%(package)s %(version)s")
def main() -> None:
    """Turn raw text into a pretrained BERT.

    Begin with `clozeline quickstart`; on text of your own: vocab, ingest, build, train.
    """
