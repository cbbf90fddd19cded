from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import UsageError
from trainer.model.config import preset_config
from trainer.model_choice import choose_model


def test_a_preset_fits_the_vocabulary_of_the_data() -> None:
    assert choose_model("bert-mini", 5000, 512) == preset_config("mini", 5000)


def test_a_dropout_replaces_both_of_the_model() -> None:
    model = choose_model("tiny", 100, 64, dropout=0.25)
    assert (model.hidden_dropout_prob, model.attention_probs_dropout_prob) == (0.25, 0.25)


def test_a_file_of_another_vocabulary_is_taken_only_where_its_weights_are_fitted(tmp_path: Path) -> None:
    path = tmp_path / "sizes.json"
    path.write_text(json.dumps({"num_hidden_layers": 1, "hidden_size": 64, "vocab_size": 7}))
    with pytest.raises(UsageError, match="vocab_size 7"):
        choose_model(str(path), 100, 64)
    assert choose_model(str(path), 100, 64, any_vocab_size=True).vocab_size == 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("huge", 100, 64), "'huge' is no preset"),
        (("nowhere.json", 100, 64), "nowhere.json: no such model configuration"),
        (("tiny", 100, 513), "up to 513 tokens, but model tiny has 512 positions"),
    ],
    ids=["preset", "file", "length"],
)
def test_what_can_not_be_chosen_is_named(arguments: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        choose_model(*arguments)
