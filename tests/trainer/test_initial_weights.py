"""`--init`: weights of Hugging Face's, whose losses transformers itself computes here.

Runs and checkpoints of ours as a beginning are tested with the loop.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from schemas.errors import CorruptDataError, UsageError
from trainer.config import TrainConfig
from trainer.data import iterate_once, open_dataset
from trainer.loop import train


@pytest.fixture
def their_model(tiny_vocab_size: int) -> Any:
    """A `BertForPreTraining` with four heads and weights that tell every parameter from the others."""
    torch.set_num_threads(1)
    config = transformers.BertConfig(
        vocab_size=tiny_vocab_size,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    model = transformers.BertForPreTraining(config).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model


@pytest.fixture
def folder(their_model: Any, tiny_tokenizer_path: Path, tmp_path: Path) -> Path:
    """The model as `save_pretrained` leaves it, with its tokenizer."""
    path = tmp_path / "theirs"
    their_model.save_pretrained(path)
    (path / "tokenizer.json").write_bytes((tiny_tokenizer_path / "tokenizer.json").read_bytes())
    return path


@pytest.fixture
def begin(tiny_dataset_path: Path, folder: Path, tmp_path: Path) -> Callable[..., Any]:
    """Train one step from the folder, evaluated before it: the evaluation."""

    def run(**values: Any) -> Any:
        defaults = {
            "data": str(tiny_dataset_path),
            "output": str(tmp_path / "run"),
            "model": str(folder / "config.json"),
            "init": str(folder),
            "steps": 1,
            "batch_size": 4,
            "precision": "fp32",
            "device": "cpu",
            "evaluate_every": 1,
        }
        return train(TrainConfig(**defaults | values)).first_evaluation

    return run


def test_losses_equal_those_that_transformers_computes(
    their_model: Any, tiny_dataset_path: Path, begin: Callable[..., Any]
) -> None:
    masked_lm_losses, next_sentence_losses = [], []
    for batch in iterate_once(open_dataset(str(tiny_dataset_path)), "validation", 7):
        with torch.no_grad():
            output = their_model(
                input_ids=batch.input_ids,
                token_type_ids=batch.segment_ids,
                attention_mask=batch.attention_mask.long(),
            )
        logits = output.prediction_logits.flatten(0, 1)[batch.masked_positions]
        masked_lm_losses.append(torch.nn.functional.cross_entropy(logits, batch.masked_ids, reduction="none"))
        next_sentence_losses.append(
            torch.nn.functional.cross_entropy(
                output.seq_relationship_logits, batch.next_sentence_labels, reduction="none"
            )
        )
    evaluation = begin()
    assert evaluation["masked_lm_loss"] == pytest.approx(float(torch.cat(masked_lm_losses).mean()), abs=1e-5)
    assert evaluation["next_sentence_loss"] == pytest.approx(
        float(torch.cat(next_sentence_losses).mean()), abs=1e-5
    )


def change_config(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_another_number_of_heads_is_refused_though_every_shape_fits(
    folder: Path, begin: Callable[..., Any], tmp_path: Path
) -> None:
    ours = tmp_path / "ours.json"
    ours.write_text((folder / "config.json").read_text())
    change_config(folder, num_attention_heads=2)
    with pytest.raises(
        UsageError,
        match=rf"is another model: num_attention_heads 2 there, 4 here.\nGive --model {folder}/config.json",
    ):
        begin(model=str(ours))


def test_another_activation_is_refused(folder: Path, begin: Callable[..., Any], tmp_path: Path) -> None:
    ours = tmp_path / "ours.json"
    ours.write_text((folder / "config.json").read_text())
    change_config(folder, hidden_act="relu")
    with pytest.raises(UsageError, match="hidden_act = 'relu'; this model knows 'gelu' only"):
        begin(model=str(ours))


def test_dropout_may_be_chosen_anew(begin: Callable[..., Any]) -> None:
    assert begin(dropout=0.0) is not None


def test_another_vocabulary_of_the_same_size_is_refused(folder: Path, begin: Callable[..., Any]) -> None:
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["cat"], vocabulary["dog"] = vocabulary["dog"], vocabulary["cat"]
    path.write_text(json.dumps(tokenizer))
    with pytest.raises(
        UsageError, match=rf"another vocabulary .* 2 entries differ, first 'cat'.\n.* --tokenizer {folder}"
    ):
        begin()


def test_the_vocabulary_may_be_a_list_of_lines_or_missing(
    folder: Path, begin: Callable[..., Any], tiny_tokenizer_path: Path, tmp_path: Path
) -> None:
    (folder / "tokenizer.json").unlink()
    without = begin(output=str(tmp_path / "without"))
    lines = (tiny_tokenizer_path / "vocab.txt").read_text(encoding="utf-8")
    (folder / "vocab.txt").write_text(lines.replace("\n", "\r\n"), encoding="utf-8", newline="")
    assert begin(output=str(tmp_path / "same")) == without
    (folder / "vocab.txt").write_text(lines + "more\n", encoding="utf-8")
    with pytest.raises(UsageError, match="1 entries differ, first 'more'"):
        begin()


def test_a_decoder_of_its_own_is_refused(folder: Path, begin: Callable[..., Any]) -> None:
    weights = load_file(folder / "model.safetensors")
    decoder = weights["bert.embeddings.word_embeddings.weight"].clone()
    save_file(weights | {"cls.predictions.decoder.weight": decoder}, folder / "model.safetensors")
    assert begin() is not None
    save_file(weights | {"cls.predictions.decoder.weight": decoder + 1}, folder / "model.safetensors")
    with pytest.raises(UsageError, match=r"cls.predictions.decoder.weight of its own"):
        begin(seed=1, output=str(folder.parent / "other"))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("model.safetensors", b"\x10", "model.safetensors is no readable safetensors file"),
        ("tokenizer.json", b"{}", "tokenizer.json is no readable tokenizer"),
    ],
)
def test_a_damaged_file_is_named(
    folder: Path, begin: Callable[..., Any], name: str, content: bytes, words: str
) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(CorruptDataError, match=words):
        begin()


def test_pickled_weights_are_refused(folder: Path, begin: Callable[..., Any]) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(UsageError, match=r"pickled weights \(pytorch_model.bin\)"):
        begin()
