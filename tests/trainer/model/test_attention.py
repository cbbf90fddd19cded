from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from trainer.model.attention import AttentionPattern, SelfAttention, choose_kernel, plan_attention
from trainer.model.config import ModelConfig
from trainer.model.packing import Packing


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


def pattern_for(kernel: Any, lengths: list[int], dtype: torch.dtype = torch.float32) -> AttentionPattern:
    mask = torch.arange(6) < torch.tensor(lengths)[:, None]
    return plan_attention(kernel, mask, None, dtype, dropout_prob=0.1, head_size=8)


@pytest.mark.parametrize("kernel", ["matmul", "sdpa"])
@pytest.mark.parametrize("lengths", [[6, 6], [6, 3], [1, 4]])
@torch.no_grad()
def test_attention_follows_its_definition(
    kernel: str, lengths: list[int], small_config: ModelConfig, hidden: Tensor
) -> None:
    torch.manual_seed(0)
    attention = SelfAttention(small_config).eval()
    context = attention(hidden, pattern_for(kernel, lengths))
    torch.testing.assert_close(context, attend_one_by_one(attention, hidden, lengths), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kernel", ["matmul", "sdpa"])
def test_dropout_acts_in_training_only(kernel: str, small_config: ModelConfig, hidden: Tensor) -> None:
    torch.manual_seed(0)
    attention = SelfAttention(small_config)
    pattern = pattern_for(kernel, [6, 6])
    quiet = attention.eval()(hidden, pattern)
    assert torch.equal(quiet, attention(hidden, pattern))
    attention.train()
    torch.manual_seed(3)
    first = attention(hidden, pattern)
    torch.manual_seed(3)
    assert torch.equal(first, attention(hidden, pattern))
    assert not torch.equal(first, quiet)


@pytest.mark.parametrize("kernel", ["auto", "matmul", "sdpa"])
def test_bfloat16_stays_close(kernel: str, small_config: ModelConfig, hidden: Tensor) -> None:
    torch.manual_seed(0)
    attention = SelfAttention(small_config).eval()
    exact = attention(hidden, pattern_for(kernel, [6, 3]))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = attention(hidden, pattern_for(kernel, [6, 3], torch.bfloat16))
    assert rounded.dtype == torch.bfloat16
    torch.testing.assert_close(rounded.float(), exact, atol=2e-2, rtol=5e-2)


BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


@pytest.mark.parametrize(
    ("choice", "device_type", "dtype", "is_packed", "dropout_prob", "expected"),
    [
        ("auto", "cpu", FP32, False, 0.1, "sdpa"),
        ("auto", "cpu", FP32, True, 0.0, "sdpa"),
        ("auto", "cpu", BF16, False, 0.0, "matmul"),
        ("auto", "cpu", BF16, True, 0.0, "matmul"),
        ("auto", "cpu", BF16, True, 0.1, "matmul"),
        ("auto", "cuda", FP32, False, 0.0, "sdpa"),
        ("auto", "cuda", FP32, True, 0.0, "sdpa"),
        ("auto", "cuda", BF16, False, 0.0, "sdpa"),
        ("auto", "cuda", BF16, True, 0.0, "varlen"),
        ("auto", "cuda", FP16, True, 0.0, "varlen"),
        # Dropout of probabilities is honoured rather than left out.
        ("auto", "cuda", BF16, True, 0.1, "sdpa"),
        ("varlen", "cuda", BF16, True, 0.1, "sdpa"),
        ("varlen", "cuda", BF16, False, 0.0, "sdpa"),
        ("varlen", "cpu", FP32, True, 0.0, "varlen"),
        ("matmul", "cuda", BF16, True, 0.0, "matmul"),
        ("sdpa", "cpu", BF16, True, 0.0, "sdpa"),
        ("auto", "mps", FP32, True, 0.0, "sdpa"),
    ],
)
def test_choice_of_a_kernel(
    choice: Any, device_type: str, dtype: torch.dtype, is_packed: bool, dropout_prob: float, expected: str
) -> None:
    kernel = choose_kernel(
        choice, device_type, dtype, is_packed=is_packed, dropout_prob=dropout_prob, head_size=64
    )
    assert kernel == expected


@pytest.mark.parametrize(
    ("head_size", "expected"), [(64, "varlen"), (256, "varlen"), (20, "sdpa"), (264, "sdpa")]
)
def test_varlen_takes_not_every_size_of_heads(head_size: int, expected: str) -> None:
    kernel = choose_kernel("auto", "cuda", BF16, is_packed=True, dropout_prob=0.0, head_size=head_size)
    assert kernel == expected


def test_without_the_kernel_sdpa_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.model.attention.varlen", None)
    options: Any = {"is_packed": True, "dropout_prob": 0.0, "head_size": 64}
    assert choose_kernel("auto", "cuda", BF16, **options) == "sdpa"
    assert choose_kernel("varlen", "cuda", BF16, **options) == "sdpa"


def test_the_pattern_of_packed_rows() -> None:
    numbers = torch.tensor([[1, 1, 2, 0]])
    packing = Packing(
        position_ids=torch.tensor([[0, 1, 0, 0]]),
        example_numbers=numbers.to(torch.int32),
        first_positions=torch.tensor([0, 2]),
        cu_seqlens=torch.tensor([0, 2, 3, 4], dtype=torch.int32),
        max_length=4,
    )
    pattern = plan_attention("sdpa", numbers > 0, packing, BF16, dropout_prob=0.0, head_size=8)
    out = -math.inf
    expected = [[0, 0, out, out], [0, 0, out, out], [out, out, 0, out], [out, out, out, 0]]
    assert pattern.bias is not None
    assert pattern.bias.tolist() == [[expected]]
    assert pattern.bias.dtype == BF16
    assert plan_attention("varlen", numbers > 0, packing, BF16, dropout_prob=0.0, head_size=8).bias is None
