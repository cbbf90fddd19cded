"""The encoder: a stack of post-layer-norm transformer layers.

Shapes: B sequences, S positions, H hidden size.

In: embedded tokens [B, S, H] and a mask of the positions that hold a token. Out: hidden states [B, S, H].
What is computed at padded positions is finite and means nothing; no other position ever sees it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from trainer.model.attention import AttentionKernel, SelfAttention
from trainer.model.config import ModelConfig


class EncoderLayer(nn.Module):
    """Attention and a feed-forward part, each followed by dropout, a residual sum and layer normalisation."""

    def __init__(self, config: ModelConfig, kernel: AttentionKernel = "auto") -> None:
        super().__init__()
        hidden_size, eps = config.hidden_size, config.layer_norm_eps
        self.attention = SelfAttention(config, kernel)
        self.attention_output = nn.Linear(hidden_size, hidden_size)
        self.attention_norm = nn.LayerNorm(hidden_size, eps=eps)
        self.feed_forward_input = nn.Linear(hidden_size, config.intermediate_size)
        self.feed_forward_output = nn.Linear(config.intermediate_size, hidden_size)
        self.feed_forward_norm = nn.LayerNorm(hidden_size, eps=eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden_BSH: Tensor, key_bias_B11S: Tensor) -> Tensor:
        """One layer: float [B, S, H] to float [B, S, H]."""
        attended_BSH = self.attention_output(self.attention(hidden_BSH, key_bias_B11S))
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
        self.layers = nn.ModuleList(EncoderLayer(config, kernel) for _ in range(config.num_hidden_layers))
        self.recomputes_layers = False

    def forward(self, hidden_BSH: Tensor, attention_mask_BS: Tensor) -> Tensor:
        """Encode.

        Args:
            hidden_BSH: float [B, S, H], embedded tokens.
            attention_mask_BS: bool [B, S], True where there is a token; at least one in each sequence.

        Returns:
            float [B, S, H].
        """
        key_bias_B11S = _key_bias(attention_mask_BS, hidden_BSH.dtype)
        recomputes = self.recomputes_layers and self.training and torch.is_grad_enabled()
        for layer in self.layers:
            if recomputes:
                hidden_BSH = checkpoint(layer, hidden_BSH, key_bias_B11S, use_reentrant=False)
            else:
                hidden_BSH = layer(hidden_BSH, key_bias_B11S)
        return hidden_BSH


def _key_bias(attention_mask_BS: Tensor, dtype: torch.dtype) -> Tensor:
    bias_BS = torch.zeros(attention_mask_BS.shape, dtype=dtype, device=attention_mask_BS.device)
    return bias_BS.masked_fill_(~attention_mask_BS, float("-inf"))[:, None, None, :]
