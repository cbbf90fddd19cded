"""Bytes of a step: against the allocator's own record of a real step, and against sums done by hand."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from trainer.data.batches import Batch
from trainer.distributed import Ranks
from trainer.model.attention import AttentionKernel
from trainer.model.config import PRESETS, ModelConfig, preset_config
from trainer.model.memory import StepShape, count_parameters, peak_memory
from trainer.model.pretraining import BertForPretraining
from trainer.optimisation import build_optimizer
from trainer.stepping import Stepper

VOCAB_SIZE = 8192


def _batch(num_examples: int, length: int, num_masked: int) -> Batch:
    zeros = torch.zeros(num_examples, length, dtype=torch.int64)
    return Batch(
        input_ids=zeros + 7,
        segment_ids=zeros,
        attention_mask=torch.ones(num_examples, length, dtype=torch.bool),
        lengths=torch.full((num_examples,), length),
        masked_positions=torch.arange(num_masked),
        masked_ids=torch.full((num_masked,), 9),
        next_sentence_labels=torch.zeros(num_examples, dtype=torch.int64),
        num_tokens=num_examples * length,
    )


def _measure_peak(config: ModelConfig, shape: StepShape, num_examples: int) -> int:
    """Bytes that the second of two steps holds at most, from each allocation and release on the CPU."""
    kernel: AttentionKernel = "matmul" if shape.stores_scores else "sdpa"
    batch = _batch(num_examples, round(shape.num_positions / num_examples), round(shape.num_masked))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        with torch.device("meta"):
            model = BertForPretraining(config, attention=kernel)
        # Any values do, and drawing good ones takes longer than both steps.
        model.to_empty(device="cpu")
        for parameter in model.parameters():
            torch.nn.init.constant_(parameter, 0.01)
        model.encoder.recomputes_layers = shape.recomputes_layers
        optimiser = build_optimizer(model, learning_rate=1e-4)
        ranks = Ranks(rank=0, world_size=1, device=torch.device("cpu"))
        stepper = Stepper(model, optimiser, ranks, precision=shape.precision, seed=0, max_grad_norm=1.0)
        stepper.take(1, [batch], 1e-4)
        second_begins = time.time_ns()
        stepper.take(2, [batch], 1e-4)
    results = profiler.profiler.kineto_results
    changes = [(event.start_ns(), event.nbytes()) for event in results.events() if event.name() == "[memory]"]
    held = peak = 0
    for moment, num_bytes in sorted(changes, key=lambda change: change[0]):
        held += num_bytes
        if moment >= second_begins:
            peak = max(peak, held)
    return peak


_FP32 = StepShape(num_positions=0, num_pairs=0, num_masked=0, on_cpu=True)
_BF16 = replace(_FP32, precision="bf16", stores_scores=True)


@pytest.mark.parametrize(
    ("preset", "num_examples", "length", "dropout", "shape"),
    [
        pytest.param("mini", 4, 128, 0.0, _FP32, id="fp32"),
        pytest.param("mini", 4, 128, 0.1, replace(_FP32, stores_scores=True), id="fp32, dropout"),
        pytest.param("mini", 2, 512, 0.0, replace(_FP32, stores_scores=True), id="512, stored scores"),
        pytest.param("mini", 2, 512, 0.0, _FP32, id="512, fused"),
        pytest.param("mini", 4, 128, 0.0, _BF16, id="bf16"),
        pytest.param("mini", 2, 256, 0.1, _BF16, id="bf16, dropout"),
        pytest.param("small", 2, 128, 0.0, _FP32, id="few tokens: gradients weigh most"),
        pytest.param("small", 4, 128, 0.0, _BF16, id="few tokens in bf16"),
        pytest.param(
            "mini", 4, 128, 0.1, replace(_FP32, stores_scores=True, recomputes_layers=True), id="ac"
        ),
        pytest.param("mini", 2, 512, 0.0, replace(_BF16, recomputes_layers=True), id="bf16, ac"),
    ],
)
def test_within_three_percent_of_what_a_step_holds(
    preset: str, num_examples: int, length: int, dropout: float, shape: StepShape
) -> None:
    config = preset_config(preset, VOCAB_SIZE).model_copy(
        update={"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    )
    shape = replace(
        shape,
        num_positions=num_examples * length,
        num_pairs=num_examples * length**2,
        num_masked=num_examples * round(0.15 * length),
    )
    assert peak_memory(config, shape).total == pytest.approx(
        _measure_peak(config, shape, num_examples), rel=0.03
    )


@pytest.mark.parametrize("preset", PRESETS)
def test_parameters_are_those_of_the_model(preset: str) -> None:
    config = preset_config(preset, 1000)
    with torch.device("meta"):
        assert count_parameters(config) == BertForPretraining(config).num_parameters


def test_a_toy_by_hand() -> None:
    config = ModelConfig(
        vocab_size=1000,
        hidden_size=4,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=16,
    ).without_dropout()
    # 3 rows of 10 positions, 300 pairs, 6 masked positions; the logits outweigh all else.
    shape = StepShape(num_positions=30, num_pairs=300, num_masked=6, stores_scores=True)
    use = peak_memory(config, shape)
    # Tables of 1000, 16 and 2 rows and a norm; 4 square and 2 feed-forward matrices, their biases, 2 norms;
    # the masked-LM transform, its norm and 1000 biases; pooler; next-sentence head.
    parameters = 1020 * 4 + (4 * 20 + 40 + 36 + 16) + (20 + 8 + 1000) + 20 + 10
    assert (use.moment, use.weights, use.optimiser) == ("logits", 4 * parameters, 8 * parameters)
    assert use.gradients == use.weight_copies == use.temporaries == 0
    # Logits, their log-softmax and two gradients.
    assert use.logits == 4 * 6 * 1000 * 4
    assert use.attention_scores == 2 * 300 * 4
    # A layer: input, query, key, value, context, both sums before a norm, the first norm's output: 8 n d; two
    # n f; four numbers a position. Around it: the embedded sum with its norm's two numbers, the last output.
    # The head: four m d.
    layer = 30 * (8 * 4 + 2 * 8 + 4)
    assert use.activations == 4 * (layer + 30 * (2 * 4 + 2) + 4 * 6 * 4)
    assert use.total == use.weights + use.optimiser + use.logits + use.attention_scores + use.activations


def test_what_saves_memory_and_what_costs() -> None:
    config = preset_config("base", VOCAB_SIZE)
    shape = StepShape(num_positions=32 * 512, num_pairs=32 * 512**2, num_masked=32 * 77, stores_scores=True)
    plain = peak_memory(config, shape).total
    assert peak_memory(config, replace(shape, stores_scores=False)).total < 0.7 * plain
    assert peak_memory(config, replace(shape, recomputes_layers=True)).total < 0.5 * plain
    assert peak_memory(config, replace(shape, precision="bf16")).total < 0.7 * plain
    # A dropout mask is as wide as a number on a CPU, and one byte elsewhere.
    assert peak_memory(config, replace(shape, on_cpu=True)).total > 1.1 * plain
    gradients = 4 * count_parameters(config)
    assert peak_memory(config, replace(shape, accumulates=True)).total == plain + gradients
