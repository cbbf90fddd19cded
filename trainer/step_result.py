"""What a global step saw, and how it comes from the device to this process without anybody waiting.

In: a step's sums, a small tensor on the device. Out: a `StepResult` of plain numbers, once somebody asks.
Deterministic: float64 carries counts and losses without rounding them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class StepResult:
    """A global step over all lanes and ranks.

    The names are in the order in which the numbers travel.

    Attributes:
        num_examples: examples.
        num_tokens: tokens that are no padding.
        sum_squared_lengths: over examples; what the work of attention is proportional to.
        num_masked_tokens: masked positions.
        num_labelled: pairs with a next-sentence label.
        num_stop_wishes: ranks that were asked to stop before this step.
        masked_lm_loss: mean over masked positions in nats.
        next_sentence_loss: mean over labelled pairs in nats.
        num_masked_correct: masked positions whose token the model would have guessed.
        num_next_sentence_correct: pairs whose label it would have guessed.
        gradient_norm: before clipping.
        is_skipped: the losses or the gradient were not finite, and the weights were left as they were.
    """

    num_examples: int
    num_tokens: int
    sum_squared_lengths: int
    num_masked_tokens: int
    num_labelled: int
    num_stop_wishes: int
    masked_lm_loss: float
    next_sentence_loss: float
    num_masked_correct: int
    num_next_sentence_correct: int
    gradient_norm: float
    is_skipped: bool

    @classmethod
    def from_numbers(cls, numbers: list[float]) -> StepResult:
        """From floats in the order of the attributes."""
        examples, tokens, squares, masked, labelled, wishes = map(int, numbers[:6])
        masked_lm_loss, next_sentence_loss, masked_correct, next_correct, norm, skipped = numbers[6:]
        return cls(
            num_examples=examples,
            num_tokens=tokens,
            sum_squared_lengths=squares,
            num_masked_tokens=masked,
            num_labelled=labelled,
            num_stop_wishes=wishes,
            masked_lm_loss=masked_lm_loss,
            next_sentence_loss=next_sentence_loss,
            num_masked_correct=int(masked_correct),
            num_next_sentence_correct=int(next_correct),
            gradient_norm=norm,
            is_skipped=skipped > 0,
        )


class PendingResult:
    """A step's result on its way.

    Args:
        numbers: float64 [12] on the device, in the order of `StepResult`.
    """

    def __init__(self, numbers: Tensor) -> None:
        self._numbers = numbers
        self._arrival: torch.cuda.Event | None = None
        if numbers.is_cuda:
            self._numbers = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
            self._numbers.copy_(numbers, non_blocking=True)
            self._arrival = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrival.record()

    def read(self) -> StepResult:
        """The result; waits until the device has come to the end of this step."""
        if self._arrival is not None:
            self._arrival.synchronize()
        return StepResult.from_numbers(self._numbers.tolist())
