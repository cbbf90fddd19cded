"""Training steps of clozeline and of transformers on the same examples, each side in a fresh process.

In: a watch and a workload. Out: the loss on the first batch before any step, with dropout off, and what was
trained on. Both sides start from the same weights, go over the same examples once untimed and once timed, and
take the same optimiser (AdamW, fused, no decay of biases and layer norms) and clipping. Batches are made
beforehand on both. Deterministic but for the time.

An example is trained on in a batch of `batch_size` in its drawn order, padded to the greatest length, by
transformers; in a batch of `batch_size` of about its own length, padded to the longest of them (`padded`); or
in one of as many rows as hold that many on average (`packed`). So a pass has as many steps on every side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from schemas.seeding import RandomStream
from tests.benchmarks.measuring import Watch
from tests.benchmarks.training_data import Mix, choose_examples, take_shards
from trainer.data.batches import NO_LABEL, Batch, assemble_batch
from trainer.data.blocks import read_shard
from trainer.data.dataset import open_dataset
from trainer.data.example_arrays import ExampleArrays, arrays_from_blocks
from trainer.data.microbatches import Microbatch, cut_by_examples, cut_by_rows
from trainer.data.packed_batches import assemble_packed_batch
from trainer.data.packing import pack_rows
from trainer.distributed import Ranks
from trainer.model.config import ModelConfig, preset_config
from trainer.model.hugging_face import hugging_face_config, to_hugging_face
from trainer.model.pretraining import BertForPretraining
from trainer.optimisation import build_optimizer, clip_gradients
from trainer.precision import PrecisionChoice, choose_precision, compute_in
from trainer.stepping import Stepper

Layout = Literal["padded", "packed"]

_CPU = torch.device("cpu")
_LEARNING_RATE = 1e-4
_MAX_GRAD_NORM = 1.0
_POOL_EXAMPLES = 20_000


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What both sides train.

    Attributes:
        dataset: URL of a dataset.
        model: a preset.
        mix: of lengths.
        batch_size: examples in a step.
        num_steps: steps in a pass over the examples.
        seed: of the choice of examples, of weights and dropout.
    """

    dataset: str
    model: str
    mix: Mix
    batch_size: int
    num_steps: int
    seed: int = 0


@dataclass(frozen=True)
class ChosenExamples:
    """Examples in the order in which they were drawn.

    Attributes:
        pool: where they lie.
        numbers: int64 [n], which ones.
        row_length: tokens of the longest that the dataset may have.
        vocab_size: entries of the vocabulary.
        pad_id: the id of `[PAD]`.
    """

    pool: ExampleArrays
    numbers: NDArray[np.int64]
    row_length: int
    vocab_size: int
    pad_id: int

    @property
    def lengths(self) -> NDArray[np.int64]:
        """int64 [n]."""
        return self.pool.lengths[self.numbers]


def train_ours(
    watch: Watch, work: Workload, layout: Layout, choice: PrecisionChoice, dropout: float | None = None
) -> dict[str, Any]:
    """Steps of clozeline's `Stepper`.

    Args:
        watch: counts the timed pass.
        work: what is trained.
        layout: of the batches.
        choice: of the precision.
        dropout: None leaves the model's own, 0.1.
    """
    chosen = choose(work)
    config = _model_config(work, chosen)
    if dropout is not None:
        both = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
        config = config.model_copy(update=both)
    precision = choose_precision(choice, _CPU)
    model = BertForPretraining(config, seed=work.seed)
    first = _cut(chosen, chosen.numbers[: work.batch_size], layout, 1)[0]
    with torch.no_grad(), compute_in(precision, _CPU):
        loss = float(model.eval()(first).mean_loss())
    stepper = Stepper(
        model,
        build_optimizer(model, learning_rate=_LEARNING_RATE),
        Ranks(rank=0, world_size=1, device=_CPU),
        precision=precision,
        seed=work.seed,
        max_grad_norm=_MAX_GRAD_NORM,
    )
    batches = _cut(chosen, chosen.numbers, layout, work.num_steps)

    def take(step: int, batch: Batch) -> None:
        stepper.take(step, [batch], _LEARNING_RATE).read()

    _train(watch, batches, take)
    return {
        "loss": loss,
        "precision": precision,
        "num_steps": len(batches),
        "num_tokens": sum(batch.num_tokens for batch in batches),
    }


