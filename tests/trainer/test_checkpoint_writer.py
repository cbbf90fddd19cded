from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from schemas.errors import ClozelineError
from schemas.manifests import TokenizerRecord
from trainer import checkpoint_writer
from trainer.checkpoint_record import CheckpointRecord, list_checkpoints
from trainer.checkpoint_writer import CheckpointWriter
from trainer.checkpoints import save_checkpoint
from trainer.model.config import ModelConfig
from trainer.model.pretraining import BertForPretraining
from trainer.optimisation import build_optimizer
from trainer.output_folder import OutputFolder

CONFIG = ModelConfig(
    vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
)
TOKENIZER = TokenizerRecord(sha256="a" * 64, vocab_size=30, pad_id=0, unk_id=1, cls_id=2, sep_id=3, mask_id=4)


def record(step: int) -> CheckpointRecord:
    return CheckpointRecord(
        created_by="tests", step=step, model=CONFIG, tokenizer=TOKENIZER, max_seq_length=32, progress={}
    )


class Training:
    """A model whose updates are by ones."""

    def __init__(self) -> None:
        self.model = BertForPretraining(CONFIG)
        self.optimiser = build_optimizer(self.model, learning_rate=0.1)
        self.update()

    def update(self) -> None:
        for parameter in self.model.parameters():
            parameter.grad = torch.ones_like(parameter)
        self.optimiser.step()

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        return {name: parameter.detach().clone() for name, parameter in self.model.named_parameters()}


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Nothing is written until it is set."""
    gate = threading.Event()

    def save_late(*arguments: Any) -> str:
        gate.wait()
        return save_checkpoint(*arguments)

    monkeypatch.setattr(checkpoint_writer, "save_checkpoint", save_late)
    return gate


def load_weights(run: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints" / f"step-{step:08d}" / "model.safetensors")


def same(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_training_goes_on_while_the_state_of_the_call_is_written(
    tmp_path: Path, held: threading.Event
) -> None:
    training, writer = Training(), CheckpointWriter(OutputFolder(str(tmp_path)), b"{}", 3)
    before = training.weights
    writer.begin(record(1), training.model, training.optimiser)
    training.update()
    assert not (tmp_path / "checkpoints").exists()
    held.set()
    writer.wait()
    assert same(load_weights(tmp_path, 1), before)
    assert not same(training.weights, before)
    optimiser = load_file(tmp_path / "checkpoints" / "step-00000001" / "optimiser.safetensors")
    assert {int(value) for name, value in optimiser.items() if name.endswith("/step")} == {1}


def test_the_next_checkpoint_waits_for_the_one_before_and_takes_its_memory(
    tmp_path: Path, held: threading.Event
) -> None:
    training, writer = Training(), CheckpointWriter(OutputFolder(str(tmp_path)), b"{}", 3)
    first = training.weights
    writer.begin(record(1), training.model, training.optimiser)
    training.update()
    second = training.weights
    # Were the state copied at once, the memory of the first would be overwritten before it was written.
    threading.Timer(0.05, held.set).start()
    writer.begin(record(2), training.model, training.optimiser)
    assert list_checkpoints(OutputFolder(str(tmp_path))) == ["checkpoints/step-00000001"] or same(
        load_weights(tmp_path, 1), first
    )
    writer.wait()
    assert same(load_weights(tmp_path, 1), first)
    assert same(load_weights(tmp_path, 2), second)


def test_a_failure_in_the_thread_is_told_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(file: Any, tensors: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    training, writer = Training(), CheckpointWriter(OutputFolder(str(tmp_path)), b"{}", 3)
    writer.wait()
    assert not writer.has_failed
    monkeypatch.setattr("trainer.checkpoints.write_tensors", fail)
    writer.begin(record(1), training.model, training.optimiser)
    expected = r"step-00000001 could not be written: No space left on device.\nFree some space"
    with pytest.raises(ClozelineError, match=expected):
        writer.begin(record(2), training.model, training.optimiser)
    assert writer.has_failed
    with pytest.raises(ClozelineError, match=expected):
        writer.wait()
    assert os.listdir(tmp_path / "checkpoints") == []
