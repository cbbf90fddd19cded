"""How a thing was made: the command that makes it again, its configuration, the versions.

In: a configuration out of a manifest. Out: blocks. The command is spelled with the options that the command
line really has, every one of them given, so that a default that changes later changes nothing. What a
manifest doesn't hold (where the tokenizer or the corpus lay) stands in capitals.
"""

from __future__ import annotations

import json
import platform
import shlex
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any

import click
from pydantic import BaseModel

from workflows.cli import load_command
from workflows.report.blocks import Command, Table

MOST_INPUTS_SHOWN = 200
VERSIONS_RECORDED = "The manifest records the version of clozeline, not those of the libraries below it."
_FIELD_OF_PARAMETER = {"format_": "format", "compile_": "compile"}
_PAGE_PACKAGES = ("clozeline", "numpy", "pyarrow", "tokenizers")


def describe_command(name: str, config: BaseModel, places: Mapping[str, str]) -> Command:
    """The command line that makes the same again.

    Args:
        name: of the subcommand.
        config: from the manifest.
        places: option parameters that no configuration holds (`output`) and what to write for them.
    """
    values = config.model_dump(mode="json")
    lines = [f"clozeline {name}"]
    for parameter in load_command(name).params:
        if not isinstance(parameter, click.Option) or parameter.name is None:
            continue
        field = _FIELD_OF_PARAMETER.get(parameter.name, parameter.name)
        if parameter.name in places:
            lines.append(f"{parameter.opts[0]} {places[parameter.name]}")
        elif values.get(field) is not None:
            lines += _spell(parameter, values[field])
    missing = " and ".join(places.values())
    return Command(f"For {missing}, put where they lie: the manifest doesn't hold it.", tuple(lines))


def describe_config(caption: str, config: BaseModel) -> Table:
    """Every field of a configuration and its value, as it stands in the manifest."""
    rows = [(field, _shown(value)) for field, value in config.model_dump(mode="json").items()]
    return Table(caption, ("Field", "Value"), tuple(rows), numeric=False)


def page_versions() -> str:
    """What this page was made with."""
    packages = ", ".join(f"{name} {metadata.version(name)}" for name in _PAGE_PACKAGES)
    return f"{packages}, Python {platform.python_version()}"


def _spell(option: click.Option, value: Any) -> Iterator[str]:
    name = option.opts[0]
    if option.multiple:
        for entry in value[:MOST_INPUTS_SHOWN]:
            yield f"{name} {shlex.quote(str(entry))}"
        if len(value) > MOST_INPUTS_SHOWN:
            yield f"# … and {len(value) - MOST_INPUTS_SHOWN:,} more of {name}, listed in the manifest"
    elif option.is_flag:
        if value or option.secondary_opts:
            yield name if value else option.secondary_opts[0]
    elif isinstance(value, bool):
        yield f"{name} {'on' if value else 'off'}"
    else:
        yield f"{name} {shlex.quote(str(value))}"


def _shown(value: Any) -> str:
    if isinstance(value, list):
        more = f" … and {len(value) - MOST_INPUTS_SHOWN:,} more" if len(value) > MOST_INPUTS_SHOWN else ""
        return ", ".join(str(entry) for entry in value[:MOST_INPUTS_SHOWN]) + more
    return value if isinstance(value, str) else json.dumps(value)
