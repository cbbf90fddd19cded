"""Where a training loop stands between two steps, as JSON in a checkpoint.

In: results of steps. Out: sums and counts that a resumed run takes up, so that its reports are those of a run
that was never interrupted. Deterministic: sums are taken in the order of the steps in Python floats, which
JSON keeps to the last bit.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from trainer.step_result import StepResult

Metrics = dict[str, float | int | None]


class LossWindow(BaseModel):
    """Sums over the steps since the last logged one, without those that were skipped."""

    model_config = ConfigDict(extra="forbid")

    num_steps: int = 0
    masked_lm_loss: float = 0.0
    next_sentence_loss: float = 0.0
    gradient_norm: float = 0.0
    num_masked_tokens: int = 0
    num_masked_correct: int = 0
    num_labelled: int = 0
    num_next_sentence_correct: int = 0


class LoopState(BaseModel):
    """What the loop knows besides the weights and the optimiser's state.

    Attributes:
        step: steps taken.
        num_examples: examples seen, an example counted each time.
        num_tokens: tokens seen that are no padding.
        sum_squared_lengths: over the examples seen; what the work of attention is proportional to.
        num_masked_tokens: masked positions predicted.
        num_skipped_steps: steps whose update was left out, since their loss or gradient was not finite.
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
    sum_squared_lengths: int = 0
    num_masked_tokens: int = 0
    num_skipped_steps: int = 0
    seconds: float = 0.0
    window: LossWindow = LossWindow()
    last_metrics: Metrics | None = None
    first_evaluation: Metrics | None = None
    last_evaluation: Metrics | None = None
    stream: dict[str, Any] | None = None

    def add(self, result: StepResult) -> None:
        """Add what a step saw; its losses count only where it was not skipped."""
        self.num_examples += result.num_examples
        self.num_tokens += result.num_tokens
        self.sum_squared_lengths += result.sum_squared_lengths
        self.num_masked_tokens += result.num_masked_tokens
        if result.is_skipped:
            self.num_skipped_steps += 1
            return
        window = self.window
        window.num_steps += 1
        window.masked_lm_loss += result.masked_lm_loss
        window.next_sentence_loss += result.next_sentence_loss
        window.gradient_norm += result.gradient_norm
        window.num_masked_tokens += result.num_masked_tokens
        window.num_masked_correct += result.num_masked_correct
        window.num_labelled += result.num_labelled
        window.num_next_sentence_correct += result.num_next_sentence_correct

    def close_window(self) -> Metrics:
        """The means of the window, as they stand in a line of metrics; a new window begins.

        Null stands where there is nothing to take the mean of.
        """
        window, self.window = self.window, LossWindow()
        masked_lm_loss = _divide(window.masked_lm_loss, window.num_steps)
        next_sentence_loss = _divide(window.next_sentence_loss, window.num_steps)
        return {
            "loss": _add(masked_lm_loss, next_sentence_loss),
            "masked_lm_loss": masked_lm_loss,
            "masked_lm_accuracy": _divide(window.num_masked_correct, window.num_masked_tokens),
            "next_sentence_loss": next_sentence_loss if window.num_labelled else None,
            "next_sentence_accuracy": _divide(window.num_next_sentence_correct, window.num_labelled),
            "gradient_norm": _divide(window.gradient_norm, window.num_steps),
        }


def _divide(total: float, count: int) -> float | None:
    return total / count if count else None


def _add(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other
