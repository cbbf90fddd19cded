"""Where a training loop stands between two steps, as JSON in a checkpoint.

In: results of steps. Out: sums and counts that a resumed run takes up, so that its reports are those of a run
that was never interrupted. Deterministic: sums are taken in the order of the steps in Python floats, which
JSON keeps to the last bit.
"""

from __future__ import annotations

import math
from typing import Any

from pydantic import BaseModel, ConfigDict

from schemas.errors import ClozelineError
from trainer.stepping import StepResult

Metrics = dict[str, float | int | None]


class LossWindow(BaseModel):
    """Sums over the steps since the last logged one."""

    model_config = ConfigDict(extra="forbid")

    num_steps: int = 0
    masked_lm_loss: float = 0.0
    next_sentence_loss: float = 0.0
    gradient_norm: float = 0.0
    has_labels: bool = False


class LoopState(BaseModel):
    """What the loop knows besides the weights and the optimiser's state.

    Attributes:
        step: steps taken.
        num_examples: examples seen, an example counted each time.
        num_tokens: tokens seen that are no padding.
        num_masked_tokens: masked positions predicted.
        seconds: spent on training steps, in all processes of the run's life.
        window: sums for the next line of metrics.
        last_metrics: the last line of metrics that had a loss.
        first_evaluation: on held-out examples, before the first step.
        last_evaluation: the latest.
        stream: the position in the data.
    """

    model_config = ConfigDict(extra="forbid")

    step: int = 0
    num_examples: int = 0
    num_tokens: int = 0
    num_masked_tokens: int = 0
    seconds: float = 0.0
    window: LossWindow = LossWindow()
    last_metrics: Metrics | None = None
    first_evaluation: Metrics | None = None
    last_evaluation: Metrics | None = None
    stream: dict[str, Any] | None = None

    def add_losses(self, step: int, result: StepResult) -> None:
        """Add a step's losses to the window; waits for the device.

        Raises:
            ClozelineError: one of them is not a finite number.
        """
        masked_lm_loss, next_sentence_loss = result.losses.tolist()
        gradient_norm = float(result.gradient_norm)
        for name, value in (
            ("masked-LM loss", masked_lm_loss),
            ("next-sentence loss", next_sentence_loss),
            ("norm of the gradient", gradient_norm),
        ):
            if not math.isfinite(value):
                raise ClozelineError(
                    f"Training diverged: the {name} of step {step} is {value}.\nTrain anew "
                    f"with a lower --learning-rate or more --warmup-steps."
                )
        self.window.num_steps += 1
        self.window.masked_lm_loss += masked_lm_loss
        self.window.next_sentence_loss += next_sentence_loss
        self.window.gradient_norm += gradient_norm
        self.window.has_labels |= result.num_labelled > 0

    def add_counts(self, result: StepResult) -> None:
        """Count what a step saw."""
        self.step += 1
        self.num_examples += result.num_examples
        self.num_tokens += result.num_tokens
        self.num_masked_tokens += result.num_masked_tokens

    def close_window(self) -> Metrics:
        """The mean losses of the window, as they stand in a line of metrics; a new window begins."""
        window, self.window = self.window, LossWindow()
        masked_lm_loss = window.masked_lm_loss / window.num_steps
        next_sentence_loss = window.next_sentence_loss / window.num_steps
        return {
            "loss": masked_lm_loss + next_sentence_loss,
            "masked_lm_loss": masked_lm_loss,
            "next_sentence_loss": next_sentence_loss if window.has_labels else None,
            "gradient_norm": window.gradient_norm / window.num_steps,
        }
