"""Checkpoints written aside, while training goes on.

In: the state between two steps. Out: a checkpoint, some time later. The state is first copied to memory of
this process's own: from a GPU without waiting, since whatever changes the weights comes after the copy in the
same queue. A thread writes the copy. One checkpoint is written at a time, and the memory is kept for the next
one. Deterministic: the bytes are those of the state at the moment of the call.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from trainer.checkpoint_record import CheckpointRecord
from trainer.checkpoints import save_checkpoint
from trainer.named_state import NamedState, name_state
from trainer.output_folder import OutputFolder

WRITER_THREAD_NAME = "clozeline-checkpoint"


class CheckpointWriter:
    """Writes the checkpoints of a run.

    Args:
        run: its folder, held by this process.
        tokenizer_json: goes into every checkpoint.
        keep: checkpoints that stay.
    """

    def __init__(self, run: OutputFolder, tokenizer_json: bytes, keep: int) -> None:
        self._run = run
        self._tokenizer_json = tokenizer_json
        self._keep = keep
        self._weights, self._optimiser = _HostCopies(), _HostCopies()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    @property
    def has_failed(self) -> bool:
        """Whether `wait` would raise; asking does not wait."""
        return self._failure is not None

    def begin(self, record: CheckpointRecord, model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        """Copy the state and begin to write it, once the checkpoint before is written.

        Args:
            record: of the step.
            model: its parameters are written.
            optimiser: over parameters of the model.

        Raises:
            ClozelineError: the checkpoint before could not be written.
        """
        self.wait()
        state = name_state(model, optimiser)
        copy = NamedState(self._weights.take(state.weights), self._optimiser.take(state.optimiser))
        arrival = None
        if torch.cuda.is_available() and any(tensor.is_cuda for tensor in state.weights.values()):
            arrival = torch.cuda.Event()  # type: ignore[no-untyped-call]
            arrival.record()
        # A daemon: a second signal ends the process at once, and what is half written is removed at the next
        # start. In every other case `wait` is called before the end.
        self._thread = threading.Thread(
            target=self._write, args=(record, copy, arrival), name=WRITER_THREAD_NAME, daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Wait until nothing is being written.

        Raises:
            ClozelineError: a checkpoint could not be written (a full disk, no permission); no part of it is
                left.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            raise self._failure

    def _write(self, record: CheckpointRecord, state: NamedState, arrival: torch.cuda.Event | None) -> None:
        try:
            if arrival is not None:
                arrival.synchronize()
            save_checkpoint(self._run, record, state, self._tokenizer_json, self._keep)
        except BaseException as error:
            self._failure = error


class _HostCopies:
    """Copies of named tensors in memory that is kept: allocating it anew costs as much as the copying."""

    def __init__(self) -> None:
        self._copies: dict[str, Tensor] = {}

    def take(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Copy the tensors over those of the last time; from a GPU they arrive later."""
        copies = {name: self._fitting(name, tensor) for name, tensor in tensors.items()}
        with torch.no_grad():
            for name, tensor in tensors.items():
                copies[name].copy_(tensor, non_blocking=True)
        self._copies = copies
        return copies

    def _fitting(self, name: str, tensor: Tensor) -> Tensor:
        kept = self._copies.get(name)
        if kept is not None and (kept.shape, kept.dtype) == (tensor.shape, tensor.dtype):
            return kept
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
