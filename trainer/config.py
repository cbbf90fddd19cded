"""What a person may choose about a training run, and what the trainer settles from it.

In: option values by their command-line names. Out: a frozen, checked `TrainConfig`, and a `TrainPlan`, the
numbers that a run keeps for life once it has begun: its steps, its lanes, its batch. Deterministic: the plan
follows from the configuration, the dataset's manifest and the number of ranks at the start; only the steps of
a run that was given minutes are measured, once, and then pinned with the rest.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, Field, model_validator

from schemas.configs import FrozenModel
from schemas.errors import UsageError
from schemas.manifests import DatasetManifest
from trainer.data.mixture import DataSchedule

Precision = Literal["auto", "fp32", "bf16"]
OptimizerName = Literal["adamw", "lamb"]
DEVICE_NAMES = "auto, cpu, cuda or cuda:N"
DEFAULT_BATCH_SIZE = 256
DEFAULT_MODEL = "base"
LARGEST_DEFAULT_WARMUP = 10_000
# A run may be continued with other values of these: none of them changes what is computed, but for steps
# that would end it.
FREE_FIELDS = frozenset(
    {"output", "data", "device", "keep_checkpoints", "activation_checkpointing", "skip_nonfinite"}
)


def is_device_name(name: str) -> bool:
    """Whether a name is one of `DEVICE_NAMES`; the device itself need not be there."""
    return re.fullmatch(r"auto|cpu|cuda(:\d{1,4})?", name) is not None


def _require_device_name(name: str) -> str:
    if not is_device_name(name):
        raise ValueError(f"give {DEVICE_NAMES}")
    return name


class TrainConfig(FrozenModel):
    """How a model is pretrained.

    Attributes:
        data: datasets written by `clozeline build`.
        data_schedule: with several datasets, `together` reads their shards as those of one; `sequence` reads
            one of them in each epoch, in turn: so static masks change from epoch to epoch.
        data_weights: one for each dataset: mix them so that their shares of the examples are as these. None
            gives each as many as it has.
        output: the run folder.
        model: a preset (`tiny mini small medium base large`, also as `bert-base`), or the path of a
            JSON model configuration. Without it, `base`, or with `init` the sizes of that model.
        init: a run, a checkpoint or a Hugging Face folder whose weights the run begins with.
        steps: optimiser steps in all. None only where `minutes` is given.
        minutes: train for about so long: the number of steps is measured at the start, then fixed.
        batch_size: examples in a global step, over all lanes and ranks, each microbatch padded to its
            longest. Default 256.
        tokens_per_batch: tokens in a global step at most, over all lanes and ranks: examples are packed into
            rows of `max_seq_length` with hardly any padding, as many rows as fit. Excludes `batch_size`.
        gradient_accumulation: microbatches that each rank adds up in a step.
        learning_rate: the peak, reached after the warm-up and followed by a linear decay to zero.
        warmup_steps: None means a tenth of the steps and at most 10,000, Google's figure.
        optimizer: AdamW, or LAMB for batches of thousands of examples.
        weight_decay: decoupled, not for biases and layer norms.
        adam_beta1: decay of the optimiser's first moment.
        adam_beta2: decay of the optimiser's second moment.
        adam_epsilon: added to the root of the second moment.
        max_grad_norm: the norm to which the whole gradient is clipped; 0 leaves it as it is.
        skip_nonfinite: how many steps whose loss or gradient is not finite are left out; one more ends all.
        dropout: if given, replaces both dropout probabilities of the model.
        precision: `auto` is bf16 where the device computes in it.
        compile: compile the model by `torch.compile`.
        activation_checkpointing: keep only each layer's input for the backward pass and compute the layer
            again there: less memory for about a third more work, and the same numbers.
        seed: decides initial weights, dropout and the order of examples.
        device: `auto` is the rank's GPU where there is one.
        save_every: steps between checkpoints; one is always written at the end.
        keep_checkpoints: how many of the newest stay.
        log_every: steps between two lines of `metrics.jsonl`, each the mean of the steps since the last.
        evaluate_every: steps between evaluations on held-out examples, the first of them before the first
            step and one at the end; None evaluates never.
        evaluation_examples: held-out examples in such an evaluation at most; None takes all.
    """

    data: tuple[str, ...] = Field(min_length=1)
    data_schedule: DataSchedule = "together"
    data_weights: tuple[Annotated[float, Field(gt=0.0, allow_inf_nan=False)], ...] | None = None
    output: str = Field(min_length=1)
    model: str | None = None
    init: str | None = None
    steps: Annotated[int, Field(ge=1)] | None = None
    minutes: Annotated[float, Field(gt=0.0)] | None = None
    batch_size: Annotated[int, Field(ge=1)] | None = None
    tokens_per_batch: Annotated[int, Field(ge=1)] | None = None
    gradient_accumulation: Annotated[int, Field(ge=1)] = 1
    learning_rate: Annotated[float, Field(gt=0.0)] = 1e-4
    warmup_steps: Annotated[int, Field(ge=0)] | None = None
    optimizer: OptimizerName = "adamw"
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.01
    adam_beta1: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    adam_beta2: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.999
    adam_epsilon: Annotated[float, Field(gt=0.0)] = 1e-6
    max_grad_norm: Annotated[float, Field(ge=0.0)] = 1.0
    skip_nonfinite: Annotated[int, Field(ge=0)] = 0
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None
    precision: Precision = "auto"
    compile: bool = False
    activation_checkpointing: bool = False
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = 0
    device: Annotated[str, AfterValidator(_require_device_name)] = "auto"
    save_every: Annotated[int, Field(ge=1)] = 1000
    keep_checkpoints: Annotated[int, Field(ge=1)] = 3
    log_every: Annotated[int, Field(ge=1)] = 50
    evaluate_every: Annotated[int, Field(ge=1)] | None = None
    evaluation_examples: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _take_one_dataset(cls, values: object) -> object:
        if isinstance(values, dict) and isinstance(values.get("data"), str):
            return {**values, "data": (values["data"],)}
        return values

    @model_validator(mode="before")
    @classmethod
    def _settle_default_model(cls, values: object) -> object:
        if isinstance(values, dict) and values.get("model") is None and values.get("init") is None:
            return {**values, "model": DEFAULT_MODEL}
        return values

    @model_validator(mode="after")
    def _choices_agree(self) -> TrainConfig:
        if (self.steps is None) == (self.minutes is None):
            raise ValueError("give the length of the run by one of steps and minutes")
        if self.batch_size is not None and self.tokens_per_batch is not None:
            raise ValueError("give the size of a batch by one of batch_size and tokens_per_batch")
        if self.data_weights is not None:
            if len(self.data_weights) != len(self.data):
                raise ValueError(
                    f"{len(self.data_weights)} weights for {len(self.data)} datasets: give each one"
                )
            if self.data_schedule == "sequence":
                raise ValueError("datasets that are read in sequence have no weights: leave them out")
        return self

    def differences(self, other: TrainConfig) -> list[str]:
        """What another configuration would compute differently: lines `name: ours, theirs`."""
        ours, theirs = self.model_dump(), other.model_dump()
        names = [name for name in ours if name not in FREE_FIELDS and ours[name] != theirs[name]]
        return [f"{name} {ours[name]!r} there, {theirs[name]!r} now" for name in names]


class TrainPlan(FrozenModel):
    """What a run keeps for life, whatever it is resumed on.

    Attributes:
        steps: optimiser steps in all.
        warmup_steps: steps until the learning rate is at its peak.
        lanes: virtual ranks: each global step takes one microbatch of every lane.
        microbatch_size: examples that a lane gives to a step at most, or rows where they are packed.
        row_length: tokens of a row into which examples are packed; None where each is padded.
    """

    steps: Annotated[int, Field(ge=1)]
    warmup_steps: Annotated[int, Field(ge=0)]
    lanes: Annotated[int, Field(ge=1)]
    microbatch_size: Annotated[int, Field(ge=1)]
    row_length: Annotated[int, Field(ge=1)] | None = None

    @property
    def batch_size(self) -> int | None:
        """Examples in a global step at most; None where it is counted in tokens."""
        return self.lanes * self.microbatch_size if self.row_length is None else None

    @property
    def tokens_per_batch(self) -> int | None:
        """Tokens in a global step at most; None where it is counted in examples."""
        return None if self.row_length is None else self.lanes * self.microbatch_size * self.row_length


class LanePlan(NamedTuple):
    """How a global step is cut: the last three fields of a `TrainPlan`."""

    lanes: int
    microbatch_size: int
    row_length: int | None = None


def plan_lanes(config: TrainConfig, manifest: DatasetManifest, world_size: int) -> LanePlan:
    """How a global step of a configuration is cut, for its data; see `cut_step`."""
    return cut_step(
        batch_size=config.batch_size,
        tokens_per_batch=config.tokens_per_batch,
        gradient_accumulation=config.gradient_accumulation,
        world_size=world_size,
        row_length=manifest.config.max_seq_length,
    )


def cut_step(
    *,
    batch_size: int | None,
    tokens_per_batch: int | None,
    gradient_accumulation: int,
    world_size: int,
    row_length: int,
) -> LanePlan:
    """How a global step is cut.

    Args:
        batch_size: examples in it; None takes `tokens_per_batch` or, without that, the default.
        tokens_per_batch: tokens in it at most.
        gradient_accumulation: microbatches that each rank adds up.
        world_size: number of ranks that the run starts on.
        row_length: tokens of a row, for `tokens_per_batch`.

    Raises:
        UsageError: `batch_size` can't be cut into equal microbatches, or `tokens_per_batch` is less than one
            row for each.
    """
    lanes = gradient_accumulation * world_size
    ranks = (
        f"{world_size} rank{'s' if world_size > 1 else ''} x --gradient-accumulation {gradient_accumulation}"
    )
    if tokens_per_batch is not None:
        num_rows = tokens_per_batch // (lanes * row_length)
        if num_rows == 0:
            raise UsageError(
                f"--tokens-per-batch {tokens_per_batch} is less than a row of {row_length} tokens for "
                f"each of {lanes} microbatches ({ranks}).\nGive {lanes * row_length} or more."
            )
        return LanePlan(lanes, num_rows, row_length)
    batch_size = batch_size or DEFAULT_BATCH_SIZE
    if batch_size % lanes:
        raise UsageError(
            f"--batch-size {batch_size} can't be cut into {lanes} equal microbatches ({ranks}).\n"
            f"Give a multiple of {lanes}, for example {max(1, round(batch_size / lanes)) * lanes}."
        )
    return LanePlan(lanes, batch_size // lanes)


def plan_warmup(config: TrainConfig, steps: int) -> int:
    """Steps of warm-up in a run of so many steps."""
    if config.warmup_steps is None:
        return min(LARGEST_DEFAULT_WARMUP, steps // 10)
    return min(config.warmup_steps, steps)
