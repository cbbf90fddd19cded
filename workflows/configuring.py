"""From the values of options to the configurations of the stages.

In: option names to values, None where an option was not given. Out: frozen configurations, or a `UsageError`
that names the option. Options of other stages among the values are passed over, so that one set of values can
configure several.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from schemas.configs import BuildConfig, IngestConfig, VocabConfig
from schemas.errors import UsageError
from workflows.options import ConfigT, build_config

_KEPT_BY_EXTEND = ("vocab_size", "lowercase", "strip_accents", "num_unused")
_OPTION_OF_FIELD = {"inputs": "--input", "lowercase": "--lowercase"}


def vocab_config(values: Mapping[str, Any]) -> VocabConfig:
    """The configuration of `vocab`."""
    if values.get("extend") is not None:
        _refuse_beside_extend(values["extend"])
    elif values.get("max_new_words") is not None:
        raise UsageError("--max-new-words belongs to --extend; give both or neither.")
    return _take_fields(VocabConfig, values)


def ingest_config(values: Mapping[str, Any]) -> IngestConfig:
    """The configuration of `ingest`."""
    return _take_fields(IngestConfig, values)


def build_dataset_config(values: Mapping[str, Any]) -> BuildConfig:
    """The configuration of `build`."""
    balance = values.get("next_sentence_balance")
    plain = {**values, "next_sentence_balance": None if balance is None else balance == "on"}
    return _take_fields(BuildConfig, plain)


def _refuse_beside_extend(extend: str) -> None:
    """A recipe may hold sizes that `--extend` has no use for; a person who types one expects something."""
    ctx = click.get_current_context(silent=True)
    if ctx is None:
        return
    given = [
        f"--{name.replace('_', '-')}"
        for name in _KEPT_BY_EXTEND
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        raise UsageError(f"--extend keeps the size and the rules of {extend}; leave out {', '.join(given)}.")


def _take_fields(kind: type[ConfigT], values: Mapping[str, Any]) -> ConfigT:
    named = {**values, "format": values.get("format_")}
    return build_config(
        kind, {name: value for name, value in named.items() if name in kind.model_fields}, _OPTION_OF_FIELD
    )
