"""All the parts of a run, put together: model, optimiser, stream of batches.

In: a run's record, its dataset, and the process's place among the ranks. Out: a `TrainingJob` that can take
steps. Deterministic: the starting weights follow from the seed alone, or from the checkpoint of `init`.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from schemas.errors import UsageError
from schemas.manifests import DatasetManifest, dump_manifest
from trainer.config import TrainConfig
from trainer.data.batches import Batch
from trainer.data.dataset import Dataset, open_dataset
from trainer.data.loader import StreamingLoader, iterate_once
from trainer.data.opener import read_bytes
from trainer.data_passes import describe_data
from trainer.distributed import Ranks
from trainer.evaluation import EvaluationResult, evaluate
from trainer.initial_weights import copy_initial_weights
from trainer.model.config import ModelConfig, parse_model_config, preset_config
from trainer.model.pretraining import BertForPretraining
from trainer.optimisation import build_optimizer, learning_rate_at
from trainer.run_folder import RunRecord
from trainer.stepping import Stepper

# Without gradients a batch takes a fraction of the memory, and small ones waste time.
SMALLEST_EVALUATION_BATCH = 64
_LARGEST_MODEL_CONFIG_BYTES = 1 << 20
# mallopt's parameters, from glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
_TOP_PAD_BYTES = 256 << 20


@dataclass(frozen=True)
class TrainingJob:
    """What a training loop drives.

    Attributes:
        record: of the run.
        datasets: what it trains on.
        ranks: this process and the others.
        stepper: holds the model and the optimiser.
        notes: what a person should know of the weights and the batches that the run begins with.
    """

    record: RunRecord
    datasets: tuple[Dataset, ...]
    ranks: Ranks
    stepper: Stepper
    notes: tuple[str, ...] = ()

    def learning_rate(self, step: int) -> float:
        """The learning rate of a step, counted from 1."""
        plan = self.record.plan
        return learning_rate_at(
            step - 1,
            peak=self.record.config.learning_rate,
            num_warmup_steps=plan.warmup_steps,
            num_steps=plan.steps,
        )

    def open_stream(self, state: dict[str, Any] | None) -> StreamingLoader:
        """The stream of this rank's microbatches, from the start or from a state."""
        return StreamingLoader(
            self.datasets,
            "train",
            lanes=self.record.plan.lanes,
            microbatch_size=self.record.plan.microbatch_size,
            row_length=self.record.plan.row_length,
            fixed_sizes=self.record.config.compile or self.ranks.device.type == "cuda",
            seed=self.record.config.seed,
            schedule=self.record.config.data_schedule,
            weights=self.record.config.data_weights,
            rank=self.ranks.rank,
            world_size=self.ranks.world_size,
            state=state,
            pin_memory=self.ranks.device.type == "cuda",
        )

    def evaluate(self) -> EvaluationResult:
        """Measure the model on held-out examples; on one rank only."""
        return evaluate(self.stepper.model, self._held_out_batches(), precision=self.record.precision)

    def _held_out_batches(self) -> Iterator[Batch]:
        left = self.record.config.evaluation_examples
        batch_size = max(self.record.plan.microbatch_size, SMALLEST_EVALUATION_BATCH)
        for dataset in self.datasets:
            for batch in iterate_once(dataset, "validation", batch_size):
                yield batch.to(self.ranks.device)
                if left is not None:
                    left -= batch.num_examples
                    if left <= 0:
                        return


def open_datasets(config: TrainConfig) -> tuple[Dataset, ...]:
    """Open the data of a configuration, and check that it can be trained on.

    Raises:
        UsageError: a dataset is missing, unfinished or without examples, they can't be mixed, or there is
            nothing to evaluate on though that was asked for.
        CorruptDataError: a manifest is malformed.
    """
    datasets = tuple(open_dataset(url) for url in config.data)
    for dataset in datasets:
        dataset.require_split("train")
        if config.evaluate_every is not None:
            dataset.require_split("validation")
        _require_same_kind(datasets[0], dataset)
    return datasets


def make_absolute(url: str) -> str:
    """A local path from the root on, so that a run can be resumed from any folder; a URL as it is."""
    return url if "://" in url else os.path.abspath(url)


def fingerprint(datasets: Sequence[Dataset]) -> str:
    """SHA-256 of what the manifests say: the same wherever the data lies."""
    return hashlib.sha256(b"".join(dump_manifest(dataset.manifest) for dataset in datasets)).hexdigest()