def train_transformers(watch: Watch, work: Workload, choice: PrecisionChoice) -> dict[str, Any]:
    """Steps of `BertForPreTraining` as it is commonly trained: padded to the greatest length."""
    import transformers

    chosen = choose(work)
    config = _model_config(work, chosen)
    settings: dict[str, Any] = hugging_face_config(config, pad_token_id=chosen.pad_id)
    model = transformers.BertForPreTraining(transformers.BertConfig(**settings))
    model.load_state_dict(to_hugging_face(BertForPretraining(config, seed=work.seed).state_dict()))
    precision = choose_precision(choice, _CPU)
    optimiser = build_optimizer(model, learning_rate=_LEARNING_RATE)
    groups = [chosen.numbers[start : start + work.batch_size] for start in _batch_starts(work)]
    batches = [pad_for_transformers(chosen, group) for group in groups]
    with torch.no_grad(), compute_in(precision, _CPU):
        loss = float(model.train(False)(**batches[0]).loss)
    model.train()
    torch.manual_seed(work.seed)

    def take(step: int, batch: dict[str, Tensor]) -> None:
        with compute_in(precision, _CPU):
            step_loss = model(**batch).loss
        step_loss.backward()
        clip_gradients(model, _MAX_GRAD_NORM)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        step_loss.item()

    _train(watch, batches, take)
    return {
        "loss": loss,
        "precision": precision,
        "num_steps": len(batches),
        "num_tokens": int(chosen.lengths.sum()),
    }


def choose(work: Workload) -> ChosenExamples:
    """Read the head of the dataset and draw a workload's examples from it."""
    head = take_shards(open_dataset(work.dataset), _POOL_EXAMPLES)
    pool = arrays_from_blocks([block for shard in head.manifest.shards for block in read_shard(head, shard)])
    numbers = choose_examples(pool.lengths, work.mix, work.batch_size * work.num_steps, work.seed)
    tokenizer = head.manifest.tokenizer
    return ChosenExamples(
        pool, numbers, head.manifest.config.max_seq_length, tokenizer.vocab_size, tokenizer.pad_id
    )


def pad_for_transformers(chosen: ChosenExamples, numbers: NDArray[np.int64]) -> dict[str, Tensor]:
    """The arguments of `BertForPreTraining` for some examples, all padded to the greatest length."""
    batch = assemble_batch(chosen.pool, numbers, chosen.pad_id)
    labels = torch.full(batch.input_ids.shape, NO_LABEL)
    labels.view(-1)[batch.masked_positions] = batch.masked_ids

    def widen(tensor: Tensor, filler: int) -> Tensor:
        missing = chosen.row_length - tensor.shape[1]
        return torch.nn.functional.pad(tensor, (0, missing), value=filler)

    return {
        "input_ids": widen(batch.input_ids, chosen.pad_id),
        "token_type_ids": widen(batch.segment_ids, 0),
        "attention_mask": widen(batch.attention_mask.long(), 0),
        "labels": widen(labels, NO_LABEL),
        "next_sentence_label": batch.next_sentence_labels,
    }


def _train(watch: Watch, batches: Sequence[Any], take: Callable[[int, Any], None]) -> None:
    # The first pass pays for allocations and for choosing kernels, one a shape.
    for step, batch in enumerate(batches, start=1):
        take(step, batch)
    with watch:
        for step, batch in enumerate(batches, start=len(batches) + 1):
            take(step, batch)


def _cut(chosen: ChosenExamples, numbers: NDArray[np.int64], layout: Layout, num_batches: int) -> list[Batch]:
    """Batches of clozeline's loader: its own cutting and assembling."""
    stream = RandomStream(0, "benchmark", layout)
    lengths = chosen.pool.lengths[numbers]
    if layout == "padded":
        cut = cut_by_examples(lengths, -(-len(numbers) // num_batches), stream)
        return [assemble_batch(chosen.pool, numbers[one.examples], chosen.pad_id) for one in cut]
    num_rows = pack_rows(np.sort(lengths)[::-1], chosen.row_length).num_rows
    cut = cut_by_rows(lengths, -(-num_rows // num_batches), chosen.row_length, stream)
    placed = [Microbatch(numbers[one.examples], one.offsets) for one in cut]
    return [assemble_packed_batch(chosen.pool, one, chosen.row_length, chosen.pad_id) for one in placed]


def _model_config(work: Workload, chosen: ChosenExamples) -> ModelConfig:
    return preset_config(work.model, chosen.vocab_size)


def _batch_starts(work: Workload) -> range:
    return range(0, work.batch_size * work.num_steps, work.batch_size)
