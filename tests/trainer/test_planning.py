"""What a run takes, against sums done by hand."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from trainer.model.config import preset_config
from trainer.model.costs import training_flops
from trainer.planning import ExampleSizes, Hardware, default_attention, estimate_run

BASE = preset_config("base", 30522)
HALF_FULL = ExampleSizes(max_seq_length=128, mean_length=64.0, mean_masked=8.0)


def test_a_full_example_masks_google_s_share() -> None:
    assert ExampleSizes.full(128) == ExampleSizes(max_seq_length=128, mean_length=128, mean_masked=19)
    # 0.15 * (512 - 3) = 76.35
    assert ExampleSizes.full(512).mean_masked == 76
    assert ExampleSizes.full(8, 0.01).mean_masked == 1


def test_time_of_a_run_of_bert_base() -> None:
    estimate = estimate_run(
        BASE,
        ExampleSizes.full(128),
        Hardware(device="a100", num_devices=8, utilisation=0.5),
        batch_size=256,
        num_steps=1_000_000,
    )
    # 12 layers: 24 n d^2 + 4 n l d; the head: 2 m d (d + V) and 2 B d (d + 2); all three times.
    n, d = 256 * 128, 768
    flops = 3 * (
        12 * (24 * n * d**2 + 4 * n * 128 * d) + 2 * 256 * 19 * d * (d + 30522) + 2 * 256 * d * (d + 2)
    )
    assert estimate.step.total == pytest.approx(flops, rel=1e-12)
    assert estimate.tokens_per_step == 32768
    assert estimate.num_tokens == 32_768_000_000
    assert estimate.tokens_per_second == pytest.approx(0.5 * 8 * 312e12 / (flops / n), rel=1e-12)
    assert estimate.seconds == pytest.approx(1_000_000 * flops / (0.5 * 8 * 312e12), rel=1e-12)
    assert estimate.num_epochs is None
    assert estimate.masked_lm_head_everywhere == pytest.approx(6 * n * d * (d + 30522), rel=1e-12)


def test_operations_are_those_of_a_step() -> None:
    estimate = estimate_run(BASE, HALF_FULL, Hardware(device="cpu"), batch_size=4)
    assert estimate.step.total == training_flops(
        BASE, num_tokens=256, sum_squared_lengths=256 * 128, num_masked=32, num_examples=4
    )


def test_epochs_and_steps() -> None:
    kinds = {"batch_size": 32, "num_examples": 1000}
    hardware = Hardware(device="cpu", precision="fp32")
    by_epochs = estimate_run(BASE, HALF_FULL, hardware, num_epochs=2, **kinds)
    # 2000 examples in steps of 32: 62.5, so 63, which are 2016 examples.
    assert (by_epochs.num_steps, by_epochs.num_epochs, by_epochs.num_tokens) == (63, 2.016, 63 * 32 * 64)
    by_steps = estimate_run(BASE, HALF_FULL, hardware, num_steps=63, **kinds)
    assert by_steps == by_epochs
    assert (by_steps.tokens_per_second, by_steps.seconds) == (None, None)
    neither = estimate_run(BASE, HALF_FULL, hardware, **kinds)
    assert (neither.num_steps, neither.num_tokens, neither.num_epochs) == (None, None, None)


def test_a_peak_that_is_given() -> None:
    one = estimate_run(BASE, HALF_FULL, Hardware(device="mine", peak=100e12), batch_size=8, num_steps=1)
    two = estimate_run(
        BASE, HALF_FULL, Hardware(device="h100", peak=50e12, num_devices=2), batch_size=8, num_steps=1
    )
    assert one.seconds == two.seconds
    assert one.seconds is not None


@pytest.mark.parametrize(
    ("hardware", "dropout", "expected"),
    [
        (Hardware(device="h100"), 0.1, "fused"),
        (Hardware(device="v100", precision="fp32"), 0.1, "fused"),
        (Hardware(device="cpu", precision="fp32"), 0.1, "matmul"),
        (Hardware(device="cpu", precision="fp32"), 0.0, "fused"),
        (Hardware(device="cpu", precision="bf16"), 0.0, "matmul"),
    ],
)
def test_attention_by_default(hardware: Hardware, dropout: float, expected: str) -> None:
    config = BASE.model_copy(update={"attention_probs_dropout_prob": dropout})
    assert default_attention(config, hardware) == expected
    estimate = estimate_run(config, HALF_FULL, hardware, batch_size=8)
    (default,) = (one for one in estimate.memory if one.is_default)
    assert (default.layout, default.attention, default.activation_checkpointing) == (
        "padded",
        expected,
        False,
    )


def test_every_way_of_computing_is_estimated_once() -> None:
    padded = estimate_run(BASE, ExampleSizes.full(128), Hardware(device="h100"), batch_size=64)
    assert len(padded.memory) == 4
    both = estimate_run(BASE, HALF_FULL, Hardware(device="h100"), batch_size=64)
    ways = {(one.layout, one.attention, one.activation_checkpointing) for one in both.memory}
    assert len(both.memory) == len(ways) == 8
    totals = {(one.layout, one.attention, one.activation_checkpointing): one.use.total for one in both.memory}
    assert totals["packed", "fused", False] < totals["padded", "fused", False]
    assert (
        totals["padded", "fused", True] < totals["padded", "fused", False] < totals["padded", "matmul", False]
    )


def test_a_packed_step_takes_what_as_many_tokens_without_padding_take() -> None:
    hardware = Hardware(device="h100", num_devices=2)
    packed = estimate_run(BASE, HALF_FULL, hardware, tokens_per_batch=8192, gradient_accumulation=2)
    padded = estimate_run(BASE, HALF_FULL, hardware, batch_size=128, gradient_accumulation=2)
    # 8192 tokens are 128 examples of 64 on average, in 16 rows of 128 a microbatch.
    assert (packed.lanes, packed.microbatch_size, packed.row_length) == (4, 16, 128)
    assert packed.examples_per_step == padded.examples_per_step == 128
    assert (packed.step, packed.tokens_per_second) == (padded.step, padded.tokens_per_second)
    assert [one.use for one in packed.memory] == [one.use for one in padded.memory if one.layout == "packed"]
    assert [one.attention for one in packed.memory if one.is_default] == ["fused"]


def test_memory_is_that_of_one_microbatch() -> None:
    def default_use(**cut: int) -> dict[str, object]:
        hardware = Hardware(device="h100", num_devices=cut.get("devices", 1))
        estimate = estimate_run(
            BASE,
            HALF_FULL,
            hardware,
            batch_size=cut["batch_size"],
            gradient_accumulation=cut.get("accumulation", 1),
        )
        return asdict(next(one for one in estimate.memory if one.is_default).use)

    whole = default_use(batch_size=64)
    assert default_use(batch_size=512, devices=8) == whole
    accumulated = default_use(batch_size=256, accumulation=4)
    assert accumulated["activations"] == whole["activations"]
    assert accumulated["gradients"] == whole["weights"]