def settle_model(config: TrainConfig, manifest: DatasetManifest) -> ModelConfig:
    """The sizes of the model that a configuration means, for the vocabulary of the data.

    Raises:
        UsageError: no such preset, a wrong file, or sequences longer than the model has positions.
    """
    vocab_size = manifest.tokenizer.vocab_size
    if config.model.endswith(".json"):
        try:
            content = read_bytes(config.model, _LARGEST_MODEL_CONFIG_BYTES)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise UsageError(
                f"{config.model}: no such model configuration. Give a JSON file or a preset."
            ) from None
        # Of the model that weights come from: they are fitted to the vocabulary of the data.
        model = parse_model_config(content, vocab_size, config.model, any_vocab_size=config.init is not None)
    else:
        model = preset_config(config.model, vocab_size)
    if config.dropout is not None:
        dropout = {"hidden_dropout_prob": config.dropout, "attention_probs_dropout_prob": config.dropout}
        model = model.model_copy(update=dropout)
    if manifest.config.max_seq_length > model.max_position_embeddings:
        raise UsageError(
            f"The data has sequences of up to {manifest.config.max_seq_length} tokens, but model "
            f"{config.model} has {model.max_position_embeddings} positions.\nGive a model configuration with "
            f"max_position_embeddings of {manifest.config.max_seq_length}, or build with a smaller "
            f"--max-seq-length."
        )
    return model


def check_stream(record: RunRecord, datasets: tuple[Dataset, ...]) -> None:
    """Check that the data can be dealt to the lanes of a plan, without reading any of it.

    Raises:
        UsageError: more lanes than blocks.
    """
    plan = record.plan
    StreamingLoader(
        datasets,
        "train",
        lanes=plan.lanes,
        microbatch_size=plan.microbatch_size,
        row_length=plan.row_length,
        seed=record.config.seed,
        schedule=record.config.data_schedule,
        weights=record.config.data_weights,
        prefetch_steps=0,
    ).close()


def assemble(
    record: RunRecord, datasets: tuple[Dataset, ...], ranks: Ranks, *, with_initial_weights: bool = True
) -> TrainingJob:
    """Build a run's parts, with the weights that it begins with.

    Args:
        record: of the run.
        datasets: what it trains on.
        ranks: this process and the others.
        with_initial_weights: False where a checkpoint will replace them.

    Raises:
        UsageError: the weights of `init` are missing or of another model.
    """
    config = record.config
    if ranks.device.type == "cpu":
        keep_freed_memory()
    model = BertForPretraining(record.model, seed=config.seed)
    notes = describe_rounding(record) + describe_data(record, [one.manifest for one in datasets])
    if config.init is not None and with_initial_weights:
        notes += copy_initial_weights(model, config.init, datasets[0].read_tokenizer())
    model.encoder.recomputes_layers = config.activation_checkpointing
    model.to(ranks.device)
    optimiser = build_optimizer(
        model,
        learning_rate=config.learning_rate,
        kind=config.optimizer,
        weight_decay=config.weight_decay,
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_epsilon,
    )
    stepper = Stepper(
        model,
        optimiser,
        ranks,
        precision=record.precision,
        seed=config.seed,
        max_grad_norm=config.max_grad_norm,
        compile_model=config.compile,
        has_fixed_sizes=record.plan.row_length is not None,
    )
    return TrainingJob(record=record, datasets=datasets, ranks=ranks, stepper=stepper, notes=notes)


def describe_rounding(record: RunRecord) -> tuple[str, ...]:
    """A note where a step takes fewer tokens than were asked for."""
    asked, taken = record.config.tokens_per_batch, record.plan.tokens_per_batch
    if asked is None or taken is None or asked == taken:
        return ()
    plan = record.plan
    return (
        f"--tokens-per-batch {asked:,}: a step takes {taken:,} tokens at most, {plan.microbatch_size} rows "
        f"of {plan.row_length} in each of {plan.lanes} microbatches.",
    )


def keep_freed_memory() -> None:
    """Ask glibc to keep what tensors free for the next step, rather than to hand it back to the system.

    A step on a CPU frees and takes gigabytes; fetching the pages anew took about a sixth of its time.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_MMAP_MAX, 0)
    libc.mallopt(_M_TRIM_THRESHOLD, -1)
    libc.mallopt(_M_TOP_PAD, _TOP_PAD_BYTES)


def synchronise(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _require_same_kind(first: Dataset, other: Dataset) -> None:
    ours, theirs = first.manifest, other.manifest
    for name, one, two in (
        ("tokenizer", ours.tokenizer.sha256[:12], theirs.tokenizer.sha256[:12]),
        ("objective", ours.config.objective, theirs.config.objective),
        ("max_seq_length", ours.config.max_seq_length, theirs.config.max_seq_length),
    ):
        if one != two:
            raise UsageError(
                f"{first.url} and {other.url} can't be trained on together: their {name} differs "
                f"({one}, {two}).\nBuild both from corpora of one tokenizer, with the same options."
            )
