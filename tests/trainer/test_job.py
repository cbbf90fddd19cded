"""A run's parts put together: what the choice of optimiser, memory and initial weights does to whole runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from trainer.checkpoints import load_checkpoint
from trainer.config import TrainConfig
from trainer.loop import resume, train

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
}
SHORT, LONG = 32, 64


class CrashError(Exception):
    """What nobody expects."""


@pytest.fixture
def make_config(tmp_path: Path, tiny_dataset_path: Path) -> Callable[..., TrainConfig]:
    """(output, **values) -> the configuration of a short run of a model with dropout."""
    sizes = tmp_path / "sizes.json"
    sizes.write_text(json.dumps(SIZES))

    def make(output: str, **values: Any) -> TrainConfig:
        defaults = {
            "data": str(tiny_dataset_path),
            "output": str(tmp_path / output),
            "model": str(sizes),
            "steps": 6,
            "batch_size": 8,
            "gradient_accumulation": 2,
            "learning_rate": 1e-2,
            "precision": "fp32",
            "device": "cpu",
            "save_every": 2,
            "log_every": 1,
        }
        return TrainConfig(**defaults | values)

    return make


def crash_at(step: int) -> Callable[[int, int], None]:
    def progress(done: int, _total: int) -> None:
        if done == step:
            raise CrashError

    return progress


def final_state(config: TrainConfig) -> dict[str, torch.Tensor]:
    folder = Path(config.output) / "checkpoints" / f"step-{config.steps:08d}"
    weights, optimiser = (load_file(folder / f"{name}.safetensors") for name in ("model", "optimiser"))
    return weights | optimiser


def assert_same_bits(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


def test_a_lamb_run_resumed_repeats_the_uninterrupted_one_bit_for_bit(
    make_config: Callable[..., TrainConfig],
) -> None:
    whole, broken = (make_config(name, optimizer="lamb") for name in ("whole", "broken"))
    train(whole)
    with pytest.raises(CrashError):
        train(broken, crash_at(5))
    assert resume(broken.output).resumed_from_step == 4
    state = final_state(whole)
    assert_same_bits(final_state(broken), state)
    assert float(state["embeddings.norm.bias/step"]) == 6
    adamw = make_config("adamw")
    train(adamw)
    assert not torch.equal(final_state(adamw)["pooler.dense.weight"], state["pooler.dense.weight"])


def test_activation_checkpointing_changes_no_bit_of_a_run_and_may_be_chosen_anew(
    make_config: Callable[..., TrainConfig],
) -> None:
    kept, mixed = make_config("kept"), make_config("mixed", activation_checkpointing=True)
    train(kept)
    with pytest.raises(CrashError):
        train(mixed, crash_at(3))
    assert train(mixed.model_copy(update={"activation_checkpointing": False})).resumed_from_step == 2
    assert_same_bits(final_state(mixed), final_state(kept))


def long_examples(short: Sequence[dict[str, Any]], vocab_size: int) -> list[dict[str, Any]]:
    """Examples whose second segment is drawn out to `LONG` tokens."""
    draw = torch.Generator().manual_seed(0)
    lengthened = []
    for example in short:
        missing = LONG - len(example["input_ids"])
        filling = torch.randint(9, vocab_size, (missing,), generator=draw).tolist()
        input_ids = [*example["input_ids"][:-1], *filling, example["input_ids"][-1]]
        lengthened.append({**example, "input_ids": input_ids})
    return lengthened


def test_a_second_phase_of_longer_sequences_goes_on_from_the_weights_of_the_first(
    make_config: Callable[..., TrainConfig],
    make_tiny_examples: Callable[[int, int], list[Any]],
    write_tiny_dataset: Callable[..., Path],
    tiny_vocab_size: int,
    tmp_path: Path,
) -> None:
    """Both phases measure the same short examples: the first at its end, the second before its first step."""
    held_out, short = make_tiny_examples(20, 1), make_tiny_examples(40, 2)
    data = [
        write_tiny_dataset(
            tmp_path / str(length), {"train": [train_split], "validation": [held_out]}, max_seq_length=length
        )
        for length, train_split in ((SHORT, short), (LONG, long_examples(short, tiny_vocab_size)))
    ]
    first = make_config("first", data=str(data[0]), evaluate_every=6)
    second = make_config("second", data=str(data[1]), evaluate_every=6, init=first.output, seed=1)
    before = train(first)
    notes: list[str] = []
    after = train(second, on_note=notes.append)
    assert before.last_evaluation is not None
    assert after.first_evaluation == before.last_evaluation
    assert not any("--init" in note for note in notes)
    weights, trained = (load_checkpoint(config.output) for config in (first, second))
    assert (weights.max_seq_length, trained.max_seq_length) == (SHORT, LONG)
    assert weights.model_config == trained.model_config
    beyond = slice(SHORT, LONG)
    positions = [loaded.model.embeddings.position.weight[beyond] for loaded in (weights, trained)]
    assert not torch.equal(*positions)
    # The optimiser begins anew: it has counted the steps of its own phase.
    assert float(final_state(second)["pooler.dense.bias/step"]) == 6
