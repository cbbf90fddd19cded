import re
from typing import get_args

import click
import pytest
from click.testing import CliRunner

from schemas.configs import (
    BuildConfig,
    FrozenModel,
    IngestConfig,
    InputFormat,
    Objective,
    Segmenter,
    VocabConfig,
)
from schemas.errors import UsageError
from trainer.config import OptimizerName, Precision, TrainConfig
from trainer.data.mixture import DataSchedule
from workflows.cli import load_command, main
from workflows.configuring import build_dataset_config, ingest_config, vocab_config
from workflows.options import BeamCommand, beam_arguments, build_config

FIELD_OF_PARAMETER = {"inputs": "inputs", "format_": "format", "compile_": "compile"}
WORDS = {
    "one a core": None,
    "on": True,
    "off": False,
    "no": False,
    "yes": True,
    "lowercase": True,
    "drop-duplicates": False,
}


def _shown_defaults(command: str, config: type[FrozenModel]) -> list[tuple[str, str, object]]:
    found = []
    for parameter in load_command(command).params:
        match = re.search(r"\[default: ([^\]]*)\]", getattr(parameter, "help", "") or "")
        field = FIELD_OF_PARAMETER.get(parameter.name or "", parameter.name or "")
        if match and field in config.model_fields:
            found.append((field, match[1], config.model_fields[field].default))
    return found


@pytest.mark.parametrize(
    ("command", "config"),
    [("vocab", VocabConfig), ("ingest", IngestConfig), ("build", BuildConfig), ("train", TrainConfig)],
)
def test_the_help_shows_the_configuration_s_defaults(command: str, config: type[FrozenModel]) -> None:
    shown = _shown_defaults(command, config)
    assert len(shown) >= 4
    for field, text, default in shown:
        if default is None:
            continue  # worked out from other values; the text says how
        expected = WORDS.get(text, text) if isinstance(default, bool) else type(default)(text)
        assert expected == default, field


@pytest.mark.parametrize(
    ("command", "config"), [("vocab", VocabConfig), ("ingest", IngestConfig), ("build", BuildConfig)]
)
def test_every_field_of_a_configuration_has_an_option(command: str, config: type[FrozenModel]) -> None:
    names = {FIELD_OF_PARAMETER.get(param.name or "", param.name) for param in load_command(command).params}
    assert set(config.model_fields) <= names


@pytest.mark.parametrize(
    ("command", "name", "choices"),
    [
        ("ingest", "format_", InputFormat),
        ("vocab", "format_", InputFormat),
        ("ingest", "segmenter", Segmenter),
        ("build", "objective", Objective),
        ("train", "precision", Precision),
        ("train", "optimizer", OptimizerName),
        ("train", "data_schedule", DataSchedule),
    ],
)
def test_the_choices_are_the_configuration_s(command: str, name: str, choices: object) -> None:
    (option,) = [param for param in load_command(command).params if param.name == name]
    assert isinstance(option.type, click.Choice)
    assert tuple(option.type.choices) == get_args(choices)


def test_options_not_given_leave_the_defaults() -> None:
    values = {"inputs": ("a",), "format_": None, "vocab_size": None, "seed": None, "max_seq_length": 64}
    assert vocab_config(values) == VocabConfig(inputs=("a",))
    assert ingest_config(values) == IngestConfig(inputs=("a",))
    assert build_dataset_config(values) == BuildConfig(max_seq_length=64)


@pytest.mark.parametrize(("given", "expected"), [("on", True), ("off", False), (None, True)])
def test_next_sentence_balance(given: str | None, expected: bool) -> None:
    assert build_dataset_config({"next_sentence_balance": given}).next_sentence_balance is expected


def test_a_value_out_of_range_names_the_option() -> None:
    with pytest.raises(
        UsageError, match=r"^--max-seq-length 4: Input should be greater than or equal to 8\.$"
    ):
        build_config(BuildConfig, {"max_seq_length": 4})


@pytest.mark.parametrize("code", ["klingon", "jp"])
def test_an_unknown_language_is_a_usage_error(code: str) -> None:
    arguments = ["ingest", "--input", "a.csv", "--tokenizer", "t", "--output", "o", "--language", code]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    first, second = result.stderr.splitlines()
    assert f"--language {code}: unknown language; expected an ISO 639 code such as en, de, zh or ar" in first
    assert "ingest --help" in second


def test_what_follows_two_dashes_goes_to_beam() -> None:
    @click.command(cls=BeamCommand)
    @click.option("--name")
    def command(name: str, as_json: bool) -> None:
        click.echo(repr((name, as_json, beam_arguments())))

    result = CliRunner().invoke(command, ["--name", "x", "--", "--runner", "R", "--", "--json"])
    assert result.stdout == "('x', False, ('--runner', 'R', '--', '--json'))\n"


def test_an_unquoted_pattern_is_explained() -> None:
    result = CliRunner().invoke(main, ["vocab", "--input", "a.txt", "b.txt", "--output", "o"])
    assert result.exit_code == 2
    assert "b.txt" in result.stderr
    assert "quote a pattern" in result.stderr
    assert len(result.stderr.splitlines()) == 2
