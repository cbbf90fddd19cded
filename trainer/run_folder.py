"""The folder of a run: who may write to it, what it was begun with, and whether it may go on.

    run/config.json      RunRecord: the configuration and what was settled from it; written first
    run/tokenizer.json   the vocabulary of the data
    run/metrics.jsonl    one object a logged step
    run/nonfinite.jsonl  one object a step whose loss was not finite, with the places of its examples
    run/checkpoints/     step-00001000/, …
    run/tensorboard/     event files

In: an output path and a configuration. Out: a folder held by this process alone (on a local disk), with the
record of the run that is in it, if one is. An existing run is never overwritten unless that was asked for.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import Literal

from pydantic import ValidationError

from schemas.errors import ClozelineError, CorruptDataError, UsageError
from schemas.manifests import TOKENIZER_NAME, Sha256, TokenizerRecord
from trainer.checkpoint_record import CHECKPOINTS_NAME
from trainer.config import TrainConfig, TrainPlan
from trainer.model.config import ModelConfig
from trainer.output_folder import OutputFolder
from trainer.sealed_record import SealedRecord, is_intact

CONFIG_NAME = "config.json"
METRICS_NAME = "metrics.jsonl"
NONFINITE_NAME = "nonfinite.jsonl"
TENSORBOARD_NAME = "tensorboard"
_OWN_NAMES = (CHECKPOINTS_NAME, METRICS_NAME, NONFINITE_NAME, TENSORBOARD_NAME, TOKENIZER_NAME, CONFIG_NAME)
_LARGEST_CONFIG_BYTES = 1 << 24


class RunRecord(SealedRecord):
    """`config.json` of a run.

    Attributes:
        config: what the person chose.
        plan: what was settled from it at the start.
        model: sizes of the model.
        precision: what the forward pass computes in.
        tokenizer: the tokenizer of the data.
        dataset_fingerprint: SHA-256 of the data's manifests; a resumed run must find the same data.
    """

    format: Literal["clozeline-run"] = "clozeline-run"
    version: Literal[1] = 1
    created_by: str
    config: TrainConfig
    plan: TrainPlan
    model: ModelConfig
    precision: Literal["fp32", "bf16"]
    tokenizer: TokenizerRecord
    dataset_fingerprint: Sha256

    def require_same_data(self, fingerprint: str, urls: tuple[str, ...]) -> None:
        """Check the data against that which the run began with.

        Raises:
            UsageError: it is other data.
        """
        if fingerprint != self.dataset_fingerprint:
            raise UsageError(
                f"{', '.join(urls)} is not the data that the run in {self.config.output} began with "
                f"(its manifest has changed).\nPut that data back, or train to another --output."
            )

    def require_same_model(self, model: ModelConfig) -> None:
        """Check the sizes of the model against those which the run began with.

        Raises:
            UsageError: they are others.
        """
        ours, theirs = self.model.model_dump(), model.model_dump()
        differing = [name for name in ours if ours[name] != theirs[name]]
        if differing:
            differences = ", ".join(f"{name} {ours[name]} there, {theirs[name]} now" for name in differing)
            raise UsageError(
                f"{self.config.output} holds a run of another model: {differences}.\n"
                f"Give another --output, or --overwrite to replace it."
            )


class RunFolder(OutputFolder):
    """A run's folder, held by this process until `release`."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._lock: int | None = None
        self._is_new = False

    def acquire(self) -> None:
        """Make the folder if needed and hold it against other trainers.

        Raises:
            UsageError: nothing can be written to such a URL.
            ClozelineError: another process trains to it, or it can't be written to.
        """
        if self.is_read_only:
            raise UsageError(f"{self.path} can be read only.\nGive a local path, or a gs:// or s3:// URL.")
        if not self.is_local:
            return
        root = self.local_path("")
        with self.naming("", "written"):
            self._is_new = not os.path.lexists(root)
            os.makedirs(root, exist_ok=True)
            if not os.access(root, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            self._lock = os.open(root, os.O_RDONLY)
        if not _try_to_lock(self._lock):
            self.release()
            raise ClozelineError(
                f"{self.path} is in use by another clozeline process.\nWait for it, or give another --output."
            )
        self.remove_leftovers()
        self.remove_leftovers(CHECKPOINTS_NAME)

    def release(self) -> None:
        """Let others train to the folder; one that was made for nothing goes away."""
        if self._is_new:
            with suppress(OSError):
                os.rmdir(self.local_path(""))
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def read_record(self) -> RunRecord | None:
        """The record of the run in the folder; None where there is no run.

        Raises:
            UsageError: the folder holds something else.
            CorruptDataError: the record is malformed.
        """
        if self.exists(CONFIG_NAME):
            return parse_record(self.read_bytes(CONFIG_NAME), self.locate(CONFIG_NAME))
        strange = [name for name in self.list_names() if not name.startswith(".")]
        if strange:
            raise UsageError(
                f"{self.path} is not empty and holds no run of clozeline (found {strange[0]}, no "
                f"{CONFIG_NAME}).\nGive a new folder as --output."
            )
        return None

    def is_a_run(self) -> bool:
        """Whether `config.json` is of a run, maybe damaged: also models of other programs have that file."""
        if self.exists(CHECKPOINTS_NAME) or self.exists(METRICS_NAME):
            return True
        return b"created_by" in self.read_bytes(CONFIG_NAME)

    def clear(self) -> None:
        """Remove the run in the folder: its record last, so that an interrupted removal is still a run."""
        for name in _OWN_NAMES:
            self.remove(name)

    def begin(self, record: RunRecord, tokenizer_json: bytes) -> None:
        """Write the record of a new run, or complete one that was killed while it began."""
        if not self.exists(CONFIG_NAME):
            self.write_bytes(CONFIG_NAME, record.to_sealed_json())
        if not self.exists(TOKENIZER_NAME):
            self.write_bytes(TOKENIZER_NAME, tokenizer_json)


def find_run(folder: RunFolder, config: TrainConfig, overwrite: bool) -> RunRecord | None:
    """The run in a held folder that this configuration goes on with; None where it begins one.

    Args:
        folder: held by this process.
        config: what is to be trained now.
        overwrite: remove a run of another configuration.

    Raises:
        UsageError: the folder holds a run of another configuration, or no run at all.
    """
    if folder.exists(CONFIG_NAME) and not folder.is_a_run():
        raise UsageError(
            f"{folder.path} holds a {CONFIG_NAME} that is no run's, and no checkpoints of one.\n"
            "Give another --output: what is there may be a model of another program."
        )
    if overwrite:
        # Also what can't be parsed any more; but never a folder that was no run.
        if not folder.exists(CONFIG_NAME):
            folder.read_record()
        folder.clear()
        return None
    record = folder.read_record()
    if record is None:
        return None
    differences = record.config.differences(config)
    if differences:
        raise UsageError(
            f"{folder.path} holds a run with other values: {'; '.join(differences)}.\n"
            f"{_explain_choices(folder.path, record.config, config)}"
        )
    return record


def _explain_choices(path: str, ours: TrainConfig, theirs: TrainConfig) -> str:
    if (ours.steps, ours.minutes) != (theirs.steps, theirs.minutes):
        return (
            f"A run keeps its length: to train longer from its weights, give another --output and "
            f"`--init {path}`; or `--resume {path}` as it was begun, or --overwrite to replace it."
        )
    return f"Give another --output, `--resume {path}` to go on with that run, or --overwrite to replace it."


def parse_record(content: bytes, path: str) -> RunRecord:
    """Parse `config.json` of a run.

    Raises:
        CorruptDataError: it is malformed or was changed; the message names `path`.
    """
    try:
        if len(content) > _LARGEST_CONFIG_BYTES:
            raise ValueError
        record = RunRecord.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        found = f"{'.'.join(str(part) for part in first['loc']) or 'the file'}: {first['msg']}"
    except ValueError:
        found = f"{len(content)} bytes"
    else:
        if is_intact(content):
            return record.model_copy(update={"checksum": None})
        raise CorruptDataError(
            f"{path} was changed since the run began: its checksum is that of other values.\n"
            f"Put the file back; or, if you changed it, remove its checksum. --overwrite trains anew."
        )
    raise CorruptDataError(
        f"{path} is no valid record of a run: {found}.\nGive another --output, or --overwrite to train anew."
    )


def _try_to_lock(descriptor: int) -> bool:
    try:
        import fcntl
    except ImportError:  # not on Windows, where nothing holds the folder
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # File systems that can't lock are trusted to be used with care.
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True
