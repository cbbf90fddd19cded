"""An estimate of a training run, opened from what a person gives and told as they read it.

In: options. Out: a plain dictionary for `--json`, and lines. Neither torch nor Beam is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from schemas.errors import UsageError
from workflows.terminal import format_bytes, format_count, format_seconds, format_share

if TYPE_CHECKING:
    from trainer.data.dataset import Dataset
    from trainer.planning import ExampleSizes, MemoryEstimate, RunEstimate

Lines = list[tuple[str, str]]
Precision = Literal["fp32", "bf16"]

DEFAULT_MAX_SEQ_LENGTH = 128
DEFAULT_VOCAB_SIZE = 30522
_PARTS = {
    "attention_projections": "attention, n d^2",
    "attention_scores": "attention, n^2 d",
    "feed_forward": "feed-forward, n d f",
    "masked_lm_head": "masked-LM head",
    "next_sentence_head": "next-sentence head",
}
_HELD = {
    "weights": "weights",
    "optimiser": "optimiser",
    "gradients": "gradients",
    "weight_copies": "bf16 copies of weights",
    "activations": "activations",
    "attention_scores": "attention, n^2",
    "logits": "logits",
    "temporaries": "temporaries",
}


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """The options of `clozeline plan`, None where one was not given."""

    model: str
    data: str | None
    max_seq_length: int | None
    vocab_size: int | None
    batch_size: int | None
    tokens_per_batch: int | None
    gradient_accumulation: int
    steps: int | None
    epochs: float | None
    device: str
    num_devices: int
    precision: Precision | None
    utilisation: float
    peak_tflops: float | None
    dropout: float | None

    def check(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            UsageError: they do.
        """
        if self.data and (self.max_seq_length or self.vocab_size):
            raise UsageError(
                "--data says how long examples are and how large the vocabulary is; leave out "
                "--max-seq-length and --vocab-size."
            )
        if self.steps and self.epochs:
            raise UsageError("Give the length of the run by one of --steps and --epochs.")
        if self.epochs and not self.data:
            raise UsageError("--epochs are passes over a dataset: give it by --data, or give --steps.")
        if self.batch_size and self.tokens_per_batch:
            raise UsageError("Give the size of a step by one of --batch-size and --tokens-per-batch.")


def plan_run(request: PlanRequest) -> tuple[dict[str, Any], Lines]:
    """Estimate a run: the summary of `--json`, and the lines for a person.

    Raises:
        UsageError: the options contradict each other, there is no such model, dataset or device, or a step
            can't be cut so.
        CorruptDataError: the dataset's manifest is malformed.
    """
    from trainer.data.dataset import open_dataset
    from trainer.model.costs import DEVICE_NAMES, peak_flops
    from trainer.model_choice import choose_model
    from trainer.planning import ExampleSizes, Hardware, estimate_run

    request.check()
    vocab_size, num_examples = request.vocab_size or DEFAULT_VOCAB_SIZE, None
    sizes = ExampleSizes.full(request.max_seq_length or DEFAULT_MAX_SEQ_LENGTH)
    if request.data:
        dataset = open_dataset(request.data)
        vocab_size = dataset.manifest.tokenizer.vocab_size
        sizes, num_examples = measure_examples(dataset)
    config = choose_model(request.model, vocab_size, sizes.max_seq_length, dropout=request.dropout)
    device = request.device.lower()
    if device != "cpu" and not request.peak_tflops and not peak_flops(device, "fp32"):
        raise UsageError(
            f"--device {request.device} is not known; known are cpu, {', '.join(DEVICE_NAMES)}.\n"
            f"Give one of them, or what a device of any name does at most by --peak-tflops."
        )
    knows_bf16 = device != "cpu" and (request.peak_tflops or peak_flops(device, "bf16"))
    hardware = Hardware(
        device=device,
        num_devices=request.num_devices,
        precision=request.precision or ("bf16" if knows_bf16 else "fp32"),
        utilisation=request.utilisation,
        peak=request.peak_tflops and request.peak_tflops * 1e12,
    )
    estimate = estimate_run(
        config,
        sizes,
        hardware,
        batch_size=request.batch_size,
        tokens_per_batch=request.tokens_per_batch,
        gradient_accumulation=request.gradient_accumulation,
        num_steps=request.steps,
        num_epochs=request.epochs,
        num_examples=num_examples,
    )
    settled = ("steps", "epochs", "peak_tflops", "precision", "batch_size", "tokens_per_batch")
    given = {
        **{name: value for name, value in asdict(request).items() if name not in settled},
        **asdict(sizes),
        "vocab_size": vocab_size,
        "num_examples": num_examples,
        "device": device,
        "precision": hardware.precision,
        "peak_flops": hardware.peak_flops,
        "batch_size": None if estimate.row_length else round(estimate.examples_per_step),
        "tokens_per_batch": round(estimate.tokens_per_step) if estimate.row_length else None,
    }
    return {**given, **as_summary(estimate)}, plan_lines(estimate, given)


