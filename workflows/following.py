"""The command to type next: with the options that were given, and of a size that fits the data.

In: the running command's context, or the counts of a dataset. Out: a command line, quoted for a shell.
"""

from __future__ import annotations

import math

import click

from workflows.recipe import RECIPE_META, load_recipe
from workflows.summaries import command_line

_NOT_HANDED_ON = frozenset({"output", "overwrite", "workers", "as_json", "debug"})
_BATCH_SIZE = 256
_PASSES = 40
"""BERT was trained for about 40 epochs (Devlin et al. 2018, section A.2)."""
_LARGEST_TOKENS_OF_MODEL = (("mini", 30e6), ("small", 300e6), ("medium", 1e9))


def hand_on(ctx: click.Context, name: str, *more: str) -> str:
    """The command `name` with those options of its own that stood on the running command's line.

    Args:
        ctx: of the running command.
        name: the command to come.
        more: words at its end; `--output` is among them, since it is never handed on.
    """
    from workflows.cli import load_command

    words: list[str] = []
    for param in load_command(name).params:
        source = ctx.get_parameter_source(param.name or "")
        if param.name in _NOT_HANDED_ON or source is not click.core.ParameterSource.COMMANDLINE:
            continue
        value = ctx.meta[RECIPE_META] if param.name == "recipe" else ctx.params[str(param.name)]
        if isinstance(param, click.Option) and param.is_flag:
            words.append(param.opts[0] if value else param.secondary_opts[0])
            continue
        for one in value if isinstance(value, tuple) else (value,):
            words += [param.opts[0], str(one)]
    return command_line(name, *words, *more)


def train_command(dataset: str, output: str, num_examples: int, num_tokens: int) -> str:
    """A first `train` on a dataset: a model that its text can fill, for about as many passes as BERT's.

    Args:
        dataset: its folder.
        output: the run folder to make.
        num_examples: of the training split.
        num_tokens: of all examples.
    """
    model = next((model for model, largest in _LARGEST_TOKENS_OF_MODEL if num_tokens < largest), "base")
    steps = _round_to_one_digit(_PASSES * num_examples / _BATCH_SIZE)
    length = ("--steps", str(min(max(steps, 1_000), 1_000_000)))
    return command_line("train", "--data", dataset, "--model", model, *length, "--output", output)


def train_prepared(ctx: click.Context, folder: str, num_examples: int, num_tokens: int) -> str:
    """The `train` on what `prepare` made in a folder: by its recipe, where that says how long to train.

    Args:
        ctx: of the running `prepare`.
        folder: holds `dataset`, and will hold `run`.
        num_examples: of the training split.
        num_tokens: of all examples.
    """
    dataset, run = f"{folder}/dataset", f"{folder}/run"
    recipe = ctx.meta.get(RECIPE_META)
    if recipe is not None and not {"steps", "minutes"}.isdisjoint(load_recipe(recipe)):
        return command_line("train", "--recipe", recipe, "--data", dataset, "--output", run)
    return train_command(dataset, run, num_examples, num_tokens)


def _round_to_one_digit(number: float) -> int:
    digits = max(0, int(math.log10(max(number, 1.0))))
    return round(number / 10**digits) * 10**digits
