"""The two pretraining heads and the pooler.

Shapes: E examples, H hidden size, M masked positions of the whole batch, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.model.config import ModelConfig


class MaskedLMHead(nn.Module):
    """Scores of every vocabulary entry at a masked position (Devlin et al. 2018, section 3.1, task 1).

    The decoder's weight is the token embedding, handed in at each call: it is one parameter, held in one
    place.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden_MH: Tensor, token_embedding_VH: Tensor) -> Tensor:
        """Logits: float [M, H] to float [M, V]."""
        transformed_MH = self.norm(functional.gelu(self.dense(hidden_MH)))
        return functional.linear(transformed_MH, token_embedding_VH, self.bias)


class Pooler(nn.Module):
    """The vector of a whole example: a dense layer and tanh on that of its `[CLS]`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, first_EH: Tensor) -> Tensor:
        """Pooled vectors: float [E, H], hidden states of `[CLS]`, to float [E, H]."""
        return torch.tanh(self.dense(first_EH))


class NextSentenceHead(nn.Module):
    """Scores of the two next-sentence labels (Devlin et al. 2018, section 3.1, task 2)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, 2)

    def forward(self, pooled_EH: Tensor) -> Tensor:
        """Logits of IsNext and NotNext: float [E, H] to float [E, 2]."""
        return self.dense(pooled_EH)
