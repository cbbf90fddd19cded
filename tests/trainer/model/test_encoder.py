"""Layers that are computed twice: the same gradients from less memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from trainer.model.config import ModelConfig
from trainer.model.pretraining import BertForPretraining


@pytest.fixture
def deep_config(small_config: ModelConfig) -> ModelConfig:
    return small_config.model_copy(update={"num_hidden_layers": 4})


def gradients(config: ModelConfig, batch: Any, *, recomputes: bool, precision: torch.dtype) -> list[Tensor]:
    model = BertForPretraining(config).train()
    model.encoder.recomputes_layers = recomputes
    torch.manual_seed(5)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == torch.bfloat16):
        loss = model(batch).mean_loss()
    loss.backward()
    found = [parameter.grad for parameter in model.parameters()]
    assert all(gradient is not None for gradient in found)
    return [loss.detach(), torch.rand(1), *(gradient for gradient in found if gradient is not None)]


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=str)
def test_loss_and_gradients_are_the_same_bits_dropout_included(
    deep_config: ModelConfig, make_batch: Callable[..., Any], precision: torch.dtype
) -> None:
    batch = make_batch([7, 12, 20])
    kept = gradients(deep_config, batch, recomputes=False, precision=precision)
    recomputed = gradients(deep_config, batch, recomputes=True, precision=precision)
    for ours, theirs in zip(kept, recomputed, strict=True):
        assert torch.equal(ours, theirs)


def saved_bytes(model: BertForPretraining, batch: Any) -> int:
    """Bytes that the encoder keeps for its backward pass, weights aside."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}
    held: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
            held.append(tensor)  # so that its address is not given to another
        return tensor

    embedded = model.embeddings(batch.input_ids, batch.segment_ids)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.encoder(embedded, batch.attention_mask)
    return sum(kept.values())


def test_at_most_half_is_kept_for_the_backward_pass(
    deep_config: ModelConfig, make_batch: Callable[..., Any]
) -> None:
    batch = make_batch([20] * 8)
    model = BertForPretraining(deep_config).train()
    everything = saved_bytes(model, batch)
    model.encoder.recomputes_layers = True
    inputs = saved_bytes(model, batch)
    # The input of each layer, and the mask once: 4 * 8 * 20 * 32 and 8 * 20 numbers of 4 bytes.
    assert inputs <= 4 * (4 * 8 * 20 * 32 + 8 * 20)
    assert 2 * inputs <= everything


def test_evaluation_computes_each_layer_once(
    deep_config: ModelConfig, make_batch: Callable[..., Any]
) -> None:
    model = BertForPretraining(deep_config)
    model.encoder.recomputes_layers = True
    calls: list[None] = []
    model.encoder.layers[0].register_forward_pre_hook(lambda *_: calls.append(None))
    model.eval()(make_batch([6])).mean_loss().backward()
    assert len(calls) == 1
    model.train()(make_batch([6])).mean_loss().backward()
    assert len(calls) == 3
