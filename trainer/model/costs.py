"""What a training step costs in arithmetic, and what a device could do at most.

In: the sizes of a model and the counts of a batch. Out: floating-point operations, where a multiplication
with its addition counts as two. Pure arithmetic, without torch; deterministic.

Only matrix products are counted, as model FLOPs utilisation is defined (Chowdhery et al. 2022, "PaLM",
appendix B): element-wise work, normalisation, softmax, look-ups of embeddings and the optimiser count
nothing, nor does padding, nor what is computed twice (activation checkpointing, an attention kernel that
recomputes its scores). With n tokens in sequences of lengths l, m masked positions, hidden size d,
intermediate size f and vocabulary V, a forward pass takes

    projections of query, key, value and context    8 n d^2        a layer
    attention scores and context                    4 d sum(l^2)   a layer
    feed-forward part                               4 n d f        a layer
    masked-LM transform and decoder                 2 m d (d + V)
    pooler and next-sentence head                   2 d (d + 2)    an example

and the backward pass twice as much: each product has a gradient for either factor.
"""

from __future__ import annotations

import re
from dataclasses import astuple, dataclass
from typing import Literal

from trainer.model.config import ModelConfig

# Forward and backward passes over one forward pass.
TRAINING_PASSES = 3


@dataclass(frozen=True)
class ForwardFlops:
    """Floating-point operations of a forward pass, by part of the model.

    Attributes:
        attention_projections: query, key, value and output of attention: n d^2.
        attention_scores: products of queries with keys and of probabilities with values: l^2 d.
        feed_forward: both of its products: n d f.
        masked_lm_head: transform and decoder at masked positions: m d (d + V).
        next_sentence_head: pooler and next-sentence head, once an example.
    """

    attention_projections: float
    attention_scores: float
    feed_forward: float
    masked_lm_head: float
    next_sentence_head: float

    @property
    def total(self) -> float:
        """All parts together."""
        return float(sum(astuple(self)))

    def times(self, factor: float) -> ForwardFlops:
        """Every part so many times over."""
        return ForwardFlops(*(factor * part for part in astuple(self)))


def forward_flops(
    config: ModelConfig,
    *,
    num_tokens: float,
    sum_squared_lengths: float,
    num_masked: float,
    num_examples: float,
) -> ForwardFlops:
    """Floating-point operations of a forward pass by part; see the formulas above.

    Expected values may be fractions.

    Args:
        config: the sizes of the model.
        num_tokens: tokens that are no padding, over all examples.
        sum_squared_lengths: the squares of the examples' lengths, added up; with padding left out, since a
            token attends only to those of its own example.
        num_masked: positions at which the masked-LM head runs.
        num_examples: examples, each with one next-sentence score.
    """
    hidden, layers = config.hidden_size, config.num_hidden_layers
    return ForwardFlops(
        attention_projections=8.0 * num_tokens * hidden * hidden * layers,
        attention_scores=4.0 * sum_squared_lengths * hidden * layers,
        feed_forward=4.0 * num_tokens * hidden * config.intermediate_size * layers,
        masked_lm_head=2.0 * num_masked * hidden * (hidden + config.vocab_size),
        next_sentence_head=2.0 * num_examples * hidden * (hidden + 2),
    )


def training_flops(
    config: ModelConfig,
    *,
    num_tokens: float,
    sum_squared_lengths: float,
    num_masked: float,
    num_examples: float,
) -> float:
    """Model FLOPs of a forward and a backward pass; the arguments are those of `forward_flops`.

    Model FLOPs utilisation is this figure over seconds, devices and `peak_flops`.
    """
    flops = forward_flops(
        config,
        num_tokens=num_tokens,
        sum_squared_lengths=sum_squared_lengths,
        num_masked=num_masked,
        num_examples=num_examples,
    )
    return TRAINING_PASSES * flops.total


@dataclass(frozen=True)
class _Peak:
    """Dense peaks in TFLOPS. `bf16` is None where the device has no bfloat16 units."""

    fp32: float
    bf16: float | None


# Dense figures (without 2:4 sparsity, half of what data sheets like to print) of bfloat16 matrix units with
# float32 sums, and of plain float32, for torch leaves TF32 off unless it is asked for. The first model
# found in a device's name counts, so that a variant stands before its family.
_PEAKS: tuple[tuple[str, _Peak], ...] = (
    # NVIDIA Blackwell: data sheets of GB200 NVL72 (per GPU) and HGX B200.
    ("gb200", _Peak(fp32=80.0, bf16=2500.0)),
    ("b200", _Peak(fp32=75.0, bf16=2250.0)),
    # NVIDIA GH200 data sheet.
    ("gh200", _Peak(fp32=67.0, bf16=989.5)),
    # NVIDIA H200 data sheet: SXM and NVL.
    ("h200 nvl", _Peak(fp32=60.0, bf16=835.5)),
    ("h200", _Peak(fp32=67.0, bf16=989.5)),
    # NVIDIA H100 data sheet: NVL, PCIe, SXM (whose name in torch ends in HBM3).
    ("h100 nvl", _Peak(fp32=60.0, bf16=835.5)),
    ("h100 pcie", _Peak(fp32=51.0, bf16=756.5)),
    ("h100", _Peak(fp32=67.0, bf16=989.5)),
    # NVIDIA A100 data sheet: the same for SXM and PCIe, 40 and 80 GB.
    ("a100", _Peak(fp32=19.5, bf16=312.0)),
    # NVIDIA L40S, L40 and L4 data sheets.
    ("l40s", _Peak(fp32=91.6, bf16=362.05)),
    ("l40", _Peak(fp32=90.5, bf16=181.05)),
    ("l4", _Peak(fp32=30.3, bf16=121.0)),
    # NVIDIA A10G data sheet for AWS; the A10's own.
    ("a10g", _Peak(fp32=35.0, bf16=70.0)),
    ("a10", _Peak(fp32=31.2, bf16=125.0)),
    # NVIDIA A40 and A30 data sheets.
    ("a40", _Peak(fp32=37.4, bf16=149.7)),
    ("a30", _Peak(fp32=10.3, bf16=165.0)),
    # NVIDIA V100 data sheet: its matrix units know float16 alone, in which nothing is trained here.
    ("v100s", _Peak(fp32=16.4, bf16=None)),
    ("v100 pcie", _Peak(fp32=14.0, bf16=None)),
    ("v100", _Peak(fp32=15.7, bf16=None)),
    # NVIDIA T4 data sheet: as for the V100.
    ("t4", _Peak(fp32=8.1, bf16=None)),
)

# What `clozeline plan --device` is answered for, beside `cpu`.
DEVICE_NAMES = tuple(model.replace(" ", "-") for model, _ in _PEAKS)


def peak_flops(device_name: str, precision: Literal["fp32", "bf16"]) -> float | None:
    """What a device does at most, in floating-point operations a second, without sparsity.

    Args:
        device_name: as `torch.cuda.get_device_name` gives it (`NVIDIA H100 80GB HBM3`), or a short name
            (`h100-pcie`).
        precision: of the matrix products.

    Returns:
        None where no figure is known: a processor, a card that is not in the table or computes only on a part
        of itself (MIG), or one without units for this precision.
    """
    words = set(re.findall("[a-z0-9]+", device_name.lower()))
    if "mig" in words:
        return None
    for model, peak in _PEAKS:
        # All words of the model, in any place: `A100 80GB PCIe`, `V100-PCIE-32GB` and `v100-pcie` alike.
        if words.issuperset(model.split()):
            teraflops = peak.fp32 if precision == "fp32" else peak.bf16
            return None if teraflops is None else teraflops * 1e12
    return None
