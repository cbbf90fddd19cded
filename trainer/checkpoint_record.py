"""The record of a checkpoint, and which checkpoints a run has.

    checkpoints/step-00001000/
        model.safetensors       the weights, by parameter name
        optimiser.safetensors   the optimiser's state, as `<parameter name>/<state name>`
        tokenizer.json          the vocabulary of the data
        checkpoint.json         the step, the model's sizes, the position in the stream; size and SHA-256 of
                                the files above and of itself; written last: a folder without it is no
                                checkpoint

In: a run's folder. Out: names and checked records. Nothing here is random.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import ValidationError

from schemas.errors import CorruptDataError
from schemas.manifests import Count, TokenizerRecord
from trainer.model.config import ModelConfig
from trainer.output_folder import FileRecord, OutputFolder
from trainer.sealed_record import SealedRecord, is_intact

CHECKPOINTS_NAME = "checkpoints"
MARKER_NAME = "checkpoint.json"
MODEL_NAME = "model.safetensors"
OPTIMISER_NAME = "optimiser.safetensors"
_STEP_FOLDER = re.compile(r"^step-(\d{8,})$")


class CheckpointRecord(SealedRecord):
    """`checkpoint.json`.

    Attributes:
        step: optimiser steps that were taken.
        model: sizes of the model.
        tokenizer: which tokenizer made the ids that the model was trained on.
        max_seq_length: tokens of a sequence at most in the data; positions beyond were never trained.
        progress: what the training loop needs to go on: the position in the stream and its running sums.
        files: the other files of the folder.
    """

    format: Literal["clozeline-checkpoint"] = "clozeline-checkpoint"
    version: Literal[1] = 1
    created_by: str
    step: Count
    model: ModelConfig
    tokenizer: TokenizerRecord
    max_seq_length: Count
    progress: dict[str, Any]
    files: tuple[FileRecord, ...] = ()


def checkpoint_name(step: int) -> str:
    """The folder of a step, relative to the run: `checkpoints/step-00001000`."""
    return f"{CHECKPOINTS_NAME}/step-{step:08d}"


def list_checkpoints(run: OutputFolder) -> list[str]:
    """Names of the run's whole checkpoints relative to it, oldest first."""
    found = [
        (int(match[1]), match[0])
        for match in map(_STEP_FOLDER.match, run.list_names(CHECKPOINTS_NAME))
        if match
    ]
    names = [f"{CHECKPOINTS_NAME}/{base}" for _, base in sorted(found)]
    return [name for name in names if run.exists(f"{name}/{MARKER_NAME}")]


def read_record(run: OutputFolder, name: str) -> CheckpointRecord:
    """The record of a checkpoint.

    Raises:
        CorruptDataError: it is malformed or was changed.
    """
    path = run.locate(f"{name}/{MARKER_NAME}" if name else MARKER_NAME)
    content = run.read_bytes(f"{name}/{MARKER_NAME}" if name else MARKER_NAME)
    try:
        record = CheckpointRecord.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise CorruptDataError(
            f"{path} is no valid checkpoint record: {where}: {first['msg']}.\n{explain_remedy(run, name)}"
        ) from None
    if not is_intact(content):
        raise CorruptDataError(f"{path} was changed since it was written.\n{explain_remedy(run, name)}")
    return record


def explain_remedy(folder: OutputFolder, name: str) -> str:
    """What to do about a damaged checkpoint: the second line of a message."""
    others = [other for other in list_checkpoints(folder) if other != name] if name else []
    if others:
        return f"Remove {folder.locate(name)} to go on from {others[-1].rsplit('/', 1)[-1]}."
    return "Take another checkpoint of the run, or train it anew."
