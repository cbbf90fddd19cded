from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor

from trainer.model.config import ModelConfig, preset_config
from trainer.model.pretraining import IGNORED_LABEL, BertForPretraining


@pytest.mark.parametrize(("preset", "published"), [("base", 110_106_428), ("large", 336_226_108)])
def test_parameter_counts_are_the_published_ones(preset: str, published: int) -> None:
    with torch.device("meta"):
        model = BertForPretraining(preset_config(preset, 30_522))
    assert model.num_parameters == published


def cross_entropy(logits: Tensor, label: int) -> float:
    """By its definition, in Python's double precision."""
    values = [float(value) for value in logits.detach()]
    return math.log(math.fsum(math.exp(value) for value in values)) - values[label]


@pytest.fixture
def worked_example(tiny_tokenizer: Tokenizer, batch_class: Callable[..., Any]) -> Any:
    """A "the cat sat on the mat", B "it purred softly"; position 2 masked, 9 chosen and left as it was."""
    text = "[CLS] the [MASK] sat on the mat [SEP] it purred softly [SEP]"
    return batch_class(
        input_ids=torch.tensor([[tiny_tokenizer.token_to_id(word) for word in text.split()]]),
        segment_ids=torch.tensor([[0] * 8 + [1] * 4]),
        attention_mask=torch.ones(1, 12, dtype=torch.bool),
        masked_positions=torch.tensor([2, 9]),
        masked_ids=torch.tensor([tiny_tokenizer.token_to_id(word) for word in ("cat", "purred")]),
        next_sentence_labels=torch.tensor([0]),
    )


def config_for(tokenizer: Tokenizer) -> ModelConfig:
    return ModelConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=16,
    )


@torch.no_grad()
def test_worked_example_equals_cross_entropies_by_hand(
    worked_example: Any, tiny_tokenizer: Tokenizer, randomise: Callable[..., None]
) -> None:
    model = BertForPretraining(config_for(tiny_tokenizer)).eval()
    randomise(model)
    output = model(worked_example)
    at_cat = cross_entropy(output.masked_lm_logits[0], tiny_tokenizer.token_to_id("cat"))
    at_purred = cross_entropy(output.masked_lm_logits[1], tiny_tokenizer.token_to_id("purred"))
    is_next = cross_entropy(output.next_sentence_logits[0], 0)
    assert (int(output.num_masked), int(output.num_labelled)) == (2, 1)
    assert float(output.masked_lm_loss_sum) == pytest.approx(at_cat + at_purred, abs=1e-5)
    assert float(output.next_sentence_loss_sum) == pytest.approx(is_next, abs=1e-5)
    assert float(output.sum_loss()) == pytest.approx(at_cat + at_purred + is_next, abs=1e-5)
    assert float(output.mean_loss()) == pytest.approx((at_cat + at_purred) / 2 + is_next, abs=1e-5)


@torch.no_grad()
def test_worked_example_with_logits_set_by_hand(worked_example: Any, tiny_tokenizer: Tokenizer) -> None:
    """All weights are 0, so that the logits are the biases.

    "cat" is as likely as all other entries together, and IsNext three times as likely as NotNext.
    """
    model = BertForPretraining(config_for(tiny_tokenizer)).eval()
    num_entries = tiny_tokenizer.get_vocab_size()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.masked_lm_head.bias[tiny_tokenizer.token_to_id("cat")] = math.log(num_entries - 1)
        model.next_sentence_head.dense.bias[0] = math.log(3)
    output = model(worked_example)
    masked_lm = math.log(2) + math.log(2 * (num_entries - 1))
    assert float(output.masked_lm_loss_sum) == pytest.approx(masked_lm, rel=1e-6)
    assert float(output.next_sentence_loss_sum) == pytest.approx(math.log(4 / 3), rel=1e-6)
    assert float(output.sum_loss()) == pytest.approx(masked_lm + math.log(4 / 3), rel=1e-6)
    assert float(output.mean_loss()) == pytest.approx(masked_lm / 2 + math.log(4 / 3), rel=1e-6)
    assert int(output.num_masked_correct) == 1  # "cat" is guessed at both positions
    assert int(output.num_next_sentence_correct) == 1


