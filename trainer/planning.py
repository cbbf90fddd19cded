"""What a training run will take, worked out before hardware is rented.

In: the sizes of a model, of the examples and of a step, and a device. Out: a `RunEstimate`: operations and
memory of a step, and steps, tokens and time of a run. Pure arithmetic, without torch; deterministic.

Operations are those of `trainer.model.costs`, memory that of `trainer.model.memory`, time follows from a
utilisation that is assumed: the share of a device's peak that arrives as useful work.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from trainer.config import LanePlan, cut_step
from trainer.model.config import ModelConfig
from trainer.model.costs import TRAINING_PASSES, ForwardFlops, forward_flops, peak_flops
from trainer.model.memory import MemoryUse, StepShape, count_parameters, peak_memory

DEFAULT_UTILISATION = 0.4
Layout = Literal["padded", "packed"]
Attention = Literal["fused", "matmul"]


@dataclass(frozen=True, kw_only=True)
class ExampleSizes:
    """How large the examples of a dataset are.

    Attributes:
        max_seq_length: tokens in an example at most.
        mean_length: tokens in an example on average.
        mean_masked: positions that are predicted in an example on average.
    """

    max_seq_length: int
    mean_length: float
    mean_masked: float

    @classmethod
    def full(cls, max_seq_length: int, masked_lm_prob: float = 0.15) -> ExampleSizes:
        """Examples of the greatest length, all tokens but `[CLS] [SEP] [SEP]` open to masking."""
        masked = max(1, round(masked_lm_prob * (max_seq_length - 3)))
        return cls(max_seq_length=max_seq_length, mean_length=max_seq_length, mean_masked=masked)


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """What the run is computed on.

    Attributes:
        device: a name that `peak_flops` knows, or `cpu`.
        num_devices: how many of them.
        precision: of the forward pass.
        utilisation: share of the peak that arrives, above 0, 1 at most.
        peak: of one device in operations a second, for a device that `peak_flops` doesn't know.
    """

    device: str
    num_devices: int = 1
    precision: Literal["fp32", "bf16"] = "bf16"
    utilisation: float = DEFAULT_UTILISATION
    peak: float | None = None

    @property
    def peak_flops(self) -> float | None:
        """Of one device: what was given, else what is known, else None."""
        return self.peak or peak_flops(self.device, self.precision)


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Peak memory of one device under one way of computing.

    Attributes:
        layout: `padded` to the greatest length, or `packed` without padding.
        attention: `fused` stores no scores, `matmul` stores them.
        activation_checkpointing: whether layers are computed again in the backward pass.
        is_default: whether the trainer computes so on this device without being asked.
        use: bytes by what they hold.
    """

    layout: Layout
    attention: Attention
    activation_checkpointing: bool
    is_default: bool
    use: MemoryUse

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {**asdict(self), "use": {**asdict(self.use), "total": self.use.total}}


@dataclass(frozen=True, kw_only=True)
class RunEstimate:
    """What a run takes.

    Attributes:
        num_parameters: of the model.
        lanes: microbatches in a step, over all devices.
        microbatch_size: examples in one, or rows where they are packed.
        row_length: tokens of a row; None where each example is padded.
        examples_per_step: about how many.
        tokens_per_step: that are no padding.
        masked_per_step: positions that are predicted.
        step: operations of a step, forward and backward, by part.
        masked_lm_head_everywhere: operations of the masked-LM head, did it run at every token.
        memory: of one device, for each way of computing.
        tokens_per_second: over all devices; None where the device's peak is unknown.
        num_steps: of the run; None where neither steps nor epochs were given.
        num_tokens: of the run.
        num_epochs: passes over the dataset; None where none was given.
        seconds: of the run.
    """

    num_parameters: int
    lanes: int
    microbatch_size: int
    row_length: int | None
    examples_per_step: float
    tokens_per_step: float
    masked_per_step: float
    step: ForwardFlops
    masked_lm_head_everywhere: float
    memory: tuple[MemoryEstimate, ...]
    tokens_per_second: float | None
    num_steps: int | None
    num_tokens: float | None
    num_epochs: float | None
    seconds: float | None

    @property
    def flops_per_token(self) -> float:
        """Operations of a step over its tokens."""
        return self.step.total / self.tokens_per_step


