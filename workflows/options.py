"""The options that several commands share, each spelled in one place.

An option that is not given is None, and the configuration it belongs to fills in its default: a default is
written once, in `schemas.configs` or `trainer.config`. Those are not imported here, since Arrow comes with
them; a test holds the choices and the defaults in the help equal to theirs. What follows `--` on the command
line goes to Beam.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click
from pydantic import BaseModel, ValidationError

from schemas.errors import UsageError

ConfigT = TypeVar("ConfigT", bound=BaseModel)
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_BEAM_ARGUMENTS = "workflows.beam_arguments"


class ClozelineCommand(click.Command):
    """A subcommand with `--json` and `--debug`, whose unexpected arguments are explained."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(
            click.Option(["--json", "as_json"], is_flag=True, help="Print the summary as one JSON object.")
        )
        self.params.append(
            click.Option(["--debug"], is_flag=True, expose_value=False, help="Show tracebacks of errors.")
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, and explain what a shell does to an unquoted pattern."""
        takes_input = "--input" in args
        try:
            return super().parse_args(ctx, args)
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            if "unexpected extra argument" in error.message and takes_input:
                hint = "; quote a pattern, --input 'texts/*.txt', so that the shell leaves it alone"
                raise click.UsageError(error.message + hint, ctx) from None
            raise


class BeamCommand(ClozelineCommand):
    """A subcommand that hands everything after `--` to Beam."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The usage line, with Beam's part."""
        return [*super().collect_usage_pieces(ctx), "[-- BEAM_OPTIONS]"]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Cut the arguments at the first `--` and keep what follows for `beam_arguments`."""
        own, beam = args, []
        if "--" in args:
            cut = args.index("--")
            own, beam = args[:cut], args[cut + 1 :]
        ctx.meta[_BEAM_ARGUMENTS] = tuple(beam)
        return super().parse_args(ctx, own)


def beam_arguments() -> tuple[str, ...]:
    """What stood after `--` on the command line of the running `BeamCommand`."""
    arguments: tuple[str, ...] = click.get_current_context().meta.get(_BEAM_ARGUMENTS, ())
    return arguments


def build_config(
    kind: type[ConfigT], values: Mapping[str, Any], field_options: Mapping[str, str] | None = None
) -> ConfigT:
    """Make a configuration from options, leaving out those that were not given.

    Args:
        kind: the class of configuration.
        values: field name to value; None means "not given".
        field_options: names of options that differ from the field's (`{"inputs": "--input"}`).

    Raises:
        UsageError: a value is out of range; the message names the option.
    """
    try:
        return kind(**{name: value for name, value in values.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0]) if first["loc"] else ""
        option = (field_options or {}).get(field, "--" + field.replace("_", "-"))
        subject = f"{option} {first['input']!s:.80}: " if field else ""
        reason = str(first["msg"]).removeprefix("Value error, ")
        command = click.get_current_context(silent=True)
        hint = f"\nSee `{command.command_path} --help`." if command else ""
        raise UsageError(f"{subject}{reason}.{hint}") from None


def combine(*decorators: Decorator) -> Decorator:
    """One decorator from several; the first one's option comes first in the help."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def input_options(*, required: bool = True) -> Decorator:
    """`--input`, `--format` and `--text-field`."""
    return combine(
        click.option(
            "--input",
            "inputs",
            multiple=True,
            required=required,
            metavar="PATH",
            help="A file or a quoted pattern of files, local, gs:// or s3://. Repeats.",
        ),
        click.option(
            "--format",
            "format_",
            type=click.Choice(
                ["auto", "text", "text-lines", "text-sentences", "jsonl", "parquet", "csv", "tsv"]
            ),
            help="How documents lie in a file: a document a file (text), a document a line (text-lines), or "
            "a sentence a line with blank lines between documents (text-sentences).  [default: auto]",
        ),
        click.option(
            "--text-field",
            metavar="NAME",
            help="JSONL key, or column of Parquet or CSV, of the text.  [default: text]",
        ),
    )


vocab_options = combine(
    click.option("--vocab-size", type=int, help="Entries, special tokens included.  [default: 30522]"),
    click.option("--min-frequency", type=int, help="A piece must occur this often.  [default: 2]"),
    click.option(
        "--lowercase/--cased", default=None, help="Lower-case the text first.  [default: lowercase]"
    ),
    click.option("--strip-accents/--keep-accents", default=None, help="[default: as --lowercase]"),
    click.option("--num-unused", type=int, help="Reserved [unusedN] entries.  [default: 0]"),
    click.option(
        "--sample-bytes", type=int, help="About how much text to learn from.  [default: 1000000000]"
    ),
    click.option(
        "--extend",
        metavar="PATH",
        help="Put frequent words into the [unusedN] entries of this tokenizer, rather than learn a new one.",
    ),
    click.option(
        "--max-new-words", type=int, help="With --extend: words at most.  [default: one an [unusedN] entry]"
    ),
)

ingest_options = combine(
    click.option(
        "--id-field", metavar="NAME", help="JSONL key, or column of Parquet or CSV, of the id.  [default: id]"
    ),
    click.option(
        "--segmenter",
        type=click.Choice(["sentencex", "newline"]),
        help="How sentences are found.  [default: sentencex]",
    ),
    click.option("--language", metavar="CODE", help="ISO 639 code of the text's language.  [default: en]"),
    click.option("--validation-fraction", type=float, help="Share of documents held out.  [default: 0.01]"),
    click.option(
        "--max-document-bytes",
        type=int,
        help="A longer document is rejected: it takes 10 to 30 times that in memory.  [default: 20000000]",
    ),
    click.option(
        "--keep-duplicates/--drop-duplicates",
        default=None,
        help="Keep documents whose text occurred before.  [default: drop-duplicates]",
    ),
)

build_options = combine(
    click.option("--max-seq-length", type=int, help="Tokens in an example at most.  [default: 128]"),
    click.option("--masked-lm-prob", type=float, help="Share of tokens to predict.  [default: 0.15]"),
    click.option(
        "--max-predictions-per-seq",
        type=int,
        help="Tokens to predict in an example at most.  [default: masked-lm-prob of all]",
    ),
    click.option("--short-seq-prob", type=float, help="Share of shorter examples.  [default: 0.1]"),
    click.option("--duplicate-factor", type=int, help="Uses of each document.  [default: 1]"),
    click.option(
        "--whole-word-mask/--no-whole-word-mask", default=None, help="Mask whole words.  [default: no]"
    ),
    click.option(
        "--objective",
        type=click.Choice(["next-sentence", "sentence-order", "mlm"]),
        help="What the second segment is for.  [default: next-sentence]",
    ),
    click.option(
        "--next-sentence-balance",
        type=click.Choice(["on", "off"]),
        help="Make half of all labels NotNext; off keeps the rule of Google's script.  [default: on]",
    ),
    click.option("--examples-per-block", type=int, help="Examples in a WebDataset sample.  [default: 1000]"),
    click.option(
        "--num-shards",
        type=int,
        help="Shards of train.  [default: by the size of the corpus]",
    ),
    click.option(
        "--examples-per-shard", type=int, help="About so many examples a shard, instead of --num-shards."
    ),
)

seed_option = click.option("--seed", type=int, help="Decides every random draw.  [default: 0]")
workers_option = click.option(
    "--workers", type=click.IntRange(min=1), help="Processes on this machine.  [default: one a core]"
)
overwrite_option = click.option("--overwrite", is_flag=True, help="Replace what lies in the output.")
output_option = click.option(
    "--output", required=True, metavar="FOLDER", help="Where the result goes, local, gs:// or s3://."
)
tokenizer_option = click.option(
    "--tokenizer",
    required=True,
    metavar="PATH",
    help="tokenizer.json, vocab.txt, or a folder that holds one.",
)
checkpoint_option = click.option(
    "--checkpoint",
    required=True,
    metavar="FOLDER",
    help="A run folder, one of its checkpoints, or a Hugging Face folder.",
)
device_option = click.option(
    "--device", metavar="NAME", default="cpu", show_default=True, help="cpu, cuda or cuda:N."
)
