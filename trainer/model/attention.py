"""Multi-head self-attention, by two ways of computing the same numbers.

Shapes: B sequences, S positions, H hidden size, N heads, D = H / N.

In: hidden states [B, S, H] and an additive key bias [B, 1, 1, S] (0 where there is a token, minus infinity on
padding). Out: context [B, S, H]. Deterministic but for dropout, which draws from torch's generator.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.model.config import ModelConfig

AttentionKernel = Literal["auto", "matmul", "sdpa"]


class SelfAttention(nn.Module):
    """Scaled dot-product attention of every position to every position that is no padding.

    Vaswani et al. 2017, "Attention is all you need", section 3.2. `kernel` chooses the computation:
    `matmul` (matmul, softmax, matmul), `sdpa` (torch's `scaled_dot_product_attention`), or `auto`.
    """

    def __init__(self, config: ModelConfig, kernel: AttentionKernel = "auto") -> None:
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.dropout_prob = config.attention_probs_dropout_prob
        self.kernel = kernel
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_BSH: Tensor, key_bias_B11S: Tensor) -> Tensor:
        """Context vectors: float [B, S, H]."""
        query_BNSD = self._split_heads(self.query(hidden_BSH))
        key_BNSD = self._split_heads(self.key(hidden_BSH))
        value_BNSD = self._split_heads(self.value(hidden_BSH))
        dropout_prob = self.dropout_prob if self.training else 0.0
        attend = _attend_by_matmul if _use_matmul(self.kernel, query_BNSD) else _attend_by_sdpa
        context_BNSD = attend(query_BNSD, key_BNSD, value_BNSD, key_bias_B11S, dropout_prob)
        return context_BNSD.transpose(1, 2).reshape(hidden_BSH.shape)

    def _split_heads(self, projected_BSH: Tensor) -> Tensor:
        return projected_BSH.view(*projected_BSH.shape[:-1], self.num_heads, -1).transpose(1, 2)


def _use_matmul(kernel: AttentionKernel, query: Tensor) -> bool:
    if kernel == "auto":
        # In bfloat16 on the CPU the backward pass of SDPA is about four times slower than plain matmuls.
        return query.device.type == "cpu" and query.dtype == torch.bfloat16
    return kernel == "matmul"


def _attend_by_matmul(
    query_BNSD: Tensor, key_BNSD: Tensor, value_BNSD: Tensor, key_bias_B11S: Tensor, dropout_prob: float
) -> Tensor:
    scale = 1.0 / math.sqrt(query_BNSD.shape[-1])
    scores_BNSS = torch.matmul(query_BNSD * scale, key_BNSD.transpose(-1, -2))
    scores_BNSS = scores_BNSS + key_bias_B11S.to(scores_BNSS.dtype)
    probabilities_BNSS = torch.softmax(scores_BNSS, dim=-1)
    if dropout_prob > 0.0:
        probabilities_BNSS = functional.dropout(probabilities_BNSS, dropout_prob)
    return torch.matmul(probabilities_BNSS, value_BNSD)


def _attend_by_sdpa(
    query_BNSD: Tensor, key_BNSD: Tensor, value_BNSD: Tensor, key_bias_B11S: Tensor, dropout_prob: float
) -> Tensor:
    return functional.scaled_dot_product_attention(
        query_BNSD,
        key_BNSD,
        value_BNSD,
        attn_mask=key_bias_B11S.to(query_BNSD.dtype),
        dropout_p=dropout_prob,
    )
