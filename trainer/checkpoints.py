"""Checkpoints: folders that hold all a run needs to go on as if nothing had happened.

In: weights, an optimiser's state and a JSON state. Out: a folder as `checkpoint_record` describes, which
appears whole, and is checked file by file when it is read. Nothing is pickled or unpickled. Deterministic:
the same state gives the same bytes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from schemas.errors import ClozelineError, CorruptDataError, UsageError
from schemas.manifests import TOKENIZER_NAME, TokenizerRecord
from trainer.checkpoint_record import (
    CHECKPOINTS_NAME,
    MARKER_NAME,
    MODEL_NAME,
    OPTIMISER_NAME,
    CheckpointRecord,
    checkpoint_name,
    explain_remedy,
    list_checkpoints,
    read_record,
)
from trainer.distributed import choose_device
from trainer.hugging_face_folder import (
    holds_hugging_face_model,
    read_hugging_face_config,
    read_hugging_face_model,
)
from trainer.model.config import ModelConfig
from trainer.model.pretraining import BertForPretraining
from trainer.named_state import NamedState, copy_weights, restore_optimiser
from trainer.output_folder import OutputFolder
from trainer.tensor_files import parse_tensors, read_tensor_file, write_tensors

__all__ = [
    "CHECKPOINTS_NAME",
    "MARKER_NAME",
    "MODEL_NAME",
    "CheckpointRecord",
    "LoadedCheckpoint",
    "find_checkpoint",
    "list_checkpoints",
    "load_checkpoint",
    "read_model_config",
    "read_record",
    "read_weights",
    "restore_checkpoint",
    "save_checkpoint",
]


@dataclass(frozen=True)
class LoadedCheckpoint:
    """A trained model with what belongs to it.

    Attributes:
        path: the checkpoint's folder.
        step: optimiser steps that it has seen; 0 for a Hugging Face folder, which does not say.
        model: in evaluation mode, on the device asked for.
        model_config: its sizes.
        tokenizer: the record of its tokenizer: vocabulary size and special ids.
        max_seq_length: tokens of a sequence at most in the data that it was trained on.
        tokenizer_json: the content of its `tokenizer.json`, for `tokenizers.Tokenizer.from_str`.
    """

    path: str
    step: int
    model: BertForPretraining
    model_config: ModelConfig
    tokenizer: TokenizerRecord
    max_seq_length: int
    tokenizer_json: str

    @property
    def tokenizer_path(self) -> str:
        """Where its `tokenizer.json` lies."""
        return f"{self.path}/{TOKENIZER_NAME}"


def save_checkpoint(
    run: OutputFolder, record: CheckpointRecord, state: NamedState, tokenizer_json: bytes, keep: int
) -> str:
    """Write a checkpoint, then remove all but the newest.

    Args:
        run: the run folder.
        record: of the step; its `files` are filled in here.
        state: what is written, from any device.
        tokenizer_json: content of the run's `tokenizer.json`.
        keep: checkpoints that stay.

    Returns:
        The checkpoint's name relative to the run.

    Raises:
        ClozelineError: it could not be written (a full disk, no permission); no part of it is left.
    """
    name = checkpoint_name(record.step)
    with run.write_subfolder(name, MARKER_NAME) as writer:
        with writer.open(MODEL_NAME) as file:
            write_tensors(file, state.weights)
        with writer.open(OPTIMISER_NAME) as file:
            write_tensors(file, state.optimiser)
        writer.write(TOKENIZER_NAME, tokenizer_json)
        whole = record.model_copy(update={"files": tuple(writer.records)})
        writer.write(MARKER_NAME, whole.to_sealed_json())
    for old in list_checkpoints(run)[:-keep]:
        run.remove(old, MARKER_NAME)
    return name


def restore_checkpoint(
    run: OutputFolder, name: str, model: nn.Module, optimiser: torch.optim.Optimizer
) -> CheckpointRecord:
    """Put a model and its optimiser back to a checkpoint's state, in place.

    Raises:
        CorruptDataError: a file is missing, truncated or changed, or belongs to another model.
    """
    record = read_record(run, name)
    copy_weights(model, read_weights(run, name, record), run.locate(f"{name}/{MODEL_NAME}"))
    tensors = _read_tensors(run, name, record, OPTIMISER_NAME)
    restore_optimiser(model, optimiser, tensors, run.locate(f"{name}/{OPTIMISER_NAME}"))
    return record


def load_checkpoint(path: str, device: str = "cpu") -> LoadedCheckpoint:
    """Load a trained model for evaluation.

    Args:
        path: a run folder, of which the newest checkpoint is taken, the folder of one checkpoint, or a
            Hugging Face folder with `model.safetensors` and `tokenizer.json`, as `clozeline export` writes.
        device: where the model goes: `cpu`, `cuda`, `cuda:N` or `auto`.

    Raises:
        UsageError: there is no checkpoint, or no such device, or the folder holds another kind of model.
        CorruptDataError: a file of it is missing, truncated or changed.
    """
    target = choose_device(device)
    if _is_hugging_face(OutputFolder(path)):
        return _load_hugging_face(OutputFolder(path), target)
    folder, name = find_checkpoint(path)
    record = read_record(folder, name)
    model = BertForPretraining(record.model)
    copy_weights(
        model, _read_tensors(folder, name, record, MODEL_NAME), folder.locate(f"{name}/{MODEL_NAME}")
    )
    tokenizer_json = _read_checked(folder, name, record, TOKENIZER_NAME)
    return LoadedCheckpoint(
        path=folder.locate(name),
        step=record.step,
        model=model.to(target).eval(),
        model_config=record.model,
        tokenizer=record.tokenizer,
        max_seq_length=record.max_seq_length,
        tokenizer_json=tokenizer_json.decode(),
    )


def read_model_config(path: str) -> ModelConfig:
    """The sizes of a trained model, without reading its weights.

    Args:
        path: as in `load_checkpoint`.

    Raises:
        UsageError: there is no checkpoint, or the folder holds another kind of model.
        CorruptDataError: its record is malformed.
    """
    if _is_hugging_face(OutputFolder(path)):
        return read_hugging_face_config(OutputFolder(path))
    return read_record(*find_checkpoint(path)).model


def find_checkpoint(path: str) -> tuple[OutputFolder, str]:
    """The checkpoint that a path means: its folder, and its name in it ("" where the path is the checkpoint).

    Raises:
        UsageError: there is none.
    """
    folder = OutputFolder(path)
    if folder.exists(MARKER_NAME):
        return folder, ""
    if not folder.exists():
        raise UsageError(
            f"{path}: no such run or checkpoint.\n"
            "Give a run, one of its checkpoints, or a folder of save_pretrained; nothing is downloaded."
        )
    checkpoints = list_checkpoints(folder)
    if not checkpoints:
        raise UsageError(
            f"{path} holds no checkpoint: expected {CHECKPOINTS_NAME}/step-…/{MARKER_NAME}.\n"
            f"Give a run folder whose training has saved at least once, or one of its checkpoints."
        )
    return folder, checkpoints[-1]


def read_weights(folder: OutputFolder, name: str, record: CheckpointRecord) -> dict[str, Tensor]:
    """The weights of a checkpoint by parameter name, on the CPU.

    Raises:
        CorruptDataError: the file is missing, truncated or changed.
    """
    return _read_tensors(folder, name, record, MODEL_NAME)


def _is_hugging_face(folder: OutputFolder) -> bool:
    return holds_hugging_face_model(folder) and not folder.exists(MARKER_NAME)


def _load_hugging_face(folder: OutputFolder, device: torch.device) -> LoadedCheckpoint:
    found = read_hugging_face_model(folder)
    return LoadedCheckpoint(
        path=folder.path,
        step=0,
        model=found.model.to(device),
        model_config=found.config,
        tokenizer=found.tokenizer,
        max_seq_length=found.max_seq_length,
        tokenizer_json=found.tokenizer_json,
    )


def _read_tensors(folder: OutputFolder, name: str, record: CheckpointRecord, file: str) -> dict[str, Tensor]:
    relative = f"{name}/{file}" if name else file
    if folder.is_local:
        _check_local(folder, name, record, file)
        return read_tensor_file(folder.local_path(relative))
    return parse_tensors(_read_checked(folder, name, record, file), folder.locate(relative))


def _check_local(folder: OutputFolder, name: str, record: CheckpointRecord, file: str) -> None:
    relative = f"{name}/{file}" if name else file
    try:
        with open(folder.local_path(relative), "rb") as stream:
            digest = hashlib.file_digest(stream, "sha256")
            size_bytes = stream.tell()
    except FileNotFoundError:
        raise _damaged(folder, name, file, "is missing") from None
    except OSError as error:
        raise ClozelineError(f"{folder.locate(relative)} could not be read: {error.strerror}.") from error
    _check(folder, name, record, file, size_bytes, digest.hexdigest())


def _read_checked(folder: OutputFolder, name: str, record: CheckpointRecord, file: str) -> bytes:
    relative = f"{name}/{file}" if name else file
    if not folder.exists(relative):
        raise _damaged(folder, name, file, "is missing")
    content = folder.read_bytes(relative)
    _check(folder, name, record, file, len(content), hashlib.sha256(content).hexdigest())
    return content


def _check(
    folder: OutputFolder, name: str, record: CheckpointRecord, file: str, size_bytes: int, sha256: str
) -> None:
    expected = next((entry for entry in record.files if entry.name == file), None)
    if expected is None:
        raise _damaged(folder, name, file, "is not in the checkpoint's list of files")
    if size_bytes != expected.size_bytes:
        raise _damaged(folder, name, file, f"has {size_bytes} bytes where {expected.size_bytes} were written")
    if sha256 != expected.sha256:
        raise _damaged(folder, name, file, "has the right size but other content than was written")


def _damaged(folder: OutputFolder, name: str, file: str, found: str) -> CorruptDataError:
    relative = f"{name}/{file}" if name else file
    return CorruptDataError(f"{folder.locate(relative)} {found}.\n{explain_remedy(folder, name)}")
