from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from trainer.data.batches import NO_LABEL, Batch
from trainer.distributed import Ranks
from trainer.model.config import ModelConfig
from trainer.model.pretraining import BertForPretraining
from trainer.optimisation import build_optimizer
from trainer.stepping import Stepper, StepResult, dropout_seed

RANKS = Ranks(rank=0, world_size=1, device=torch.device("cpu"))


def make_stepper(dropout: float = 0.0, **values: Any) -> Stepper:
    config = ModelConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    model = BertForPretraining(config, seed=1)
    optimiser = build_optimizer(model, learning_rate=1e-3)
    return Stepper(model, optimiser, RANKS, **{"precision": "fp32", "seed": 0, "max_grad_norm": 1.0} | values)


def make_batch(lengths: list[int], masked_counts: list[int], labels: list[int], seed: int = 0) -> Batch:
    draw = np.random.default_rng(seed)
    width = max(lengths)
    lengths_B = torch.tensor(lengths)
    positions = [
        row * width + position
        for row, (length, count) in enumerate(zip(lengths, masked_counts, strict=True))
        for position in sorted(draw.choice(length, count, replace=False).tolist())
    ]
    return Batch(
        input_ids=torch.from_numpy(draw.integers(1, 40, (len(lengths), width))),
        segment_ids=torch.zeros(len(lengths), width, dtype=torch.int64),
        attention_mask=torch.arange(width) < lengths_B[:, None],
        lengths=lengths_B,
        masked_positions=torch.tensor(positions),
        masked_ids=torch.from_numpy(draw.integers(1, 40, len(positions))),
        next_sentence_labels=torch.tensor(labels),
        num_tokens=sum(lengths),
    )


def rows(batch: Batch, first: int, end: int) -> Batch:
    """Some rows of a batch, as a batch of the same width."""
    width = batch.input_ids.shape[1]
    inside = (batch.masked_positions >= first * width) & (batch.masked_positions < end * width)
    return Batch(
        input_ids=batch.input_ids[first:end],
        segment_ids=batch.segment_ids[first:end],
        attention_mask=batch.attention_mask[first:end],
        lengths=batch.lengths[first:end],
        masked_positions=batch.masked_positions[inside] - first * width,
        masked_ids=batch.masked_ids[inside],
        next_sentence_labels=batch.next_sentence_labels[first:end],
        num_tokens=int(batch.lengths[first:end].sum()),
    )


BATCH = make_batch([9, 12, 5, 12, 7], [1, 4, 1, 3, 2], [0, 1, NO_LABEL, 1, 0])


def take(microbatches: list[Batch], **values: Any) -> tuple[StepResult, list[torch.Tensor]]:
    stepper = make_stepper(**values)
    result = stepper.take(1, microbatches, 1e-3)
    return result, [parameter.detach() for parameter in stepper.model.parameters()]


@pytest.mark.parametrize("cuts", [[0, 1, 5], [0, 3, 5], [0, 1, 2, 3, 4, 5]], ids=str)
def test_loss_and_weights_do_not_depend_on_how_a_batch_is_cut(cuts: list[int]) -> None:
    whole, weights = take([BATCH])
    pieces = [rows(BATCH, first, end) for first, end in pairwise(cuts)]
    cut, cut_weights = take(pieces)
    torch.testing.assert_close(cut.losses, whole.losses, atol=1e-6, rtol=0)
    torch.testing.assert_close(cut.gradient_norm, whole.gradient_norm, atol=1e-6, rtol=0)
    for ours, theirs in zip(weights, cut_weights, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
    assert (cut.num_examples, cut.num_tokens, cut.num_masked_tokens, cut.num_labelled) == (5, 45, 11, 4)


def test_the_losses_are_the_means_over_masked_tokens_and_labelled_pairs() -> None:
    stepper = make_stepper()
    with torch.no_grad():
        output = stepper.model.eval()(BATCH)
        log_probabilities = output.masked_lm_logits.log_softmax(-1)
        masked = -log_probabilities[torch.arange(11), BATCH.masked_ids].mean()
        labelled = BATCH.next_sentence_labels != NO_LABEL
        chances = output.next_sentence_logits.log_softmax(-1)[labelled]
        pairs = -chances[torch.arange(4), BATCH.next_sentence_labels[labelled]].mean()
    result = stepper.take(1, [BATCH], 1e-3)
    assert result.losses.tolist() == pytest.approx([masked.item(), pairs.item()], abs=1e-6)


def test_without_labels_the_next_sentence_loss_is_zero() -> None:
    result, _ = take([make_batch([8, 8], [2, 2], [NO_LABEL, NO_LABEL])])
    assert result.losses[1].item() == 0.0
    assert result.num_labelled == 0


def test_dropout_depends_on_seed_step_and_lane_and_on_nothing_before() -> None:
    def first_loss(step: int = 1, lane: int = 0, seed: int = 0, drawn_before: int = 0) -> float:
        torch.rand(drawn_before)
        stepper = make_stepper(dropout=0.3, seed=seed)
        quiet = make_batch([4], [1], [0])
        microbatches = [quiet] * lane + [BATCH]
        seeds: list[int] = []
        manual_seed = torch.manual_seed
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("torch.manual_seed", lambda value: (seeds.append(value), manual_seed(value))[1])
            result = stepper.take(step, microbatches, 1e-3)
        assert seeds == [dropout_seed(seed, step, index) for index in range(lane + 1)]
        return float(result.losses[0])

    assert first_loss() == first_loss(drawn_before=100)
    assert len({first_loss(), first_loss(step=2), first_loss(seed=1)}) == 3
    assert len({dropout_seed(s, n, lane) for s in (0, 1) for n in (1, 2, 12) for lane in (0, 1, 2)}) == 18


def test_clipping_bounds_the_gradient_and_zero_leaves_it() -> None:
    clipped, clipped_weights = take([BATCH], max_grad_norm=1e-9)
    free, free_weights = take([BATCH], max_grad_norm=0.0)
    assert clipped.gradient_norm == free.gradient_norm > 0.1
    start = list(make_stepper().model.parameters())
    # AdamW divides the gradient by its own size plus 1e-6: a tiny one moves the weights far less.
    moved = [
        max((after - before).abs().max().item() for before, after in zip(start, weights, strict=True))
        for weights in (clipped_weights, free_weights)
    ]
    assert moved[0] < 1e-5 < 9e-4 < moved[1]


def test_a_wish_to_stop_is_passed_on() -> None:
    stepper = make_stepper()
    assert not stepper.take(1, [BATCH], 1e-3).stop_requested
    assert stepper.take(2, [BATCH], 1e-3, stop_requested=True).stop_requested