@pytest.mark.parametrize("attention", ["matmul", "sdpa"])
def test_padding_changes_nothing(
    attention: Any, small_config: ModelConfig, make_batch: Callable[..., Any], randomise: Callable[..., None]
) -> None:
    model = BertForPretraining(small_config, attention=attention).eval()
    randomise(model)
    narrow = model(make_batch([7, 10]))
    wide = model(make_batch([7, 10], padded_to=20))
    torch.testing.assert_close(wide.masked_lm_logits, narrow.masked_lm_logits, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(wide.next_sentence_logits, narrow.next_sentence_logits, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_ignored_slots_and_null_labels_count_for_nothing(
    small_config: ModelConfig, make_batch: Callable[..., Any], batch_class: Callable[..., Any]
) -> None:
    model = BertForPretraining(small_config).eval()
    batch = make_batch([8, 8])
    full = model(batch)
    masked_ids = torch.cat([batch.masked_ids, torch.tensor([IGNORED_LABEL])])
    padded = batch_class(
        **vars(batch)
        | {
            "masked_positions": torch.cat([batch.masked_positions, torch.tensor([0])]),
            "masked_ids": masked_ids,
            "next_sentence_labels": torch.tensor([int(batch.next_sentence_labels[0]), IGNORED_LABEL]),
        }
    )
    output = model(padded)
    torch.testing.assert_close(output.masked_lm_loss_sum, full.masked_lm_loss_sum)
    assert (int(output.num_masked), int(output.num_labelled)) == (4, 1)
    expected = cross_entropy(full.next_sentence_logits[0], int(batch.next_sentence_labels[0]))
    assert float(output.next_sentence_loss_sum) == pytest.approx(expected, abs=1e-5)


def test_nothing_masked_and_no_label_gives_zero_and_zero_gradients(
    small_config: ModelConfig, make_batch: Callable[..., Any], batch_class: Callable[..., Any]
) -> None:
    model = BertForPretraining(small_config).eval()
    empty = torch.zeros(0, dtype=torch.int64)
    labels = torch.full((2,), IGNORED_LABEL)
    batch = batch_class(
        **vars(make_batch([8, 8]))
        | {"masked_positions": empty, "masked_ids": empty, "next_sentence_labels": labels}
    )
    output = model(batch)
    assert output.mean_loss().item() == 0.0
    output.mean_loss().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert not bool(parameter.grad.any()), name


def test_losses_of_parts_add_up_to_those_of_the_whole(
    small_config: ModelConfig, make_batch: Callable[..., Any], batch_class: Callable[..., Any]
) -> None:
    model = BertForPretraining(small_config).eval()
    whole = make_batch([9, 9, 9, 9])
    parts = [
        batch_class(
            input_ids=whole.input_ids[rows],
            segment_ids=whole.segment_ids[rows],
            attention_mask=whole.attention_mask[rows],
            masked_positions=whole.masked_positions[slice(2 * rows.start, 2 * rows.stop)] - 9 * rows.start,
            masked_ids=whole.masked_ids[slice(2 * rows.start, 2 * rows.stop)],
            next_sentence_labels=whole.next_sentence_labels[rows],
        )
        for rows in (slice(0, 1), slice(1, 4))
    ]
    expected = model(whole)
    outputs = [model(part) for part in parts]
    for name in ("masked_lm_loss_sum", "next_sentence_loss_sum", "num_masked", "num_masked_correct"):
        total = sum(getattr(output, name) for output in outputs)
        torch.testing.assert_close(total, getattr(expected, name), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_losses_are_float32_in_bfloat16(small_config: ModelConfig, make_batch: Callable[..., Any]) -> None:
    model = BertForPretraining(small_config).eval()
    batch = make_batch([8, 12])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(batch)
    assert output.masked_lm_logits.dtype == torch.bfloat16
    assert output.masked_lm_loss_sum.dtype == output.next_sentence_loss_sum.dtype == torch.float32
    assert float(output.mean_loss()) == pytest.approx(float(model(batch).mean_loss()), rel=1e-2)


def test_sequences_beyond_the_positions_are_refused(
    small_config: ModelConfig, make_batch: Callable[..., Any]
) -> None:
    with pytest.raises(
        ValueError, match="sequences of 25 tokens, but the model has max_position_embeddings = 24"
    ):
        BertForPretraining(small_config)(make_batch([25]))


def test_token_embedding_and_decoder_are_one_parameter(
    small_config: ModelConfig, make_batch: Callable[..., Any]
) -> None:
    model = BertForPretraining(small_config)
    model(make_batch([8])).masked_lm_loss_sum.backward()
    gradient = model.embeddings.token.weight.grad
    assert gradient is not None
    # Every entry is a possible answer, so every row is pulled, not only those that were read.
    assert bool((gradient.abs().sum(dim=1) > 0).all())
    assert len({name for name, _ in model.named_parameters()}) == len(model.state_dict())
