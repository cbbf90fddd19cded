"""Packed rows give what padded ones and Hugging Face's model do, by every kernel."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

from schemas.seeding import RandomStream
from trainer.data.batches import Batch, assemble_batch
from trainer.data.example_arrays import ExampleArrays
from trainer.data.microbatches import cut_by_rows
from trainer.data.packed_batches import FixedSizes, assemble_packed_batch
from trainer.model import attention as attention_module
from trainer.model.config import ModelConfig
from trainer.model.hugging_face import from_hugging_face, hugging_face_config, hugging_face_name
from trainer.model.pretraining import BertForPretraining

ROW_LENGTH = 24
# Eleven examples, in five rows of 24: 24, 20 + 4, 13 + 11, 9 + 9 + 6, 5 + 5 + 3.
LENGTHS = [5, 24, 11, 9, 3, 20, 13, 9, 6, 5, 4]
NO_LABEL_AT = 3
FIXED = FixedSizes(rows=7, examples=16, masked=40)
KERNELS = ("matmul", "sdpa", "varlen")
TOLERANCE = 1e-5


def attend_sequence_by_sequence(
    query: Tensor, key: Tensor, value: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor, max_q: int, max_k: int
) -> Tensor:
    """What `varlen_attn` promises, by the definition of attention, with what it demands of its arguments."""
    assert query.ndim == 3
    assert query.shape == key.shape == value.shape
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    bounds = cu_seq_q.tolist()
    assert bounds == cu_seq_k.tolist() == sorted(bounds)
    assert (bounds[0], bounds[-1]) == (0, query.shape[0])
    assert max(np.diff(bounds)) <= max_q == max_k
    pieces = []
    for start, end in pairwise(bounds):
        q, k, v = (tensor[start:end].transpose(0, 1) for tensor in (query, key, value))
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        pieces.append((scores.softmax(dim=-1) @ v).transpose(0, 1))
    return torch.cat(pieces)


@pytest.fixture
def varlen_calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Stands in for torch's kernel, which only GPUs have; the shapes and dtypes that it was called with."""
    calls: list[Any] = []

    def attend(query: Tensor, *others: Any) -> Tensor:
        calls.append((*query.shape, query.dtype))
        return attend_sequence_by_sequence(query, *others)

    monkeypatch.setattr(attention_module.varlen, "varlen_attn", attend)
    return calls


