"""From the values of options to the configurations of the stages.

In: option names to values, None where an option was not given. Out: frozen configurations, or a `UsageError`
that names the option. Options of other stages among the values are passed over, so that one set of values can
configure several.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.configs import BuildConfig, IngestConfig, VocabConfig
from workflows.options import ConfigT, build_config

_OPTION_OF_FIELD = {"inputs": "--input", "lowercase": "--lowercase"}


def vocab_config(values: Mapping[str, Any]) -> VocabConfig:
    """The configuration of `vocab`."""
    return _take_fields(VocabConfig, values)


def ingest_config(values: Mapping[str, Any]) -> IngestConfig:
    """The configuration of `ingest`."""
    return _take_fields(IngestConfig, values)


def build_dataset_config(values: Mapping[str, Any]) -> BuildConfig:
    """The configuration of `build`."""
    balance = values.get("next_sentence_balance")
    plain = {**values, "next_sentence_balance": None if balance is None else balance == "on"}
    return _take_fields(BuildConfig, plain)


def _take_fields(kind: type[ConfigT], values: Mapping[str, Any]) -> ConfigT:
    named = {**values, "format": values.get("format_")}
    return build_config(
        kind, {name: value for name, value in named.items() if name in kind.model_fields}, _OPTION_OF_FIELD
    )
