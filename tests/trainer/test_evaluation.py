from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from schemas.errors import ClozelineError
from trainer.evaluation import count_masked_ids, evaluate, unigram_baseline
from trainer.model.config import ModelConfig
from trainer.model.pretraining import IGNORED_LABEL, BertForPretraining

VOCAB_SIZE = 11
LIKELY = 7


@dataclass(frozen=True)
class OneMaskBatch:
    input_ids: Tensor
    segment_ids: Tensor
    attention_mask: Tensor
    masked_positions: Tensor
    masked_ids: Tensor
    next_sentence_labels: Tensor
    packing: ClassVar[None] = None


def one_mask_batch(masked_ids: list[int], labels: list[int]) -> OneMaskBatch:
    """Sequences of four equal tokens, the second masked."""
    shape = (len(masked_ids), 4)
    return OneMaskBatch(
        input_ids=torch.full(shape, 3),
        segment_ids=torch.zeros(shape, dtype=torch.int64),
        attention_mask=torch.ones(shape, dtype=torch.bool),
        masked_positions=torch.arange(len(masked_ids)) * 4 + 1,
        masked_ids=torch.tensor(masked_ids, dtype=torch.int64),
        next_sentence_labels=torch.tensor(labels, dtype=torch.int64),
    )


@pytest.fixture
def model() -> BertForPretraining:
    """Gives `LIKELY` the probability 1/2 and each other entry 1/20; IsNext 3/4."""
    config = ModelConfig(
        vocab_size=VOCAB_SIZE, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    built = BertForPretraining(config)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.zero_()
        built.masked_lm_head.bias[LIKELY] = math.log(VOCAB_SIZE - 1)
        built.next_sentence_head.dense.bias[0] = math.log(3)
    return built


def test_means_by_hand_however_the_examples_are_cut(model: BertForPretraining) -> None:
    cuts = (
        [one_mask_batch([LIKELY, 2, LIKELY, LIKELY], [0, 1, 0, IGNORED_LABEL])],
        [one_mask_batch([LIKELY], [0]), one_mask_batch([2, LIKELY, LIKELY], [1, 0, IGNORED_LABEL])],
    )
    for batches in cuts:
        result = evaluate(model, batches)
        assert result.masked_lm_loss == pytest.approx((3 * math.log(2) + math.log(20)) / 4, rel=1e-6)
        assert result.perplexity == pytest.approx(math.exp(result.masked_lm_loss))
        assert result.masked_lm_accuracy == 3 / 4
        assert result.next_sentence_loss == pytest.approx((2 * math.log(4 / 3) + math.log(4)) / 3, rel=1e-6)
        assert result.next_sentence_accuracy == 2 / 3
        assert (result.num_examples, result.num_masked_tokens) == (4, 4)


def test_names_are_those_of_the_command_line(model: BertForPretraining) -> None:
    result = evaluate(model, [one_mask_batch([LIKELY], [0])]).as_dict()
    assert list(result) == [
        "masked_lm_loss",
        "perplexity",
        "masked_lm_accuracy",
        "next_sentence_loss",
        "next_sentence_accuracy",
        "num_examples",
        "num_masked_tokens",
    ]
    assert json.loads(json.dumps(result, allow_nan=False)) == result


def test_examples_without_label_have_no_next_sentence_figures(model: BertForPretraining) -> None:
    result = evaluate(model, [one_mask_batch([LIKELY], [IGNORED_LABEL])])
    assert result.next_sentence_loss is None
    assert result.next_sentence_accuracy is None


def test_ignored_slots_are_not_counted(model: BertForPretraining) -> None:
    batch = one_mask_batch([LIKELY, 2], [0, 0])
    batch = replace(batch, masked_ids=torch.tensor([LIKELY, IGNORED_LABEL]))
    result = evaluate(model, [batch])
    assert (result.masked_lm_accuracy, result.num_masked_tokens) == (1.0, 1)
    assert count_masked_ids([batch], VOCAB_SIZE).sum() == 1


@pytest.mark.parametrize("training", [True, False])
def test_model_is_left_as_it_was_and_dropout_is_off(training: bool) -> None:
    config = ModelConfig(
        vocab_size=VOCAB_SIZE, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    model = BertForPretraining(config).train(training)
    batch = one_mask_batch([1, 2], [0, 1])
    assert evaluate(model, [batch]) == evaluate(model, [batch])
    assert model.training is training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_nothing_to_evaluate_on_is_said(model: BertForPretraining) -> None:
    with pytest.raises(ClozelineError, match="Nothing to evaluate on"):
        evaluate(model, [])


def test_diverged_weights_are_said(model: BertForPretraining) -> None:
    with torch.no_grad():
        model.masked_lm_head.bias.fill_(math.nan)
    with pytest.raises(ClozelineError, match="masked-LM loss is nan: the weights have diverged"):
        evaluate(model, [one_mask_batch([1], [0])])


def test_bfloat16_is_close(model: BertForPretraining) -> None:
    batches = [one_mask_batch([LIKELY, 2], [0, 1])]
    exact, rounded = evaluate(model, batches), evaluate(model, batches, precision="bf16")
    assert rounded.masked_lm_loss == pytest.approx(exact.masked_lm_loss, rel=1e-2)


def test_masked_ids_are_counted() -> None:
    counts = count_masked_ids([one_mask_batch([1, 2], [0, 0]), one_mask_batch([2], [0])], 4)
    assert counts.tolist() == [0, 1, 2, 0]


def test_unigram_baseline_by_hand() -> None:
    train = np.array([0, 5, 1, 0])
    validation = np.array([0, 1, 2, 1])
    baseline = unigram_baseline(train, validation)
    expected = -(math.log(6 / 10) + 2 * math.log(2 / 10) + math.log(1 / 10)) / 4
    assert baseline.token_id == 1
    assert baseline.masked_lm_accuracy == 1 / 4
    assert baseline.masked_lm_loss == pytest.approx(expected)


def test_unigram_baseline_is_what_a_model_of_biases_reaches(model: BertForPretraining) -> None:
    batches = [one_mask_batch([LIKELY] * 10 + [i for i in range(VOCAB_SIZE) if i != LIKELY], [0] * 20)]
    counts = count_masked_ids(batches, VOCAB_SIZE)
    # One less of each, since one is added: the frequencies are then exactly the model's probabilities.
    baseline = unigram_baseline(np.maximum(counts * 1000 - 1, 0), counts)
    result = evaluate(model, batches)
    assert baseline.masked_lm_accuracy == result.masked_lm_accuracy == 0.5
    assert baseline.masked_lm_loss == pytest.approx(result.masked_lm_loss, rel=1e-6)