def estimate_run(
    config: ModelConfig,
    sizes: ExampleSizes,
    hardware: Hardware,
    *,
    batch_size: int | None = None,
    tokens_per_batch: int | None = None,
    gradient_accumulation: int = 1,
    num_steps: int | None = None,
    num_epochs: float | None = None,
    num_examples: int | None = None,
) -> RunEstimate:
    """Estimate a run.

    Args:
        config: of the model.
        sizes: of the examples.
        hardware: what it is computed on.
        batch_size: examples in a step, over all devices.
        tokens_per_batch: instead of `batch_size`, tokens in a step, packed. Rows are taken to be full.
        gradient_accumulation: microbatches that each device adds up in a step.
        num_steps: of the run.
        num_epochs: instead of `num_steps`, passes over the dataset.
        num_examples: of the dataset's training split, for `num_epochs`.

    Raises:
        UsageError: a step can't be cut so.
    """
    cut = cut_step(
        batch_size=batch_size,
        tokens_per_batch=tokens_per_batch,
        gradient_accumulation=gradient_accumulation,
        world_size=hardware.num_devices,
        row_length=sizes.max_seq_length,
    )
    examples_per_step = cut.lanes * _examples_in_microbatch(cut, sizes)
    step = _step_flops(config, sizes, examples_per_step)
    tokens_per_step = examples_per_step * sizes.mean_length
    peak = hardware.peak_flops
    rate = None
    if peak is not None:
        rate = peak * hardware.utilisation * hardware.num_devices * tokens_per_step / step.total
    if num_examples and num_epochs is not None:
        num_steps = max(1, math.ceil(num_epochs * num_examples / examples_per_step))
    num_tokens = None if num_steps is None else num_steps * tokens_per_step
    if num_examples and num_steps is not None:
        num_epochs = num_steps * examples_per_step / num_examples
    return RunEstimate(
        num_parameters=count_parameters(config),
        **cut._asdict(),
        examples_per_step=examples_per_step,
        tokens_per_step=tokens_per_step,
        masked_per_step=examples_per_step * sizes.mean_masked,
        step=step,
        masked_lm_head_everywhere=step.masked_lm_head * sizes.mean_length / sizes.mean_masked,
        memory=_memory(config, sizes, hardware, cut, accumulates=gradient_accumulation > 1),
        tokens_per_second=rate,
        num_steps=num_steps,
        num_tokens=num_tokens,
        num_epochs=num_epochs if num_examples else None,
        seconds=None if rate is None or num_tokens is None else num_tokens / rate,
    )


def _examples_in_microbatch(cut: LanePlan, sizes: ExampleSizes) -> float:
    if cut.row_length is None:
        return cut.microbatch_size
    return cut.microbatch_size * cut.row_length / sizes.mean_length


def _step_flops(config: ModelConfig, sizes: ExampleSizes, num_examples: float) -> ForwardFlops:
    forward = forward_flops(
        config,
        num_tokens=num_examples * sizes.mean_length,
        # The squares are not recorded. This is their upper bound: every token meets as many as can be.
        sum_squared_lengths=num_examples * sizes.mean_length * sizes.max_seq_length,
        num_masked=num_examples * sizes.mean_masked,
        num_examples=num_examples,
    )
    return forward.times(TRAINING_PASSES)


def _memory(
    config: ModelConfig, sizes: ExampleSizes, hardware: Hardware, cut: LanePlan, *, accumulates: bool
) -> tuple[MemoryEstimate, ...]:
    default = default_attention(config, hardware)
    num_examples = _examples_in_microbatch(cut, sizes)
    layouts: tuple[Layout, ...] = ("padded",) if cut.row_length is None else ("packed",)
    if cut.row_length is None and sizes.mean_length < sizes.max_seq_length:
        layouts = ("padded", "packed")
    estimates = []
    for layout in layouts:
        length = sizes.max_seq_length if layout == "padded" else sizes.mean_length
        attentions: tuple[Attention, ...] = ("fused", "matmul")
        for attention in attentions:
            for again in (False, True):
                shape = StepShape(
                    num_positions=num_examples * length,
                    num_pairs=num_examples * length * sizes.max_seq_length,
                    num_masked=num_examples * sizes.mean_masked,
                    precision=hardware.precision,
                    stores_scores=attention == "matmul",
                    on_cpu=hardware.device == "cpu",
                    recomputes_layers=again,
                    accumulates=accumulates,
                )
                estimates.append(
                    MemoryEstimate(
                        layout=layout,
                        attention=attention,
                        activation_checkpointing=again,
                        is_default=layout == layouts[0] and attention == default and not again,
                        use=peak_memory(config, shape),
                    )
                )
    return tuple(estimates)


def default_attention(config: ModelConfig, hardware: Hardware) -> Attention:
    """Which kind of attention the trainer chooses: fused on a GPU, and on a CPU where torch has a fused one.

    There it has none for bfloat16 that is worth taking, and none with dropout of probabilities.
    """
    on_cpu_fused = hardware.precision == "fp32" and config.attention_probs_dropout_prob == 0.0
    return "fused" if hardware.device != "cpu" or on_cpu_fused else "matmul"
