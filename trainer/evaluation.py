"""How well a model does on held-out examples, and what guessing without a model would do.

In: a model and a finite run of batches. Out: means over all of them, weighted by masked tokens and by
    labelled
sequences, so that they don't depend on how the examples were cut into batches (but for float32 rounding).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from schemas.errors import ClozelineError
from trainer.model.pretraining import IGNORED_LABEL, Batch, BertForPretraining
from trainer.precision import Precision, compute_in

_LARGEST_EXPONENT = 700.0


@dataclass(frozen=True)
class EvaluationResult:
    """Means over held-out examples.

    Attributes:
        masked_lm_loss: mean cross-entropy at masked positions, in nats.
        perplexity: its exponential.
        masked_lm_accuracy: share of masked positions whose likeliest entry is the right one.
        next_sentence_loss: mean cross-entropy in nats; None where no example has a label.
        next_sentence_accuracy: share of right labels; None where no example has one.
        num_examples: examples seen.
        num_masked_tokens: masked positions seen.
    """

    masked_lm_loss: float
    perplexity: float
    masked_lm_accuracy: float
    next_sentence_loss: float | None
    next_sentence_accuracy: float | None
    num_examples: int
    num_masked_tokens: int

    def as_dict(self) -> dict[str, float | int | None]:
        """The fields under their names, as `clozeline evaluate --json` prints them."""
        return asdict(self)


@dataclass(frozen=True)
class UnigramBaseline:
    """What the frequencies of masked tokens alone can do.

    Attributes:
        masked_lm_loss: cross-entropy in nats of held-out masked tokens under the frequencies in training.
        masked_lm_accuracy: share of held-out masked tokens that are the most frequent one of training.
        token_id: that most frequent one; the lowest id where several are.
    """

    masked_lm_loss: float
    masked_lm_accuracy: float
    token_id: int


def evaluate(
    model: BertForPretraining,
    batches: Iterable[Batch],
    *,
    precision: Precision = "fp32",
) -> EvaluationResult:
    """Measure a model, without dropout and without changing it.

    Args:
        model: on the same device as the batches; left in the mode (training or not) in which it came.
        batches: a finite run of them; their losses are summed in float64.
        precision: what the forward pass computes in.

    Raises:
        ClozelineError: there is no masked token at all, or a loss is not a finite number.
    """
    sums = _sum_over(model, batches, precision)
    if sums.num_masked == 0:
        raise ClozelineError(
            "Nothing to evaluate on: the split holds no masked token. Choose another split, or build the "
            "dataset with a larger --validation-fraction."
        )
    masked_lm_loss = sums.masked_lm_loss / sums.num_masked
    if not math.isfinite(masked_lm_loss):
        raise ClozelineError(
            f"The masked-LM loss is {masked_lm_loss}: the weights have diverged. Take an earlier checkpoint, "
            f"or train with a lower --learning-rate or more --warmup-steps."
        )
    labelled = sums.num_labelled > 0
    return EvaluationResult(
        masked_lm_loss=masked_lm_loss,
        perplexity=math.exp(min(masked_lm_loss, _LARGEST_EXPONENT)),
        masked_lm_accuracy=sums.num_masked_correct / sums.num_masked,
        next_sentence_loss=sums.next_sentence_loss / sums.num_labelled if labelled else None,
        next_sentence_accuracy=sums.num_next_sentence_correct / sums.num_labelled if labelled else None,
        num_examples=sums.num_examples,
        num_masked_tokens=sums.num_masked,
    )


def count_masked_ids(batches: Iterable[Batch], vocab_size: int) -> NDArray[np.int64]:
    """How often each id is to be predicted: int64 [vocab_size]."""
    counts = np.zeros(vocab_size, dtype=np.int64)
    for batch in batches:
        ids = batch.masked_ids[batch.masked_ids != IGNORED_LABEL]
        counts += np.bincount(ids.cpu().numpy(), minlength=vocab_size)
    return counts


def unigram_baseline(
    train_counts: NDArray[np.int64], validation_counts: NDArray[np.int64]
) -> UnigramBaseline:
    """Guess every masked token from the frequencies in training alone.

    Args:
        train_counts: int64 [V], how often each id was to be predicted in training; one is added to each, so
            that an id unseen in training has a finite loss.
        validation_counts: int64 [V], the same for held-out examples; not all 0.
    """
    probabilities = (train_counts + 1) / (train_counts.sum() + len(train_counts))
    num_tokens = int(validation_counts.sum())
    most_frequent = int(train_counts.argmax())
    return UnigramBaseline(
        masked_lm_loss=float(-(validation_counts @ np.log(probabilities)) / num_tokens),
        masked_lm_accuracy=int(validation_counts[most_frequent]) / num_tokens,
        token_id=most_frequent,
    )


@dataclass
class _Sums:
    masked_lm_loss: float = 0.0
    next_sentence_loss: float = 0.0
    num_masked: int = 0
    num_labelled: int = 0
    num_masked_correct: int = 0
    num_next_sentence_correct: int = 0
    num_examples: int = 0


@torch.no_grad()
def _sum_over(model: BertForPretraining, batches: Iterable[Batch], precision: Precision) -> _Sums:
    sums = _Sums()
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    try:
        for batch in batches:
            with compute_in(precision, device):
                output = model(batch)
            sums.masked_lm_loss += float(output.masked_lm_loss_sum)
            sums.next_sentence_loss += float(output.next_sentence_loss_sum)
            sums.num_masked += int(output.num_masked)
            sums.num_labelled += int(output.num_labelled)
            sums.num_masked_correct += int(output.num_masked_correct)
            sums.num_next_sentence_correct += int(output.num_next_sentence_correct)
            sums.num_examples += len(batch.input_ids)
    finally:
        model.train(was_training)
    return sums
