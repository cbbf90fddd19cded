"""A run on packed rows from start to end, as `--tokens-per-batch` makes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer.config import TrainConfig
from trainer.export import export_checkpoint
from trainer.job import describe_attention
from trainer.loop import train
from trainer.run_folder import RunFolder

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture
def make_config(tmp_path: Path, tiny_dataset_path: Path) -> Callable[..., TrainConfig]:
    """Runs with dropout on two lanes of two rows of 32 tokens: 2 to 4 examples each."""
    sizes = tmp_path / "sizes.json"
    sizes.write_text(json.dumps(SIZES))

    def make(**values: Any) -> TrainConfig:
        defaults = {
            "data": str(tiny_dataset_path),
            "output": str(tmp_path / "run"),
            "model": str(sizes),
            "steps": 60,
            "tokens_per_batch": 130,
            "gradient_accumulation": 2,
            "learning_rate": 1e-3,
            "precision": "fp32",
            "device": "cpu",
            "save_every": 16,
            "log_every": 1,
        }
        return TrainConfig(**defaults | values)

    return make


def read_losses(run: str) -> list[tuple[int, float, float, int]]:
    lines = [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]
    return [
        (line["step"], line["masked_lm_loss"], line["gradient_norm"], line["num_tokens"]) for line in lines
    ]


def read_weights(run: str) -> bytes:
    return (Path(run) / "checkpoints" / "step-00000060" / "model.safetensors").read_bytes()


def test_a_crashed_run_repeats_the_uninterrupted_one_bit_for_bit(
    make_config: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    whole, crashed = (make_config(output=str(tmp_path / name)) for name in ("whole", "crashed"))
    summary = train(whole)
    for crash_at in (5, 20, 41, 50):

        def crash(done: int, total: int, at: int = crash_at) -> None:
            if done == at:
                raise RuntimeError("crash")

        with pytest.raises(RuntimeError, match="crash"):
            train(crashed, crash)
    resumed = train(crashed)
    assert resumed.resumed_from_step == 48
    assert read_losses(crashed.output) == read_losses(whole.output)
    assert read_weights(crashed.output) == read_weights(whole.output)
    assert (summary.batch_size, summary.tokens_per_batch) == (None, 2 * 2 * 32)
    # 192 examples of 24 tokens on average, in 2 x 60 microbatches of up to 64 tokens.
    assert 0.6 * 120 * 64 < summary.num_tokens < 120 * 64


@pytest.mark.slow
def test_a_compiled_run_learns_the_same(make_config: Callable[..., TrainConfig], tmp_path: Path) -> None:
    plain, compiled = (
        make_config(output=str(tmp_path / name), compile=name == "compiled", steps=4, dropout=0.0)
        for name in ("plain", "compiled")
    )
    train(plain)
    train(compiled)
    ours, theirs = read_losses(compiled.output), read_losses(plain.output)
    assert len(ours) == 4
    for one, other in zip(ours, theirs, strict=True):
        assert one == pytest.approx(other, abs=1e-5)


ROUNDED = "--tokens-per-batch 130: a step takes 128 tokens at most, 2 rows of 32 in each of 2 microbatches."


@pytest.mark.parametrize(("asked", "notes"), [(130, [ROUNDED]), (128, [])])
def test_tokens_that_make_no_whole_rows_are_noted(
    asked: int, notes: list[str], make_config: Callable[..., TrainConfig]
) -> None:
    found: list[str] = []
    train(make_config(tokens_per_batch=asked, steps=1), on_note=found.append)
    assert found == notes


@pytest.mark.parametrize(
    ("device", "precision", "dropout", "tokens_per_batch", "is_noted"),
    [
        ("cuda", "bf16", 0.1, 128, True),
        ("cuda", "bf16", 0.0, 128, False),
        ("cuda", "bf16", 0.1, None, False),
        ("cuda", "fp32", 0.1, 128, False),
        ("cpu", "bf16", 0.1, 128, False),
    ],
)
def test_a_faster_kernel_that_dropout_forbids_is_noted(
    make_config: Callable[..., TrainConfig],
    device: str,
    precision: str,
    dropout: float,
    tokens_per_batch: int | None,
    is_noted: bool,
) -> None:
    config = make_config(
        steps=1, precision="bf16", dropout=dropout, batch_size=None, tokens_per_batch=tokens_per_batch
    )
    train(config)
    record = RunFolder(config.output).read_record()
    assert record is not None
    record = record.model_copy(update={"precision": precision})
    notes = describe_attention(record, torch.device(device))
    assert [("attention_probs_dropout_prob 0" in note) for note in notes] == [True] * is_noted


def test_the_model_card_gives_the_batch_in_tokens(
    make_config: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    config = make_config(steps=1)
    train(config)
    export_checkpoint(config.output, str(tmp_path / "exported"))
    assert "| batch size | 128 tokens |" in (tmp_path / "exported" / "README.md").read_text()
