from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trainer.data.batches import NO_LABEL, Batch
from trainer.data.dataset import open_dataset
from trainer.data.loader import StreamingLoader
from trainer.distributed import Ranks
from trainer.model.config import ModelConfig
from trainer.model.pretraining import BertForPretraining
from trainer.optimisation import build_optimizer
from trainer.step_result import PendingResult, StepResult
from trainer.stepping import Stepper, dropout_seed

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
    result = stepper.take(1, microbatches, 1e-3).read()
    return result, [parameter.detach() for parameter in stepper.model.parameters()]


@pytest.mark.parametrize("cuts", [[0, 1, 5], [0, 3, 5], [0, 1, 2, 3, 4, 5]], ids=str)
def test_loss_and_weights_do_not_depend_on_how_a_batch_is_cut(cuts: list[int]) -> None:
    whole, weights = take([BATCH])
    pieces = [rows(BATCH, first, end) for first, end in pairwise(cuts)]
    cut, cut_weights = take(pieces)
    assert cut.masked_lm_loss == pytest.approx(whole.masked_lm_loss, abs=1e-6)
    assert cut.next_sentence_loss == pytest.approx(whole.next_sentence_loss, abs=1e-6)
    assert cut.gradient_norm == pytest.approx(whole.gradient_norm, abs=1e-6)
    for ours, theirs in zip(weights, cut_weights, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
    assert (cut.num_examples, cut.num_tokens, cut.num_masked_tokens, cut.num_labelled) == (5, 45, 11, 4)
    assert cut.sum_squared_lengths == 9**2 + 12**2 + 5**2 + 12**2 + 7**2
    assert (cut.num_stop_wishes, cut.is_skipped) == (0, False)


def test_the_losses_are_the_means_over_masked_tokens_and_labelled_pairs() -> None:
    stepper = make_stepper()
    with torch.no_grad():
        output = stepper.model.eval()(BATCH)
        log_probabilities = output.masked_lm_logits.log_softmax(-1)
        masked = -log_probabilities[torch.arange(11), BATCH.masked_ids].mean()
        labelled = BATCH.next_sentence_labels != NO_LABEL
        chances = output.next_sentence_logits.log_softmax(-1)[labelled]
        pairs = -chances[torch.arange(4), BATCH.next_sentence_labels[labelled]].mean()
        masked_correct = (log_probabilities.argmax(-1) == BATCH.masked_ids).sum().item()
        pairs_correct = (chances.argmax(-1) == BATCH.next_sentence_labels[labelled]).sum().item()
    result = stepper.take(1, [BATCH], 1e-3).read()
    losses = [result.masked_lm_loss, result.next_sentence_loss]
    assert losses == pytest.approx([masked.item(), pairs.item()], abs=1e-6)
    assert (result.num_masked_correct, result.num_next_sentence_correct) == (masked_correct, pairs_correct)


def test_without_labels_the_next_sentence_loss_is_zero() -> None:
    result, _ = take([make_batch([8, 8], [2, 2], [NO_LABEL, NO_LABEL])])
    assert result.next_sentence_loss == 0.0
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
            result = stepper.take(step, microbatches, 1e-3).read()
        assert seeds == [dropout_seed(seed, step, index) for index in range(lane + 1)]
        return result.masked_lm_loss

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
    assert stepper.take(1, [BATCH], 1e-3).read().num_stop_wishes == 0
    assert stepper.take(2, [BATCH], 1e-3, wants_stop=True).read().num_stop_wishes == 1


def snapshot(stepper: Stepper) -> list[torch.Tensor]:
    """Weights and the optimiser's state."""
    state = stepper.optimiser.state
    tensors = [value for parameter in stepper.model.parameters() for value in state[parameter].values()]
    return [tensor.detach().clone() for tensor in (*stepper.model.parameters(), *tensors)]


def spoil(stepper: Stepper, where: str) -> Callable[[], None]:
    """Make the loss or only the gradient of the next step not finite; what is returned mends it."""
    if where == "loss":
        bias = stepper.model.masked_lm_head.bias
        before = bias.detach().clone()
        with torch.no_grad():
            bias[3] = torch.nan

        def mend() -> None:
            with torch.no_grad():
                bias.copy_(before)

        return mend
    return stepper.model.masked_lm_head.bias.register_hook(lambda gradient: gradient * torch.inf).remove


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_step_that_is_not_finite_leaves_all_as_it_was(where: str, optimizer: str) -> None:
    stepper, untouched = make_stepper(), make_stepper()
    for one in (stepper, untouched):
        one.optimiser = build_optimizer(one.model, learning_rate=1e-3, kind=optimizer)  # type: ignore[arg-type]
        one.take(1, [BATCH], 1e-3)
    mend = spoil(stepper, where)
    result = stepper.take(2, [BATCH], 1e-3).read()
    mend()
    assert result.is_skipped
    assert math.isfinite(result.masked_lm_loss) == (where == "gradient")
    assert not math.isfinite(result.gradient_norm)
    for one in (stepper, untouched):
        assert not one.take(3, [BATCH], 1e-3).read().is_skipped
    pairs = zip(snapshot(stepper), snapshot(untouched), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)


@pytest.mark.parametrize("row_length", [None, 32], ids=["padded", "packed"])
def test_nothing_in_a_step_waits_for_the_device(
    monkeypatch: pytest.MonkeyPatch, tiny_dataset_path: Path, row_length: int | None
) -> None:
    # A tensor of the meta device has no values: whatever would wait for one fails.
    with pytest.raises(RuntimeError, match="meta"):
        torch.ones(1, device="meta").item()
    # There is no autocast for it, nor the question whether it is on.
    monkeypatch.setattr("trainer.stepping.compute_in", lambda precision, device: nullcontext())
    monkeypatch.setattr("torch.is_autocast_enabled", lambda device_type: False)
    stepper = make_stepper(dropout=0.1)
    stepper.model.to("meta")
    # AdamW's fused kernel knows no such device.
    stepper.optimiser = build_optimizer(stepper.model, learning_rate=0.1, kind="lamb")
    stepper._ranks = Ranks(rank=0, world_size=1, device=torch.device("meta"))
    with StreamingLoader(
        *(open_dataset(str(tiny_dataset_path)), "train"),
        lanes=2,
        microbatch_size=4,
        row_length=row_length,
        seed=0,
        prefetch_steps=0,
        fixed_sizes=row_length is not None,
    ) as loader:
        pending = stepper.take(1, next(loader), 1e-3)
    assert isinstance(pending, PendingResult)
    with pytest.raises(NotImplementedError, match="meta"):
        pending.read()


def test_a_result_keeps_counts_and_losses_to_the_last_bit() -> None:
    result = StepResult(2**50 + 1, 3, 2**52, 7, 5, 1, 0.1 + 0.2, 1e-300, 6, 4, 3.0, True)
    numbers = [float(value) for value in dataclasses.astuple(result)]
    assert PendingResult(torch.tensor(numbers, dtype=torch.float64)).read() == result
