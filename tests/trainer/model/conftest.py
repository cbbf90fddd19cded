"""Small random batches and models, made by torch alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from trainer.model.config import ModelConfig

VOCAB_SIZE = 60
FIRST_WORD = 5


@dataclass(frozen=True)
class HandMadeBatch:
    input_ids: Tensor
    segment_ids: Tensor
    attention_mask: Tensor
    masked_positions: Tensor
    masked_ids: Tensor
    next_sentence_labels: Tensor
    packing: ClassVar[None] = None


@pytest.fixture(scope="session")
def small_config() -> ModelConfig:
    return ModelConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=24,
    )


@pytest.fixture(scope="session")
def make_batch() -> Callable[..., HandMadeBatch]:
    """(lengths, padded_to, seed) -> a batch of such examples with two masked positions each."""

    def make(lengths: list[int], *, padded_to: int | None = None, seed: int = 0) -> HandMadeBatch:
        draw = torch.Generator().manual_seed(seed)
        width = padded_to or max(lengths)
        input_ids = torch.zeros(len(lengths), width, dtype=torch.int64)
        segment_ids = torch.zeros_like(input_ids)
        positions = []
        for row, length in enumerate(lengths):
            input_ids[row, :length] = torch.randint(FIRST_WORD, VOCAB_SIZE, (length,), generator=draw)
            segment_ids[row, length // 2 : length] = 1
            chosen = (torch.randperm(length - 1, generator=draw)[:2] + 1).sort().values
            positions.append(chosen + row * width)
        masked_positions = torch.cat(positions)
        return HandMadeBatch(
            input_ids=input_ids,
            segment_ids=segment_ids,
            attention_mask=torch.arange(width) < torch.tensor(lengths)[:, None],
            masked_positions=masked_positions,
            masked_ids=torch.randint(FIRST_WORD, VOCAB_SIZE, masked_positions.shape, generator=draw),
            next_sentence_labels=torch.randint(0, 2, (len(lengths),), generator=draw),
        )

    return make


@pytest.fixture(scope="session")
def batch_class() -> type[HandMadeBatch]:
    return HandMadeBatch


@pytest.fixture(scope="session")
def randomise() -> Callable[[torch.nn.Module], None]:
    """Give every parameter, biases and layer norms too, a value that tells it from all others."""

    def draw(module: torch.nn.Module) -> None:
        generator = torch.Generator().manual_seed(7)
        with torch.no_grad():
            for parameter in module.parameters():
                centre = 1.0 if parameter.ndim == 1 and bool((parameter == 1).all()) else 0.0
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1 + centre)

    return draw
