from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import save_file

from schemas.errors import UsageError
from trainer.model.config import ModelConfig
from trainer.model.hugging_face import (
    from_hugging_face,
    hugging_face_config,
    hugging_face_name,
    to_hugging_face,
)
from trainer.model.pretraining import BertForPretraining

TOLERANCE = 1e-5


def hugging_face_model(config: ModelConfig, attention: str = "eager") -> Any:
    settings = hugging_face_config(config)
    del settings["architectures"]
    model = transformers.BertForPreTraining(
        transformers.BertConfig(**settings, attn_implementation=attention)
    )
    return model.eval()


@pytest.mark.parametrize("their_attention", ["eager", "sdpa"])
@pytest.mark.parametrize("our_attention", ["matmul", "sdpa"])
@pytest.mark.parametrize("lengths", [[12, 12, 12], [5, 24, 11]], ids=["full", "padded"])
def test_logits_losses_and_gradients_equal_hugging_face(
    their_attention: str,
    our_attention: Any,
    lengths: list[int],
    small_config: ModelConfig,
    make_batch: Callable[..., Any],
    randomise: Callable[..., None],
) -> None:
    theirs = hugging_face_model(small_config, their_attention)
    randomise(theirs)
    ours = BertForPretraining(small_config, attention=our_attention).eval()
    ours.load_state_dict(from_hugging_face(theirs.state_dict(), ours.state_dict()))
    batch = make_batch(lengths)
    labels = torch.full(batch.input_ids.shape, -100)
    labels.view(-1)[batch.masked_positions] = batch.masked_ids

    expected = theirs(
        input_ids=batch.input_ids,
        token_type_ids=batch.segment_ids,
        attention_mask=batch.attention_mask.long(),
        labels=labels,
        next_sentence_label=batch.next_sentence_labels,
    )
    output = ours(batch)
    their_logits = expected.prediction_logits.flatten(0, 1)[batch.masked_positions]
    assert largest_difference(output.masked_lm_logits, their_logits) < TOLERANCE
    assert largest_difference(output.next_sentence_logits, expected.seq_relationship_logits) < TOLERANCE

    cross_entropy = torch.nn.functional.cross_entropy
    their_masked_lm_loss = cross_entropy(their_logits, batch.masked_ids)
    their_next_sentence_loss = cross_entropy(expected.seq_relationship_logits, batch.next_sentence_labels)
    masked_lm_loss = output.masked_lm_loss_sum / output.num_masked
    next_sentence_loss = output.next_sentence_loss_sum / output.num_labelled
    assert largest_difference(masked_lm_loss, their_masked_lm_loss) < TOLERANCE
    assert largest_difference(next_sentence_loss, their_next_sentence_loss) < TOLERANCE
    assert largest_difference(output.mean_loss(), expected.loss) < TOLERANCE

    expected.loss.backward()
    output.mean_loss().backward()
    their_gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    for name, parameter in ours.named_parameters():
        difference = largest_difference(parameter.grad, their_gradients[hugging_face_name(name)])
        assert difference < TOLERANCE, name


def largest_difference(first: Any, second: Any) -> float:
    assert first.shape == second.shape
    return float((first - second).detach().abs().max())


def test_every_parameter_is_one_of_theirs(small_config: ModelConfig) -> None:
    ours = dict(BertForPretraining(small_config).named_parameters())
    theirs = dict(hugging_face_model(small_config).named_parameters())
    assert sorted(map(hugging_face_name, ours)) == sorted(theirs)
    assert sum(p.numel() for p in ours.values()) == sum(p.numel() for p in theirs.values())


def test_weights_go_there_and_back(small_config: ModelConfig, randomise: Callable[..., None]) -> None:
    ours = BertForPretraining(small_config)
    randomise(ours)
    state = ours.state_dict()
    theirs = hugging_face_model(small_config)
    theirs.load_state_dict(to_hugging_face(state))
    back = from_hugging_face(theirs.state_dict(), state)
    assert list(back) == list(state)
    assert all(torch.equal(back[name], state[name]) for name in state)


def test_transformers_opens_a_folder_of_ours(
    small_config: ModelConfig, make_batch: Callable[..., Any], randomise: Callable[..., None], tmp_path: Path
) -> None:
    ours = BertForPretraining(small_config).eval()
    randomise(ours)
    state = {name: tensor.clone() for name, tensor in to_hugging_face(ours.state_dict()).items()}
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps(hugging_face_config(small_config)))
    theirs = transformers.BertForPreTraining.from_pretrained(tmp_path).eval()
    batch = make_batch([9, 9])
    expected = theirs(input_ids=batch.input_ids, token_type_ids=batch.segment_ids)
    assert largest_difference(ours(batch).next_sentence_logits, expected.seq_relationship_logits) < TOLERANCE


def test_old_names_and_buffers_are_understood(small_config: ModelConfig) -> None:
    ours = BertForPretraining(small_config)
    state = to_hugging_face(ours.state_dict())
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in state.items()
    }
    old["bert.embeddings.position_ids"] = torch.arange(24)[None]
    converted = from_hugging_face(old, ours.state_dict())
    assert all(torch.equal(converted[name], tensor) for name, tensor in ours.state_dict().items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("bert.pooler.dense.bias"), "lack bert.pooler.dense.bias"),
        (lambda state: state.update({"cls.predictions.bias": torch.zeros(3)}), r"of shape \[3\], .* \[60\]"),
        (lambda state: state.update({"t5.block": torch.zeros(3)}), "hold 1 parameters .* t5.block first"),
    ],
    ids=["missing", "shape", "unknown"],
)
def test_other_weights_are_refused(
    change: Callable[[dict[str, Any]], None], message: str, small_config: ModelConfig
) -> None:
    ours = BertForPretraining(small_config).state_dict()
    state = to_hugging_face(ours)
    change(state)
    with pytest.raises(UsageError, match=message):
        from_hugging_face(state, ours)


def test_unknown_name_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="decoder"):
        hugging_face_name("decoder")
