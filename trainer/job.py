"""All the parts of a run, put together: model, optimiser, stream of batches.

In: a run's record, its dataset, and the process's place among the ranks. Out: a `TrainingJob` that can take
steps. Deterministic: the starting weights follow from the seed alone, or from the checkpoint of `init`.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from trainer.data.batches import Batch
from trainer.data.dataset import Dataset
from trainer.data.loader import StreamingLoader, iterate_once
from trainer.data_passes import describe_data
from trainer.distributed import Ranks
from trainer.evaluation import EvaluationResult, evaluate
from trainer.initial_weights import copy_initial_weights
from trainer.model.pretraining import BertForPretraining
from trainer.optimisation import build_optimizer, learning_rate_at
from trainer.run_folder import RunRecord
from trainer.stepping import Stepper

# Without gradients a batch takes a fraction of the memory, and small ones waste time.
SMALLEST_EVALUATION_BATCH = 64
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
        warnings: what is likely a mistake in them.
    """

    record: RunRecord
    datasets: tuple[Dataset, ...]
    ranks: Ranks
    stepper: Stepper
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

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
            for batch in iterate_once(dataset, "validation", batch_size, left):
                yield batch.to(self.ranks.device)
                if left is not None:
                    left -= batch.num_examples
            if left == 0:
                return


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
    notes = describe_rounding(record) + describe_attention(record, ranks.device)
    notes += describe_data(record, [one.manifest for one in datasets])
    warnings: tuple[str, ...] = ()
    if config.init is not None and with_initial_weights:
        remarks = copy_initial_weights(model, config.init, datasets[0].read_tokenizer())
        notes, warnings = notes + remarks.notes, remarks.warnings
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
    return TrainingJob(
        record=record, datasets=datasets, ranks=ranks, stepper=stepper, notes=notes, warnings=warnings
    )


def describe_rounding(record: RunRecord) -> tuple[str, ...]:
    """A note where a step takes fewer tokens than were asked for."""
    asked, taken = record.config.tokens_per_batch, record.plan.tokens_per_batch
    if asked is None or taken is None or asked == taken:
        return ()
    plan = record.plan
    cut = f" in each of {plan.lanes} microbatches" if plan.lanes > 1 else ""
    return (
        f"--tokens-per-batch {asked:,}: a step takes {taken:,} tokens at most, {plan.microbatch_size} rows "
        f"of {plan.row_length}{cut}.",
    )


def describe_attention(record: RunRecord, device: torch.device) -> tuple[str, ...]:
    """A note where the kernel that skips what lies in other examples can't be taken, though it is there."""
    has_kernel = device.type == "cuda" and record.precision == "bf16" and record.plan.row_length is not None
    if not has_kernel or record.model.attention_probs_dropout_prob == 0.0:
        return ()
    return (
        "The faster attention for packed rows knows no dropout of its probabilities, and this model has it: "
        "--dropout 0, or a --model file with attention_probs_dropout_prob 0, would let it be taken.",
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
