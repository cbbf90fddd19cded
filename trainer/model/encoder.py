"""The encoder: a stack of post-layer-norm transformer layers.

Shapes: B rows, S positions, H hidden size.

In: embedded tokens [B, S, H], a mask of the positions that hold a token, and where the examples lie if a row
holds several. Out: hidden states [B, S, H].
What is computed at padded positions is finite and means nothing; no other position ever sees it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from trainer.model.attention import AttentionKernel, AttentionPattern, SelfAttention, plan_attention
from trainer.model.config import ModelConfig
from trainer.model.packing import Packing


class EncoderLayer(nn.Module):
    """Attention and a feed-forward part, each followed by dropout, a residual sum and layer normalisation."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hidden_size, eps = config.hidden_size, config.layer_norm_eps
        self.attention = SelfAttention(config)
        self.attention_output = nn.Linear(hidden_size, hidden_size)
        self.attention_norm = nn.LayerNorm(hidden_size, eps=eps)
        self.feed_forward_input = nn.Linear(hidden_size, config.intermediate_size)
        self.feed_forward_output = nn.Linear(config.intermediate_size, hidden_size)
        self.feed_forward_norm = nn.LayerNorm(hidden_size, eps=eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden_BSH: Tensor, pattern: AttentionPattern) -> Tensor:
        """One layer: float [B, S, H] to float [B, S, H]."""
        attended_BSH = self.attention_output(self.attention(hidden_BSH, pattern))
        hidden_BSH = self.attention_norm(hidden_BSH + self.dropout(attended_BSH))
        # The exact GELU, by the error function, is that of Google's code and of Hugging Face's default.
        expanded = functional.gelu(self.feed_forward_input(hidden_BSH))
        return self.feed_forward_norm(hidden_BSH + self.dropout(self.feed_forward_output(expanded)))


class Encoder(nn.Module):
    """The layers, one after the other (Devlin et al. 2018, section 3).

    Attributes:
        recomputes_layers: in training keep only the input of each layer, and compute the layer a second time
            in the backward pass, with the same dropout (Chen et al. 2016, "Training deep nets with sublinear
            memory cost"). The gradients are the same.
    """

    def __init__(self, config: ModelConfig, kernel: AttentionKernel = "auto") -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_hidden_layers))
        self.recomputes_layers = False
        self._kernel = kernel
        self._config = config

    def forward(
        self, hidden_BSH: Tensor, attention_mask_BS: Tensor, packing: Packing | None = None
    ) -> Tensor:
        """Encode.

        Args:
            hidden_BSH: float [B, S, H], embedded tokens.
            attention_mask_BS: bool [B, S], True where there is a token; at least one in each row that is not
                packed.
            packing: where the examples lie; None where each has a row of its own.

        Returns:
            float [B, S, H].
        """
        pattern = plan_attention(
            self._kernel,
            attention_mask_BS,
            packing,
            _dtype_of_products(hidden_BSH),
            dropout_prob=self._config.attention_probs_dropout_prob if self.training else 0.0,
            head_size=self._config.head_size,
        )
        recomputes = self.recomputes_layers and self.training and torch.is_grad_enabled()
        for layer in self.layers:
            if recomputes:
                hidden_BSH = checkpoint(layer, hidden_BSH, pattern, use_reentrant=False)
            else:
                hidden_BSH = layer(hidden_BSH, pattern)
        return hidden_BSH


def _dtype_of_products(hidden: Tensor) -> torch.dtype:
    """The number format of queries, keys and values: layer norms keep float32 where autocast is on."""
    device_type = hidden.device.type
    if torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type):
        return torch.get_autocast_dtype(device_type)
    return hidden.dtype
