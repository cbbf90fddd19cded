"""One global step: from the microbatches of all lanes to changed weights.

In: this rank's microbatches, one a lane. Out: the weights after the optimiser's step, and the step's result.
The loss is the mean over the masked tokens of the whole step plus the mean over its labelled pairs, whichever
lanes, ranks and microbatches they lie in; so it does not depend on how a batch is cut. A step whose losses or
gradient are not finite changes nothing, which the device itself decides. Nothing here waits for a GPU.
Deterministic on the same hardware: dropout draws from a generator seeded by (seed, step, lane) before each
microbatch, so a resumed run needs no generator's state, and a lane draws the same on any rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from schemas.seeding import RandomStream
from trainer.data.batches import NO_LABEL, Batch
from trainer.distributed import Ranks
from trainer.model.pretraining import BertForPretraining, PretrainingOutput
from trainer.optimisation import clip_gradients, set_learning_rate
from trainer.precision import Precision, compute_in
from trainer.step_result import PendingResult

# Where the two counts stand in `_count` that losses are divided by.
_DIVISORS = slice(3, 5)


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
        has_fixed_sizes: all batches have the same shapes, so that one compilation is enough.
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
        has_fixed_sizes: bool = False,
    ) -> None:
        self.model = model
        self.optimiser = optimiser
        self._ranks = ranks
        self._precision: Precision = precision
        self._seed = seed
        self._max_grad_norm = max_grad_norm or float("inf")
        self._forward: Callable[[Batch], PretrainingOutput] = model
        if compile_model:
            self._forward = torch.compile(model, dynamic=not has_fixed_sizes)

    def take(
        self,
        step: int,
        microbatches: Sequence[Batch],
        learning_rate: float,
        wants_stop: bool = False,
    ) -> PendingResult:
        """Take a step.

        Args:
            step: its number, from 1.
            microbatches: of this rank's lanes, in the order of lanes.
            learning_rate: of this step.
            wants_stop: whether this rank was asked to stop; every rank learns of it from the result.
        """
        counts = self._ranks.sum(self._count(microbatches, wants_stop))
        divisors = counts[_DIVISORS].clamp(min=1)
        sums = torch.zeros(4, dtype=torch.float64, device=self._ranks.device)
        self.model.train()
        for index, batch in enumerate(microbatches):
            lane = self._ranks.rank + index * self._ranks.world_size
            torch.manual_seed(dropout_seed(self._seed, step, lane))
            sums += self._accumulate(batch, divisors)
        self._ranks.sum(sums)
        self._ranks.sum_gradients(self.model.parameters())
        gradient_norm = clip_gradients(self.model, self._max_grad_norm).double()
        losses = sums[:2] / divisors
        measured = torch.cat([losses, sums[2:], gradient_norm.reshape(1)])
        is_bad = (~torch.isfinite(measured)).any()
        set_learning_rate(self.optimiser, learning_rate)
        self._update_unless(is_bad)
        return PendingResult(torch.cat([counts, measured, is_bad.double().reshape(1)]))

    def _count(self, microbatches: Sequence[Batch], wants_stop: bool) -> Tensor:
        """This rank's part of the first six numbers of a `StepResult`."""
        on_gpu = self._ranks.device.type == "cuda"
        counts = torch.tensor(
            [
                sum(batch.num_examples for batch in microbatches),
                sum(batch.num_tokens for batch in microbatches),
                sum(int(batch.lengths.square().sum()) for batch in microbatches),
                sum(batch.num_masked_tokens for batch in microbatches),
                sum(int((batch.next_sentence_labels != NO_LABEL).sum()) for batch in microbatches),
                wants_stop,
            ],
            dtype=torch.float64,
            # From other memory a copy to a GPU waits for all that the GPU was given before.
            pin_memory=on_gpu,
        )
        return counts.to(self._ranks.device, non_blocking=on_gpu)

    def _accumulate(self, batch: Batch, divisors: Tensor) -> Tensor:
        moved = batch.to(self._ranks.device, non_blocking=True)
        with compute_in(self._precision, self._ranks.device):
            output = self._forward(moved)
            losses = torch.stack([output.masked_lm_loss_sum, output.next_sentence_loss_sum])
        (losses / divisors.to(losses.dtype)).sum().backward()  # type: ignore[no-untyped-call]
        correct = torch.stack([output.num_masked_correct, output.num_next_sentence_correct])
        return torch.cat([losses.detach().double(), correct.double()])

    def _update_unless(self, is_bad: Tensor) -> None:
        optimiser = self.optimiser
        # The condition under which gradient scaling leaves an update out (torch.amp.GradScaler): read on the
        # device, by the kernels that update; moments and step counts stay as they were too.
        if getattr(optimiser, "_step_supports_amp_scaling", False):
            optimiser.found_inf = is_bad.float()  # type: ignore[attr-defined]
            optimiser.step()
        elif not bool(is_bad):
            optimiser.step()
        optimiser.zero_grad(set_to_none=True)


def dropout_seed(seed: int, step: int, lane: int) -> int:
    """The seed of the generator that dropout draws from in one microbatch: 63 bits."""
    return int(RandomStream(seed, "dropout", f"{step}/{lane}").words(1)[0]) >> 1
