from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from trainer.model.attention import SelfAttention
from trainer.model.config import ModelConfig


def attend_one_by_one(attention: SelfAttention, hidden: Tensor, lengths: list[int]) -> Tensor:
    """Attention by its definition, position by position, over the tokens alone."""
    query, key, value = (
        (hidden @ part.weight.T + part.bias).unflatten(-1, (attention.num_heads, -1))
        for part in (attention.query, attention.key, attention.value)
    )
    context = torch.zeros_like(query)
    for row, length in enumerate(lengths):
        for head in range(attention.num_heads):
            for position in range(hidden.shape[1]):
                scores = [
                    float(query[row, position, head] @ key[row, other, head]) / math.sqrt(query.shape[-1])
                    for other in range(length)
                ]
                total = math.fsum(math.exp(score) for score in scores)
                for other, score in enumerate(scores):
                    context[row, position, head] += math.exp(score) / total * value[row, other, head]
    return context.flatten(-2)


@pytest.fixture
def hidden(small_config: ModelConfig) -> Tensor:
    return torch.randn(2, 6, small_config.hidden_size, generator=torch.Generator().manual_seed(1))


def key_bias(lengths: list[int], width: int) -> Tensor:
    padding = torch.arange(width) >= torch.tensor(lengths)[:, None]
    return torch.zeros(padding.shape).masked_fill(padding, -math.inf)[:, None, None, :]


@pytest.mark.parametrize("kernel", ["matmul", "sdpa"])
@pytest.mark.parametrize("lengths", [[6, 6], [6, 3], [1, 4]])
@torch.no_grad()
def test_attention_follows_its_definition(
    kernel: str, lengths: list[int], small_config: ModelConfig, hidden: Tensor
) -> None:
    torch.manual_seed(0)
    attention = SelfAttention(small_config, kernel).eval()
    context = attention(hidden, key_bias(lengths, 6))
    torch.testing.assert_close(context, attend_one_by_one(attention, hidden, lengths), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kernel", ["matmul", "sdpa"])
def test_dropout_acts_in_training_only(kernel: str, small_config: ModelConfig, hidden: Tensor) -> None:
    torch.manual_seed(0)
    attention = SelfAttention(small_config, kernel)
    bias = key_bias([6, 6], 6)
    quiet = attention.eval()(hidden, bias)
    assert torch.equal(quiet, attention(hidden, bias))
    attention.train()
    torch.manual_seed(3)
    first = attention(hidden, bias)
    torch.manual_seed(3)
    assert torch.equal(first, attention(hidden, bias))
    assert not torch.equal(first, quiet)


@pytest.mark.parametrize("kernel", ["auto", "matmul", "sdpa"])
def test_bfloat16_stays_close(kernel: str, small_config: ModelConfig, hidden: Tensor) -> None:
    torch.manual_seed(0)
    attention = SelfAttention(small_config, kernel).eval()
    bias = key_bias([6, 3], 6)
    exact = attention(hidden, bias)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = attention(hidden, bias)
    assert rounded.dtype == torch.bfloat16
    torch.testing.assert_close(rounded.float(), exact, atol=2e-2, rtol=5e-2)