def measure_examples(dataset: Dataset) -> tuple[ExampleSizes, int]:
    """The sizes of a dataset's training examples, and how many there are, from its manifest alone.

    Raises:
        UsageError: it has no training split.
    """
    from trainer.planning import ExampleSizes

    shards = dataset.require_split("train")
    num_examples = sum(shard.num_examples for shard in shards)
    sizes = ExampleSizes(
        max_seq_length=dataset.manifest.config.max_seq_length,
        mean_length=sum(shard.num_tokens for shard in shards) / num_examples,
        mean_masked=sum(shard.masking.num_chosen_tokens for shard in shards) / num_examples,
    )
    return sizes, num_examples


def as_summary(estimate: RunEstimate) -> dict[str, Any]:
    """What `--json` prints of an estimate."""
    return {
        **{name: value for name, value in asdict(estimate).items() if name not in ("memory", "step")},
        "flops_per_token": estimate.flops_per_token,
        "flops_per_step": {**asdict(estimate.step), "total": estimate.step.total},
        "memory": [one.as_dict() for one in estimate.memory],
    }


def plan_lines(estimate: RunEstimate, given: Mapping[str, Any]) -> Lines:
    """Lines for a person.

    Args:
        estimate: of the run.
        given: `model`, `device`, `num_devices`, `precision`, `utilisation`, `peak_flops`, `mean_length` and
            `max_seq_length`.
    """
    return [
        ("model", f"{given['model']}, {format_count(estimate.num_parameters)} parameters"),
        (
            "a step",
            f"{format_count(round(estimate.examples_per_step))} examples of {given['mean_length']:.1f} "
            f"tokens on average, {given['max_seq_length']:,} at most: "
            f"{format_count(estimate.tokens_per_step)} tokens, "
            f"{format_count(estimate.masked_per_step)} masked",
        ),
        *_operation_lines(estimate),
        *_memory_lines(estimate, given),
        *_time_lines(estimate, given),
    ]


def format_flops(flops: float) -> str:
    """Operations with a decimal prefix, 1.23 TFLOP."""
    for size, unit in ((1e18, "EFLOP"), (1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP")):
        if flops >= size:
            return f"{flops / size:.3g} {unit}"
    return f"{flops:.0f} FLOP"


def _operation_lines(estimate: RunEstimate) -> Lines:
    lines = [("Operations of a step, forward and backward, padding not counted", "")]
    for name, label in _PARTS.items():
        flops = getattr(estimate.step, name)
        note = ""
        if name == "masked_lm_head":
            note = f" at masked positions; at every token {format_flops(estimate.masked_lm_head_everywhere)}"
        lines.append((label, f"{format_flops(flops)}, {format_share(flops / estimate.step.total)}{note}"))
    per_token = f"{format_flops(estimate.flops_per_token)} a token"
    return [*lines, ("together", f"{format_flops(estimate.step.total)}, {per_token}")]


def _memory_lines(estimate: RunEstimate, given: Mapping[str, Any]) -> Lines:
    (default,) = (one for one in estimate.memory if one.is_default)
    unit = "example" if estimate.row_length is None else "row"
    at_a_time = (
        f"{format_count(estimate.microbatch_size)} {unit}{'s' if estimate.microbatch_size > 1 else ''}"
    )
    if estimate.row_length is not None:
        at_a_time += f" of {estimate.row_length:,} tokens"
    lines = [(f"Memory of one device at the fullest moment, {at_a_time} at a time, {given['precision']}", "")]
    for name, label in _HELD.items():
        held = getattr(default.use, name)
        if held:
            lines.append((label, format_bytes(held)))
    lines.append((_describe(default), f"{format_bytes(default.use.total)} in all, as trained by default"))
    others = [one for one in estimate.memory if one is not default]
    return [*lines, *((_describe(one), format_bytes(one.use.total)) for one in others)]


def _describe(one: MemoryEstimate) -> str:
    scores = "fused attention" if one.attention == "fused" else "stored scores"
    again = ", activation checkpointing" if one.activation_checkpointing else ""
    return f"{one.layout}, {scores}{again}"


def _time_lines(estimate: RunEstimate, given: Mapping[str, Any]) -> Lines:
    heading = (f"Time on {given['num_devices']} x {given['device']}", "")
    length = []
    if estimate.num_steps is not None and estimate.num_tokens is not None:
        epochs = "" if estimate.num_epochs is None else f", {estimate.num_epochs:.2g} epochs"
        length = [
            ("steps", f"{format_count(estimate.num_steps)}{epochs}"),
            ("tokens", format_count(estimate.num_tokens)),
        ]
    if estimate.tokens_per_second is None:
        return [heading, *length, ("speed", "the device's peak is not known; give it by --peak-tflops")]
    peak = f"{given['peak_flops'] / 1e12:,.1f} TFLOPS in {given['precision']}"
    speed = f"{format_count(estimate.tokens_per_second)} tokens/s at {given['utilisation']:.0%} of {peak}"
    lines = [heading, ("speed", speed), *length]
    if estimate.seconds is not None:
        days = f" ({estimate.seconds / 86400:.1f} days)" if estimate.seconds > 86400 else ""
        lines.append(("time", format_seconds(estimate.seconds) + days))
    return lines
