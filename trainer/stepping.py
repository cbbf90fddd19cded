"""One global step: from the microbatches of all lanes to changed weights.

In: this rank's microbatches, one a lane. Out: the weights after an AdamW step, and the step's losses. The
loss is the mean over the masked tokens of the whole step plus the mean over its labelled pairs, whichever
lanes, ranks and microbatches they lie in; so it does not depend on how a batch is cut. Deterministic on the
same hardware: dropout draws from a generator seeded by (seed, step, lane) before each microbatch, so a
resumed run needs no generator's state, and a lane draws the same on any rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from schemas.seeding import RandomStream
from trainer.data.batches import NO_LABEL, Batch
from trainer.distributed import Ranks
from trainer.model.pretraining import BertForPretraining, PretrainingOutput
from trainer.optimisation import clip_gradients, set_learning_rate
from trainer.precision import Precision, compute_in


@dataclass(frozen=True)
class StepResult:
    """What a global step saw, over all lanes and ranks.

    Attributes:
        losses: float64 [2] on the device, not waited for: mean masked-LM and mean next-sentence loss in nats.
        gradient_norm: float scalar on the device, before clipping.
        num_examples: examples.
        num_tokens: tokens that are no padding.
        num_masked_tokens: masked positions.
        num_labelled: pairs with a next-sentence label.
        stop_requested: whether any rank was asked to stop before this step.
    """

    losses: Tensor
    gradient_norm: Tensor
    num_examples: int
    num_tokens: int
    num_masked_tokens: int
    num_labelled: int
    stop_requested: bool


class Stepper:
    """Takes global steps on a model and its optimiser.

    Args:
        model: on the rank's device.
        optimiser: over its parameters.
        ranks: this process and the others.
        precision: what the forward pass computes in.
        seed: decides dropout.
        max_grad_norm: the gradient is clipped to this norm; 0 for no clipping.
        compile_model: compile the forward and backward pass.
    """

    def __init__(
        self,
        model: BertForPretraining,
        optimiser: torch.optim.Optimizer,
        ranks: Ranks,
        *,
        precision: Precision,
        seed: int,
        max_grad_norm: float,
        compile_model: bool = False,
    ) -> None:
        self.model = model
        self.optimiser = optimiser
        self._ranks = ranks
        self._precision: Precision = precision
        self._seed = seed
        self._max_grad_norm = max_grad_norm or float("inf")
        self._forward: Callable[[Batch], PretrainingOutput] = model
        if compile_model:
            self._forward = torch.compile(model, dynamic=True)

    def take(
        self,
        step: int,
        microbatches: Sequence[Batch],
        learning_rate: float,
        stop_requested: bool = False,
    ) -> StepResult:
        """Take a step.

        Args:
            step: its number, from 1.
            microbatches: of this rank's lanes, in the order of lanes.
            learning_rate: of this step.
            stop_requested: whether this rank was asked to stop; every rank learns of it.
        """
        counts = self._count(microbatches, stop_requested)
        num_examples, num_tokens, num_masked, num_labelled, num_stops = counts
        scale = torch.tensor([max(1, num_masked), max(1, num_labelled)], dtype=torch.float64)
        scale = scale.to(self._ranks.device)
        sums = torch.zeros(2, dtype=torch.float64, device=self._ranks.device)
        self.model.train()
        for index, batch in enumerate(microbatches):
            lane = self._ranks.rank + index * self._ranks.world_size
            torch.manual_seed(dropout_seed(self._seed, step, lane))
            sums += self._accumulate(batch, scale)
        self._ranks.sum(sums)
        self._ranks.sum_gradients(self.model.parameters())
        gradient_norm = clip_gradients(self.model, self._max_grad_norm)
        set_learning_rate(self.optimiser, learning_rate)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return StepResult(
            losses=sums / scale,
            gradient_norm=gradient_norm,
            num_examples=num_examples,
            num_tokens=num_tokens,
            num_masked_tokens=num_masked,
            num_labelled=num_labelled,
            stop_requested=num_stops > 0,
        )

    def _count(self, microbatches: Sequence[Batch], stop_requested: bool) -> list[int]:
        labels = [batch.next_sentence_labels for batch in microbatches]
        mine = [
            sum(batch.num_examples for batch in microbatches),
            sum(batch.num_tokens for batch in microbatches),
            sum(batch.num_masked_tokens for batch in microbatches),
            sum(int((one != NO_LABEL).sum()) for one in labels),
            int(stop_requested),
        ]
        if self._ranks.world_size == 1:
            return mine
        summed: list[Any] = self._ranks.sum(torch.tensor(mine, device=self._ranks.device)).tolist()
        return [int(count) for count in summed]

    def _accumulate(self, batch: Batch, scale: Tensor) -> Tensor:
        moved = batch.to(self._ranks.device, non_blocking=True)
        with compute_in(self._precision, self._ranks.device):
            output = self._forward(moved)
            sums = torch.stack([output.masked_lm_loss_sum, output.next_sentence_loss_sum])
        (sums / scale.to(sums.dtype)).sum().backward()  # type: ignore[no-untyped-call]
        return sums.detach().double()


def dropout_seed(seed: int, step: int, lane: int) -> int:
    """The seed of the generator that dropout draws from in one microbatch: 63 bits."""
    return int(RandomStream(seed, "dropout", f"{step}/{lane}").words(1)[0]) >> 1
