"""Recipes: options of the command line in a YAML file, under the same names.

In: a path, or the name of a recipe that comes with clozeline. Out: defaults for the command that was
called. A recipe is flat, `max-seq-length: 128`, and may hold the options of several commands; each command
takes those that it knows and a flag overrides them. `output` is the folder of the whole: the tokenizer,
corpus, dataset and run lie below it under these names, and each command finds there what the one before it
wrote. A model configuration is looked for beside the recipe first. A name that no command knows, or a value
of the wrong kind, is refused.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import yaml

from schemas.errors import UsageError

RECIPE_META = "workflows.recipe"
"""Where click's context keeps what `--recipe` was given, since the option is no parameter of a command."""
RECIPE_FOLDER = Path(__file__).parent / "recipes"
COMMANDS_WITH_RECIPE = ("vocab", "ingest", "build", "prepare", "train")
_FOLDERS_BELOW_OUTPUT = {
    "vocab": {"output": "tokenizer"},
    "preview": {"tokenizer": "tokenizer"},
    "ingest": {"tokenizer": "tokenizer", "output": "corpus"},
    "build": {"corpus": "corpus", "output": "dataset"},
    "train": {"data": "dataset", "output": "run"},
}
_NOT_IN_A_RECIPE = frozenset({"recipe", "json", "debug", "help", "resume"})


def recipe_option() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option `--recipe`, which fills in the options that are not given."""
    return click.option(
        "--recipe",
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=_apply_recipe,
        help=f"A YAML file of options; a flag overrides it. Comes with: {', '.join(builtin_recipes())}.",
    )


def builtin_recipes() -> list[str]:
    """Names of the recipes that come with clozeline."""
    return sorted(path.stem for path in RECIPE_FOLDER.glob("*.yaml"))


def load_recipe(name: str) -> dict[str, Any]:
    """Read and check a recipe.

    Args:
        name: a path, or the name of a recipe that comes with clozeline.

    Returns:
        option name without its dashes, such as `max-seq-length`, to value.

    Raises:
        UsageError: no such file, no YAML mapping, an unknown option, or a value of the wrong kind.
    """
    path = Path(name)
    if not path.is_file() and name in builtin_recipes():
        path = RECIPE_FOLDER / f"{name}.yaml"
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"recipe {name}: no such file.\nGive a path, or one of {', '.join(builtin_recipes())}."
        ) from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"recipe {path} can't be read: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise UsageError(
            f"recipe {path} holds {type(content).__name__}.\nExpected lines such as `max-seq-length: 128`."
        )
    known = _known_options()
    values = {key: _checked_value(path, key, value, known) for key, value in _normalise(content).items()}
    model = values.get("model")
    if isinstance(model, str) and (path.parent / model).is_file():
        values["model"] = str(path.parent / model)
    return values


def _apply_recipe(ctx: click.Context, _param: click.Parameter, name: str | None) -> None:
    if name is None or ctx.resilient_parsing:
        return
    recipe = load_recipe(name)
    ctx.meta[RECIPE_META] = name
    _fill_folders(ctx.info_name or "", recipe)
    by_option = {
        _option_name(param): param.name for param in ctx.command.params if isinstance(param, click.Option)
    }
    ctx.default_map = {
        **(ctx.default_map or {}),
        **{str(by_option[key]): value for key, value in recipe.items() if key in by_option},
    }


def _fill_folders(command: str, recipe: dict[str, Any]) -> None:
    folders = _FOLDERS_BELOW_OUTPUT.get(command)
    if folders is None or "output" not in recipe:
        return
    whole = str(recipe.pop("output")).rstrip("/")
    for option, folder in folders.items():
        path = f"{whole}/{folder}"
        recipe.setdefault(option, [path] if option == "data" else path)


def _normalise(content: dict[Any, Any]) -> dict[str, Any]:
    return {str(key).replace("_", "-"): value for key, value in content.items() if value is not None}


def _known_options() -> dict[str, click.Option]:
    from workflows.cli import load_command

    return {
        _option_name(param): param
        for command in COMMANDS_WITH_RECIPE
        for param in load_command(command).params
        if isinstance(param, click.Option) and _option_name(param) not in _NOT_IN_A_RECIPE
    }


def _option_name(param: click.Parameter) -> str:
    return param.opts[0].lstrip("-")


def _checked_value(path: Path, key: str, value: Any, known: dict[str, click.Option]) -> Any:
    if key not in known:
        close = difflib.get_close_matches(key, known, n=1)
        remedy = (
            f"Did you mean {close[0]}?" if close else "An option has the same name as on the command line."
        )
        raise UsageError(f"recipe {path}: no command has an option {key!r}.\n{remedy}")
    option = known[key]
    if option.multiple and isinstance(value, str):
        value = [value]
    if isinstance(option.type, click.Choice) and isinstance(value, bool):
        # YAML reads a bare `on` or `off` as a boolean.
        value = "on" if value else "off"
    wants_list = option.multiple
    if isinstance(value, dict) or isinstance(value, list) != wants_list:
        raise UsageError(
            f"recipe {path}: {key} is {value!r}, expected {'a list' if wants_list else 'one value'}."
        )
    if isinstance(value, bool) != option.is_flag and not wants_list:
        raise UsageError(
            f"recipe {path}: {key} is {value!r}, expected {'yes or no' if option.is_flag else 'a value'}."
        )
    try:
        option.type_cast_value(click.Context(click.Command(key)), value)
    except click.BadParameter as error:
        raise UsageError(f"recipe {path}: {key}: {error.message}") from None
    return value
