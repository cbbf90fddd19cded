"""Starting weights, as in Google's BERT.

Deterministic: the same seed and sizes give the same weights, whatever was drawn before.
"""

from __future__ import annotations

import torch
from torch import nn


def initialise_weights(model: nn.Module, std: float, seed: int) -> None:
    """Draw all weights anew, in place.

    Dense weights and embeddings come from a normal distribution cut at two standard deviations; biases start
    at 0 and layer norms as the identity (Google's `modeling.py`, `create_initializer`).

    Args:
        model: its parameters must lie on the CPU, so that a seed means the same on every machine.
        std: standard deviation before the cut.
        seed: decides the draws.
    """
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std, generator=generator)
        elif isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
        bias = getattr(module, "bias", None)
        if isinstance(bias, nn.Parameter):
            nn.init.zeros_(bias)
