"""Operations of a step, against sums done by hand and torch's own counter, and the table of devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from trainer.model.config import ModelConfig, preset_config
from trainer.model.costs import DEVICE_NAMES, forward_flops, peak_flops, training_flops
from trainer.model.pretraining import BertForPretraining

TOY = ModelConfig(
    vocab_size=10, hidden_size=4, num_hidden_layers=2, num_attention_heads=2, intermediate_size=6
)


def test_parts_of_a_toy_by_hand() -> None:
    # Two examples of 3 and 5 tokens, two positions masked in all.
    flops = forward_flops(TOY, num_tokens=8, sum_squared_lengths=9 + 25, num_masked=2, num_examples=2)
    # 8 tokens through four 4x4 matrices: 8 * 4 * 16 products of two operations, in each of two layers.
    assert flops.attention_projections == 2 * (8 * 4 * 16) * 2
    # Scores: 3*3 + 5*5 pairs of 4 products each; as many for the context.
    assert flops.attention_scores == 2 * (34 * 4 * 2) * 2
    # 8 tokens through 4x6 and 6x4.
    assert flops.feed_forward == 2 * (8 * 24 * 2) * 2
    # 2 positions through 4x4 and 4x10.
    assert flops.masked_lm_head == 2 * 2 * (16 + 40)
    # 2 examples through 4x4 and 4x2.
    assert flops.next_sentence_head == 2 * 2 * (16 + 8)
    assert flops.total == 2048 + 1088 + 1536 + 224 + 96


def test_training_takes_three_forward_passes() -> None:
    counts = {"num_tokens": 8, "sum_squared_lengths": 34, "num_masked": 2, "num_examples": 2}
    assert training_flops(TOY, **counts) == 3 * 4992


def test_base_at_128_is_what_six_operations_a_weight_and_token_say() -> None:
    # The rule of thumb, 6 N D, with N the weights of the encoder's matrices: 12 * 12 * 768^2.
    flops = forward_flops(
        preset_config("base", 30522), num_tokens=1000, sum_squared_lengths=0, num_masked=0, num_examples=0
    )
    assert 3 * flops.total == pytest.approx(6 * 85e6 * 1000, rel=0.001)


@pytest.mark.parametrize(("preset", "length"), [("mini", 128), ("mini", 512), ("base", 128), ("base", 512)])
def test_agrees_with_the_counter_of_torch(
    preset: str, length: int, make_batch: Callable[..., Any], batch_class: type
) -> None:
    """Within 3%; in fact to the last operation.

    Attention by plain products: of the fused CPU kernel torch's counter counts nothing, and of the fused CUDA
    kernels it counts the scores that they compute anew in the backward pass, which are no model FLOPs.
    """
    config = preset_config(preset, 30522).without_dropout()
    num_masked = 2 * round(0.15 * length)
    batch = replace(
        make_batch([length, length]),
        masked_positions=torch.arange(num_masked),
        masked_ids=torch.zeros(num_masked, dtype=torch.int64),
    )
    # On the meta device products have shapes and no values: the counter sees each, and none takes time.
    on_meta = {name: tensor.to("meta") for name, tensor in vars(batch).items()}
    with torch.device("meta"):
        model = BertForPretraining(config, attention="matmul")
    with FlopCounterMode(display=False) as counter:
        model(batch_class(**on_meta)).mean_loss().backward()
    expected = training_flops(
        config,
        num_tokens=2 * length,
        sum_squared_lengths=2 * length**2,
        num_masked=num_masked,
        num_examples=2,
    )
    assert counter.get_total_flops() == expected


@pytest.mark.parametrize(
    ("name", "bf16", "fp32"),
    [
        ("NVIDIA A100-SXM4-40GB", 312e12, 19.5e12),
        ("NVIDIA A100 80GB PCIe", 312e12, 19.5e12),
        ("NVIDIA H100 80GB HBM3", 989.5e12, 67e12),
        ("NVIDIA H100 PCIe", 756.5e12, 51e12),
        ("NVIDIA H100 NVL", 835.5e12, 60e12),
        ("NVIDIA H200", 989.5e12, 67e12),
        ("NVIDIA GH200 480GB", 989.5e12, 67e12),
        ("NVIDIA B200", 2250e12, 75e12),
        ("NVIDIA L4", 121e12, 30.3e12),
        ("NVIDIA L40S", 362.05e12, 91.6e12),
        ("NVIDIA A10G", 70e12, 35e12),
        ("NVIDIA A10", 125e12, 31.2e12),
        ("Tesla V100-SXM2-16GB", None, 15.7e12),
        ("Tesla V100-PCIE-32GB", None, 14e12),
        ("Tesla T4", None, 8.1e12),
        ("h100-pcie", 756.5e12, 51e12),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", None, None),
        ("Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", None, None),
        ("NVIDIA H1000", None, None),
        ("cpu", None, None),
        ("", None, None),
    ],
)
def test_peak_of_a_device(name: str, bf16: float | None, fp32: float | None) -> None:
    assert peak_flops(name, "bf16") == bf16
    assert peak_flops(name, "fp32") == fp32


def test_every_short_name_has_its_own_peak() -> None:
    assert all(peak_flops(name, "fp32") for name in DEVICE_NAMES)
    assert peak_flops("h200-nvl", "bf16") != peak_flops("h200", "bf16")
