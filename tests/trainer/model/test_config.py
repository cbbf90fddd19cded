from __future__ import annotations

import json

import pytest
from pydantic import ValidationError
from transformers import BertConfig

from schemas.errors import UsageError
from trainer.model.config import PRESETS, ModelConfig, parse_model_config, preset_config

# Devlin et al. 2018 and https://github.com/google-research/bert: layers, hidden, heads, feed-forward.
PUBLISHED = {
    "tiny": (2, 128, 2, 512),
    "mini": (4, 256, 4, 1024),
    "small": (4, 512, 8, 2048),
    "medium": (8, 512, 8, 2048),
    "base": (12, 768, 12, 3072),
    "large": (24, 1024, 16, 4096),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_have_the_published_sizes(name: str) -> None:
    config = preset_config(name, 30_522)
    sizes = (
        config.num_hidden_layers,
        config.hidden_size,
        config.num_attention_heads,
        config.intermediate_size,
    )
    assert sizes == PUBLISHED[name]
    assert (config.max_position_embeddings, config.type_vocab_size) == (512, 2)
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.1, 0.1)
    assert preset_config(f"bert-{name}", 30_522) == config


def test_all_presets_are_covered() -> None:
    assert set(PRESETS) == set(PUBLISHED)


def test_unknown_preset_is_refused() -> None:
    with pytest.raises(UsageError, match="'huge' is no preset; choose one of tiny, mini"):
        preset_config("huge", 100)


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ValidationError, match="hidden_size 100 must be a multiple"):
        ModelConfig(
            vocab_size=9, hidden_size=100, num_hidden_layers=1, num_attention_heads=3, intermediate_size=4
        )


def test_without_dropout_changes_nothing_else() -> None:
    config = preset_config("tiny", 100)
    quiet = config.without_dropout()
    assert quiet.hidden_dropout_prob == quiet.attention_probs_dropout_prob == 0.0
    assert (
        quiet.model_copy(update={"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}) == config
    )


def test_a_file_may_leave_out_what_follows() -> None:
    config = parse_model_config('{"num_hidden_layers": 3, "hidden_size": 192}', 4096, "m.json")
    assert (config.num_attention_heads, config.intermediate_size, config.vocab_size) == (3, 768, 4096)


def test_own_configuration_round_trips() -> None:
    config = preset_config("mini", 4096).without_dropout()
    assert parse_model_config(config.model_dump_json(), 4096, "m.json") == config


def test_hugging_face_configuration_is_read() -> None:
    content = BertConfig(vocab_size=30_522).to_json_string(use_diff=False)
    assert parse_model_config(content, 30_522, "config.json") == preset_config("base", 30_522)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "m.json is no JSON"),
        ("[1]", "m.json holds a JSON list; expected an object"),
        ('{"hidden_size": 64}', "m.json is no valid model configuration: num_hidden_layers: Field required"),
        ('{"hidden_size": 64, "num_hidden_layers": 0}', "num_hidden_layers: Input should be greater"),
        ('{"hidden_size": 64, "num_hidden_layers": 1, "vocab_size": 7}', "vocab_size 7, but the data's"),
        ('{"hidden_size": 64, "num_hidden_layers": 1, "hidden_act": "relu"}', "hidden_act = 'relu'"),
        ('{"position_embedding_type": "relative_key"}', "knows 'absolute' only"),
    ],
)
def test_wrong_files_are_named(content: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_model_config(content, 4096, "m.json")


def test_configuration_is_plain_json() -> None:
    assert json.loads(preset_config("tiny", 100).model_dump_json())["hidden_size"] == 128
