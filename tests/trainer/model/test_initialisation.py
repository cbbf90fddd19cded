from __future__ import annotations

import pytest
import torch
from torch import nn

from trainer.model.config import ModelConfig, preset_config
from trainer.model.pretraining import BertForPretraining


@pytest.fixture(scope="module")
def model() -> BertForPretraining:
    return BertForPretraining(preset_config("tiny", 2000), seed=3)


def test_weights_are_a_normal_cut_at_two_deviations(model: BertForPretraining) -> None:
    weights = torch.cat(
        [m.weight.detach().flatten() for m in model.modules() if isinstance(m, (nn.Linear, nn.Embedding))]
    ).double()
    assert len(weights) > 600_000
    assert float(weights.abs().max()) <= 0.04 + 1e-6
    # A standard normal cut at 2 has variance 1 - 4 phi(2) / (2 Phi(2) - 1) = 0.77374.
    assert float(weights.mean()) == pytest.approx(0.0, abs=1e-4)
    assert float(weights.std()) == pytest.approx(0.02 * 0.77374**0.5, rel=3e-3)


def test_biases_and_norms_start_neutral(model: BertForPretraining) -> None:
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            expected = 1.0 if name.endswith("norm.weight") else 0.0
            assert bool((parameter == expected).all()), name


def test_seed_alone_decides(small_config: ModelConfig) -> None:
    torch.manual_seed(1)
    first = BertForPretraining(small_config, seed=5).state_dict()
    torch.manual_seed(2)
    again = BertForPretraining(small_config, seed=5).state_dict()
    other = BertForPretraining(small_config, seed=6).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["embeddings.token.weight"], other["embeddings.token.weight"])
