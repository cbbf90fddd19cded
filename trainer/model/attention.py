"""Multi-head self-attention, by three ways of computing the same numbers.

Shapes: B rows, S positions, H hidden size, N heads, D = H / N, T = B * S.

In: hidden states [B, S, H] and an `AttentionPattern`, which says what sees what. Out: context [B, S, H].
Deterministic but for dropout, which draws from torch's generator.

    kernel    computes                                        for
    matmul    matmul, softmax, matmul                         bfloat16 on a CPU
    sdpa      torch's `scaled_dot_product_attention`          everything else
    varlen    torch's `varlen_attn`, which reads no mask      packed rows in half precision on a GPU; it knows
              and skips what lies in other examples           no dropout of probabilities
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.model.config import ModelConfig
from trainer.model.packing import Packing

try:
    from torch.nn.attention import varlen
except ImportError:  # torch before 2.10
    varlen = None  # type: ignore[assignment]

AttentionKernel = Literal["auto", "matmul", "sdpa", "varlen"]
ChosenKernel = Literal["matmul", "sdpa", "varlen"]


class AttentionPattern(NamedTuple):
    """Which positions see which, in the form that a kernel takes.

    Attributes:
        kernel: how attention is computed.
        bias: added to the scores, 0 where a query sees a key and minus infinity elsewhere: float
            [B, 1, 1, S], or [B, 1, S, S] where rows are packed; None for `varlen`.
        packing: where the examples of packed rows lie.
    """

    kernel: ChosenKernel
    bias: Tensor | None
    packing: Packing | None = None


def choose_kernel(
    choice: AttentionKernel,
    device_type: str,
    dtype: torch.dtype,
    *,
    is_packed: bool,
    dropout_prob: float,
    head_size: int,
) -> ChosenKernel:
    """The kernel that attention is computed by.

    Args:
        choice: what was asked for. `varlen` means it wherever it gives the right numbers.
        device_type: `cpu`, `cuda`, …
        dtype: of queries, keys and values.
        is_packed: whether rows hold several examples.
        dropout_prob: of attention probabilities; 0 where the model is not training.
        head_size: D.
    """
    may_use_varlen = is_packed and dropout_prob == 0.0 and varlen is not None
    if choice == "varlen":
        return "varlen" if may_use_varlen else "sdpa"
    if choice != "auto":
        return choice
    # What FlashAttention takes.
    fits = dtype in (torch.bfloat16, torch.float16) and head_size % 8 == 0 and head_size <= 256
    if device_type == "cuda" and may_use_varlen and fits:
        return "varlen"
    # In bfloat16 on the CPU the backward pass of SDPA is about four times slower than plain matmuls.
    return "matmul" if device_type == "cpu" and dtype == torch.bfloat16 else "sdpa"


def plan_attention(
    choice: AttentionKernel,
    attention_mask_BS: Tensor,
    packing: Packing | None,
    dtype: torch.dtype,
    *,
    dropout_prob: float,
    head_size: int,
) -> AttentionPattern:
    """What sees what in a batch: every token the tokens of its own example, and no padding.

    Padding sees something too, so that whatever comes of it is finite.

    Args:
        choice: of the kernel.
        attention_mask_BS: bool [B, S], True where there is a token; each row has one unless it is packed.
        packing: where the examples lie; None where each has a row of its own.
        dtype: of queries, keys and values.
        dropout_prob: of attention probabilities.
        head_size: D.
    """
    device = attention_mask_BS.device
    kernel = choose_kernel(
        choice,
        device.type,
        dtype,
        is_packed=packing is not None,
        dropout_prob=dropout_prob,
        head_size=head_size,
    )
    if kernel == "varlen":
        return AttentionPattern(kernel, None, packing)
    if packing is None:
        sees = attention_mask_BS[:, None, None, :]
    else:
        numbers_BS = packing.example_numbers
        sees = (numbers_BS[:, :, None] == numbers_BS[:, None, :])[:, None]
    bias = torch.zeros(sees.shape, dtype=dtype, device=device).masked_fill_(~sees, float("-inf"))
    return AttentionPattern(kernel, bias, packing)


class SelfAttention(nn.Module):
    """Scaled dot-product attention (Vaswani et al. 2017, "Attention is all you need", section 3.2)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.dropout_prob = config.attention_probs_dropout_prob
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_BSH: Tensor, pattern: AttentionPattern) -> Tensor:
        """Context vectors: float [B, S, H]."""
        query_BSND = self._split_heads(self.query(hidden_BSH))
        key_BSND = self._split_heads(self.key(hidden_BSH))
        value_BSND = self._split_heads(self.value(hidden_BSH))
        if pattern.bias is None:
            context_BSND = _attend_by_varlen(query_BSND, key_BSND, value_BSND, pattern.packing)
            return context_BSND.reshape(hidden_BSH.shape)
        attend = _attend_by_matmul if pattern.kernel == "matmul" else _attend_by_sdpa
        context_BNSD = attend(
            query_BSND.transpose(1, 2),
            key_BSND.transpose(1, 2),
            value_BSND.transpose(1, 2),
            pattern.bias,
            self.dropout_prob if self.training else 0.0,
        )
        return context_BNSD.transpose(1, 2).reshape(hidden_BSH.shape)

    def _split_heads(self, projected_BSH: Tensor) -> Tensor:
        return projected_BSH.view(*projected_BSH.shape[:-1], self.num_heads, -1)


def _attend_by_matmul(
    query_BNSD: Tensor, key_BNSD: Tensor, value_BNSD: Tensor, bias: Tensor, dropout_prob: float
) -> Tensor:
    scale = 1.0 / math.sqrt(query_BNSD.shape[-1])
    scores_BNSS = torch.matmul(query_BNSD * scale, key_BNSD.transpose(-1, -2)) + bias
    probabilities_BNSS = torch.softmax(scores_BNSS, dim=-1)
    if dropout_prob > 0.0:
        probabilities_BNSS = functional.dropout(probabilities_BNSS, dropout_prob)
    return torch.matmul(probabilities_BNSS, value_BNSD)


def _attend_by_sdpa(
    query_BNSD: Tensor, key_BNSD: Tensor, value_BNSD: Tensor, bias: Tensor, dropout_prob: float
) -> Tensor:
    return functional.scaled_dot_product_attention(
        query_BNSD, key_BNSD, value_BNSD, attn_mask=bias, dropout_p=dropout_prob
    )


def _attend_by_varlen(
    query_BSND: Tensor, key_BSND: Tensor, value_BSND: Tensor, packing: Packing | None
) -> Tensor:
    assert packing is not None
    context_TND = varlen.varlen_attn(
        query_BSND.flatten(0, 1),
        key_BSND.flatten(0, 1),
        value_BSND.flatten(0, 1),
        packing.cu_seqlens,
        packing.cu_seqlens,
        packing.max_length,
        packing.max_length,
    )
    assert isinstance(context_TND, Tensor)
    return context_TND.view_as(query_BSND)
