import shlex
from typing import Any

import pytest

from schemas.configs import BuildConfig, IngestConfig
from workflows.cli import load_command
from workflows.configuring import build_dataset_config, ingest_config
from workflows.report.blocks import Command
from workflows.report.provenance import (
    MOST_INPUTS_SHOWN,
    describe_command,
    describe_config,
    page_versions,
)


def _parse(name: str, command: Command) -> dict[str, Any]:
    words = shlex.split(" ".join(command.lines))
    assert words[:2] == ["clozeline", name]
    return load_command(name).make_context(name, words[2:]).params


@pytest.mark.parametrize(
    "config",
    [
        BuildConfig(),
        BuildConfig(seed=7, max_seq_length=512, max_predictions_per_seq=77, whole_word_mask=True),
        BuildConfig(objective="mlm", next_sentence_balance=False, masked_lm_prob=0.1 + 0.2),
        BuildConfig(short_seq_prob=1e-7, duplicate_factor=10, examples_per_block=3),
    ],
    ids=["defaults", "phase 2", "mlm", "odd numbers"],
)
def test_the_command_of_a_build_gives_the_same_configuration(config: BuildConfig) -> None:
    values = _parse("build", describe_command("build", config, {"corpus": "CORPUS", "output": "DATASET"}))
    assert build_dataset_config(values) == config
    assert (values["corpus"], values["output"]) == ("CORPUS", "DATASET")


@pytest.mark.parametrize(
    "config",
    [
        IngestConfig(inputs=("a.jsonl",)),
        IngestConfig(inputs=("it's here/*.txt", "b c.txt", "$HOME"), format="text", segmenter="newline"),
        IngestConfig(inputs=("x",), text_field="a b", language="ru", validation_fraction=0.0),
    ],
    ids=["defaults", "unkind names", "fields"],
)
def test_the_command_of_an_ingest_gives_the_same_configuration(config: IngestConfig) -> None:
    command = describe_command("ingest", config, {"tokenizer": "TOKENIZER", "output": "CORPUS"})
    assert ingest_config(_parse("ingest", command)) == config
    assert "TOKENIZER and CORPUS" in command.caption


def test_of_very_many_inputs_the_rest_is_counted() -> None:
    config = IngestConfig(inputs=tuple(f"{n}.txt" for n in range(1000)))
    lines = describe_command("ingest", config, {}).lines
    assert f"# … and {1000 - MOST_INPUTS_SHOWN} more of --input, listed in the manifest" in lines
    assert len(lines) < MOST_INPUTS_SHOWN + 30
    (inputs,) = [row[1] for row in describe_config("c", config).rows if row[0] == "inputs"]
    assert inputs.endswith(f"and {1000 - MOST_INPUTS_SHOWN} more")


def test_every_field_of_a_configuration_is_shown() -> None:
    rows = dict(describe_config("c", BuildConfig()).rows)  # type: ignore[arg-type]
    assert set(rows) == set(BuildConfig.model_fields)
    assert (rows["max_predictions_per_seq"], rows["whole_word_mask"], rows["objective"]) == (
        *("null", "false"),
        "next-sentence",
    )


def test_versions() -> None:
    assert "clozeline " in page_versions()
    assert "Python 3." in page_versions()