@pytest.fixture(scope="module")
def examples() -> ExampleArrays:
    draw = np.random.default_rng(3)
    lengths = np.array(LENGTHS)
    masked_counts = np.minimum(1 + lengths // 8, 3)
    labels = draw.integers(0, 2, len(lengths))
    labels[NO_LABEL_AT] = -100
    positions = [
        np.sort(draw.choice(np.arange(1, length), count, replace=False))
        for length, count in zip(lengths, masked_counts, strict=True)
    ]
    return ExampleArrays(
        input_ids=np.concatenate([draw.integers(5, 60, lengths.sum()), np.zeros(24, dtype=int)]),
        starts=np.cumsum(lengths) - lengths,
        lengths=lengths,
        segment_a_lengths=lengths // 2 + 1,
        masked_starts=np.cumsum(masked_counts) - masked_counts,
        masked_counts=masked_counts,
        masked_lm_positions=np.concatenate(positions).astype(np.uint16),
        masked_lm_ids=draw.integers(5, 60, masked_counts.sum()),
        labels=labels,
    )


def pack(examples: ExampleArrays, sizes: FixedSizes | None = None, most_rows: int = 6) -> list[Batch]:
    cut = cut_by_rows(examples.lengths, most_rows, ROW_LENGTH, RandomStream(0, "tests", "rows"))
    return [assemble_packed_batch(examples, one, ROW_LENGTH, 0, sizes) for one in cut]


def pad_like(examples: ExampleArrays) -> Batch:
    """The examples of the one packed batch, each in a row of its own, in the same order."""
    (cut,) = cut_by_rows(examples.lengths, 6, ROW_LENGTH, RandomStream(0, "tests", "rows"))
    return assemble_batch(examples, cut.examples, 0)


def gradients(model: torch.nn.Module) -> dict[str, Tensor]:
    found = {}
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        found[name] = parameter.grad.clone()
    model.zero_grad()
    return found


def loss_of(model: torch.nn.Module, batch: Batch) -> float:
    with torch.no_grad():
        return float(model(batch).mean_loss())


def largest_difference(first: Tensor, second: Tensor) -> float:
    assert first.shape == second.shape
    return float((first - second).detach().abs().max())


@pytest.fixture
def model(small_config: ModelConfig, randomise: Callable[..., None]) -> Callable[..., BertForPretraining]:
    def make(kernel: Any, **changes: float) -> BertForPretraining:
        made = BertForPretraining(small_config.model_copy(update=changes), attention=kernel)
        randomise(made)
        return made.eval()

    return make


@pytest.mark.parametrize("sizes", [None, FIXED], ids=["exact", "fixed"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_logits_losses_and_gradients_equal_hugging_face_and_the_padded_batch(
    kernel: Any,
    sizes: FixedSizes | None,
    examples: ExampleArrays,
    small_config: ModelConfig,
    randomise: Callable[..., None],
    varlen_calls: list[Any],
) -> None:
    settings = {**hugging_face_config(small_config), "attn_implementation": "eager"}
    del settings["architectures"]
    theirs = transformers.BertForPreTraining(transformers.BertConfig(**settings)).eval()
    randomise(theirs)
    ours = BertForPretraining(small_config, attention=kernel).eval()
    ours.load_state_dict(from_hugging_face(theirs.state_dict(), ours.state_dict()))
    padded, (packed,) = pad_like(examples), pack(examples, sizes)

    labels = torch.full(padded.input_ids.shape, -100)
    labels.view(-1)[padded.masked_positions] = padded.masked_ids
    expected = theirs(
        input_ids=padded.input_ids,
        token_type_ids=padded.segment_ids,
        attention_mask=padded.attention_mask.long(),
        labels=labels,
        next_sentence_label=padded.next_sentence_labels,
    )
    expected.loss.backward()
    their_gradients = gradients(theirs)
    their_logits = expected.prediction_logits.flatten(0, 1)[padded.masked_positions]
    cross_entropy = torch.nn.functional.cross_entropy
    num_masked, num_examples = padded.num_masked_tokens, padded.num_examples

    for batch in (padded, packed):
        output = ours(batch)
        output.mean_loss().backward()
        assert (int(output.num_masked), int(output.num_labelled)) == (num_masked, num_examples - 1)
        assert largest_difference(output.masked_lm_logits[:num_masked], their_logits) < TOLERANCE
        next_sentence_logits = output.next_sentence_logits[:num_examples]
        assert largest_difference(next_sentence_logits, expected.seq_relationship_logits) < TOLERANCE
        masked_lm_loss = output.masked_lm_loss_sum / output.num_masked
        next_sentence_loss = output.next_sentence_loss_sum / output.num_labelled
        their_masked_lm_loss = cross_entropy(their_logits, padded.masked_ids)
        their_next_sentence_loss = cross_entropy(
            expected.seq_relationship_logits, padded.next_sentence_labels
        )
        assert largest_difference(masked_lm_loss, their_masked_lm_loss) < 2e-6
        assert largest_difference(next_sentence_loss, their_next_sentence_loss) < 2e-6
        for name, gradient in gradients(ours).items():
            assert largest_difference(gradient, their_gradients[hugging_face_name(name)]) < TOLERANCE, name
    assert bool(varlen_calls) == (kernel == "varlen")


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_token_sees_one_of_another_example(
    kernel: Any, examples: ExampleArrays, model: Callable[..., BertForPretraining], varlen_calls: list[Any]
) -> None:
    bert = model(kernel)
    (batch,) = pack(examples)
    assert batch.packing is not None
    changed = batch.packing.example_numbers == 2
    other_ids = torch.where(changed, (batch.input_ids + 7) % 60, batch.input_ids)
    with torch.no_grad():
        before, after = (
            bert.encode(ids, batch.segment_ids, batch.attention_mask, batch.packing)
            for ids in (batch.input_ids, other_ids)
        )
    same = (before == after).all(dim=-1)
    assert bool((same == ~changed).all())


@pytest.mark.parametrize("kernel", KERNELS)
def test_bfloat16_stays_close_and_padding_finite(
    kernel: Any, examples: ExampleArrays, model: Callable[..., BertForPretraining], varlen_calls: list[Any]
) -> None:
    bert = model(kernel)
    (batch,) = pack(examples, FIXED)
    exact = loss_of(bert, batch)
    varlen_calls.clear()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = bert(batch)
        hidden = bert.encode(batch.input_ids, batch.segment_ids, batch.attention_mask, batch.packing)
    output.mean_loss().backward()
    assert output.mean_loss().item() == pytest.approx(exact, rel=1e-2)
    assert bool(torch.isfinite(hidden).all())
    assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients(bert).values())
    # 7 rows of 24 positions in one piece, 4 heads of 8; two layers, twice.
    expected = [(7 * ROW_LENGTH, 4, 8, torch.bfloat16)] * 4 if kernel == "varlen" else []
    assert varlen_calls == expected


def test_dropout_of_attention_is_honoured_where_varlen_was_asked_for(
    examples: ExampleArrays, model: Callable[..., BertForPretraining], varlen_calls: list[Any]
) -> None:
    bert = model("varlen", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.5)
    (batch,) = pack(examples)
    quiet = loss_of(bert, batch)
    assert len(varlen_calls) == 2
    bert.train()
    torch.manual_seed(0)
    losses = [loss_of(bert, batch) for _ in range(2)]
    assert len({quiet, *losses}) == 3
    assert len(varlen_calls) == 2


def test_layers_computed_twice_give_the_same_gradients(
    examples: ExampleArrays, model: Callable[..., BertForPretraining]
) -> None:
    bert = model("auto").train()
    (batch,) = pack(examples)
    found = []
    for recomputes in (False, True):
        bert.encoder.recomputes_layers = recomputes
        torch.manual_seed(1)
        bert(batch).mean_loss().backward()
        found.append(gradients(bert))
    assert all(torch.equal(found[1][name], gradient) for name, gradient in found[0].items())


def test_losses_of_microbatches_add_up_to_those_of_the_whole(
    examples: ExampleArrays, model: Callable[..., BertForPretraining]
) -> None:
    bert = model("auto")
    (whole,) = pack(examples)
    expected = bert(whole)
    sizes = FixedSizes(rows=2, examples=8, masked=16)
    outputs = [bert(batch) for batch in pack(examples, sizes, most_rows=2)]
    assert len(outputs) == 3
    for name in ("masked_lm_loss_sum", "next_sentence_loss_sum", "num_masked", "num_labelled"):
        total = sum(getattr(output, name) for output in outputs)
        torch.testing.assert_close(total, getattr(expected, name), atol=1e-5, rtol=1e-5)


def test_fixed_sizes_are_compiled_once(
    examples: ExampleArrays, model: Callable[..., BertForPretraining]
) -> None:
    batches = pack(examples, FixedSizes(rows=2, examples=8, masked=16), most_rows=2)
    assert len(batches) == 3
    bert = model("sdpa")
    expected = [loss_of(bert, batch) for batch in batches]
    torch._dynamo.reset()
    # Traced and differentiated as ever; what a backend makes of the graph doesn't decide how often.
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(bert, backend=counter, dynamic=False, fullgraph=True)
    for batch, loss in zip(batches, expected, strict=True):
        output = compiled(batch)
        output.mean_loss().backward()
        assert output.mean_loss().item() == pytest.approx(loss, abs=1e-5)
    assert counter.frame_count == 1
    torch._dynamo.reset()
