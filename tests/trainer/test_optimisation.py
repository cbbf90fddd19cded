from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from trainer.config import OptimizerName
from trainer.lamb import Lamb
from trainer.model.config import ModelConfig
from trainer.model.pretraining import BertForPretraining
from trainer.optimisation import (
    build_optimizer,
    clip_gradients,
    learning_rate_at,
    parameter_groups,
    set_learning_rate,
)

VOCAB_SIZE = 50
MASK = 4
FIRST_WORD = 5
LENGTH = 16


@dataclass(frozen=True)
class RandomBatch:
    input_ids: Tensor
    segment_ids: Tensor
    attention_mask: Tensor
    masked_positions: Tensor
    masked_ids: Tensor
    next_sentence_labels: Tensor
    packing: ClassVar[None] = None


def random_batch(num_examples: int, draw: torch.Generator, *, masked: bool) -> RandomBatch:
    """Tokens drawn uniformly, two positions of each example chosen: nothing but memory can predict them."""
    input_ids = torch.randint(FIRST_WORD, VOCAB_SIZE, (num_examples, LENGTH), generator=draw)
    first = torch.randint(0, LENGTH // 2, (num_examples,), generator=draw)
    columns = torch.stack([first, first + LENGTH // 2], dim=1)
    positions = (columns + torch.arange(num_examples)[:, None] * LENGTH).flatten()
    masked_ids = input_ids.flatten()[positions]
    if masked:
        input_ids.view(-1)[positions] = MASK
    return RandomBatch(
        input_ids=input_ids,
        segment_ids=(torch.arange(LENGTH) >= LENGTH // 2).long().expand(num_examples, LENGTH),
        attention_mask=torch.ones(num_examples, LENGTH, dtype=torch.bool),
        masked_positions=positions,
        masked_ids=masked_ids,
        next_sentence_labels=torch.randint(0, 2, (num_examples,), generator=draw),
    )


def endless_batches(*, masked: bool) -> Iterator[RandomBatch]:
    draw = torch.Generator().manual_seed(1)
    while True:
        yield random_batch(64, draw, masked=masked)


def small_model(hidden_size: int = 64) -> BertForPretraining:
    torch.set_num_threads(1)
    config = ModelConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=hidden_size,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=2 * hidden_size,
        max_position_embeddings=LENGTH,
    )
    return BertForPretraining(config.without_dropout(), seed=0)


def train(
    model: BertForPretraining,
    batches: Iterable[RandomBatch],
    *,
    num_steps: int,
    kind: OptimizerName = "adamw",
    peak: float = 3e-3,
) -> list[float]:
    """Total losses, one a step."""
    optimizer = build_optimizer(model, learning_rate=peak, kind=kind, betas=(0.9, 0.98))
    losses = []
    for step, batch in zip(range(num_steps), batches, strict=False):
        rate = learning_rate_at(step, peak=peak, num_warmup_steps=num_steps // 10, num_steps=num_steps)
        set_learning_rate(optimizer, rate)
        loss = model(batch).mean_loss()
        loss.backward()
        clip_gradients(model, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize(("kind", "peak"), [("adamw", 3e-3), ("lamb", 3e-2)])
def test_32_examples_are_learned_by_heart(kind: OptimizerName, peak: float) -> None:
    batch = random_batch(32, torch.Generator().manual_seed(0), masked=True)
    losses = train(small_model(), itertools.repeat(batch), num_steps=150, kind=kind, peak=peak)
    assert losses[0] > math.log(VOCAB_SIZE)
    assert losses[-1] < 0.05


def test_masking_removes_the_degenerate_optimum() -> None:
    """With the answer left in the input the loss falls to zero on data never seen; masked, it can't."""
    final = {}
    for masked in (False, True):
        model = small_model()
        train(model, endless_batches(masked=masked), num_steps=140)
        unseen = random_batch(200, torch.Generator().manual_seed(2), masked=masked)
        with torch.no_grad():
            output = model(unseen)
        final[masked] = float(output.masked_lm_loss_sum / output.num_masked)
    assert final[False] < 0.05
    assert final[True] > math.log(VOCAB_SIZE - FIRST_WORD) - 0.1


def test_only_biases_and_norms_escape_decay() -> None:
    model = small_model()
    decayed, kept = parameter_groups(model, 0.01)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.01, 0.0)
    decayed_names = {names[id(p)] for p in decayed["params"]}  # type: ignore[attr-defined]
    kept_names = {names[id(p)] for p in kept["params"]}  # type: ignore[attr-defined]
    assert decayed_names.isdisjoint(kept_names)
    assert decayed_names | kept_names == set(names.values())
    assert kept_names == {name for name in names.values() if name.endswith("bias") or "norm" in name}


def test_frozen_parameters_are_left_out() -> None:
    model = small_model()
    model.embeddings.requires_grad_(False)
    taken = [p for group in build_optimizer(model, learning_rate=1.0).param_groups for p in group["params"]]
    assert all(p.requires_grad for p in taken)
    assert len(taken) == sum(1 for p in model.parameters() if p.requires_grad)


def test_first_update_by_hand() -> None:
    """AdamW's first update is -rate * sign(gradient), after the weight has shrunk by rate * decay."""
    layer = nn.Linear(1, 1)
    with torch.no_grad():
        layer.weight.fill_(2.0)
        layer.bias.fill_(3.0)
    optimizer = build_optimizer(layer, learning_rate=0.1, weight_decay=0.5, eps=0.0)
    layer.weight.grad = torch.full_like(layer.weight, 4.0)
    layer.bias.grad = torch.full_like(layer.bias, -4.0)
    optimizer.step()
    assert layer.weight.item() == pytest.approx(2.0 - 0.1 * 0.5 * 2.0 - 0.1)
    assert layer.bias.item() == pytest.approx(3.0 + 0.1)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_adamw_is_one_kernel(device: str) -> None:
    optimizer = build_optimizer(small_model().to(device), learning_rate=1.0)
    assert optimizer.defaults["fused"] is True


def test_lamb_adapts_what_it_decays_and_nothing_else() -> None:
    model = small_model()
    optimizer = build_optimizer(
        model, learning_rate=0.5, kind="lamb", weight_decay=0.1, betas=(0.8, 0.9), eps=1e-3
    )
    assert isinstance(optimizer, Lamb)
    decayed, kept = parameter_groups(model, 0.1)
    for group, expected, adapted in zip(optimizer.param_groups, (decayed, kept), (True, False), strict=True):
        assert [id(p) for p in group["params"]] == [id(p) for p in expected["params"]]  # type: ignore[attr-defined]
        assert (group["adapted"], group["weight_decay"]) == (adapted, expected["weight_decay"])
        assert (group["lr"], group["betas"], group["eps"]) == (0.5, (0.8, 0.9), 1e-3)


def test_schedule_by_hand() -> None:
    rates = [learning_rate_at(step, peak=6.0, num_warmup_steps=3, num_steps=9) for step in range(10)]
    assert rates == [2.0, 4.0, 6.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0]


def test_schedule_without_warmup_and_with_nothing_else() -> None:
    assert learning_rate_at(0, peak=1.0, num_warmup_steps=0, num_steps=4) == 1.0
    assert learning_rate_at(3, peak=1.0, num_warmup_steps=4, num_steps=4) == 1.0
    assert learning_rate_at(4, peak=1.0, num_warmup_steps=4, num_steps=4) == 0.0


@given(num_steps=st.integers(1, 500), warmup=st.integers(0, 500))
def test_every_step_moves_and_none_exceeds_the_peak(num_steps: int, warmup: int) -> None:
    warmup = min(warmup, num_steps)
    rates = [
        learning_rate_at(step, peak=0.5, num_warmup_steps=warmup, num_steps=num_steps)
        for step in range(num_steps)
    ]
    assert all(0.0 < rate <= 0.5 for rate in rates)
    assert max(rates) == 0.5
    assert rates == sorted(rates[:warmup]) + sorted(rates[warmup:], reverse=True)


def test_set_learning_rate_reaches_all_groups() -> None:
    optimizer = build_optimizer(small_model(), learning_rate=1.0)
    set_learning_rate(optimizer, 0.25)
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.25]


def test_clipping_by_hand() -> None:
    layer = nn.Linear(1, 1)
    layer.weight.grad = torch.full_like(layer.weight, 3.0)
    layer.bias.grad = torch.full_like(layer.bias, 4.0)
    assert float(clip_gradients(layer, 1.0)) == pytest.approx(5.0)
    assert (layer.weight.grad.item(), layer.bias.grad.item()) == pytest.approx((0.6, 0.8), rel=1e-5)
    assert float(clip_gradients(layer, 10.0)) == pytest.approx(1.0, rel=1e-5)
    assert layer.weight.grad.item() == pytest.approx(0.6, rel=1e-5)
