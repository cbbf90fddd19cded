"""The processes of a run, and what they tell each other.

In: the environment that torchrun sets (`RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `MASTER_ADDR`, `MASTER_PORT`);
none of it means one process. Out: a `Ranks`, with sums over all ranks (NCCL between GPUs, Gloo between CPUs)
and JSON from one rank to the others; no object is pickled. Deterministic: a sum is taken in the same order
each time on the same number of ranks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from schemas.errors import ClozelineError, CorruptDataError, UsageError
from trainer.config import DEVICE_NAMES, is_device_name

# Gradients travel in flat pieces: large enough to use the wire, small enough to add little memory.
BUCKET_BYTES = 32 << 20
_ERRORS: tuple[type[ClozelineError], ...] = (UsageError, CorruptDataError, ClozelineError)
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Ranks:
    """One process of a run and its place among them.

    Attributes:
        rank: 0 … world_size - 1; rank 0 alone writes files.
        world_size: number of processes.
        device: where this process computes.
    """

    rank: int
    world_size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """The sum of a tensor over all ranks, in place."""
        if self.world_size > 1:
            with _explaining_lost_peers():
                dist.all_reduce(values, op=dist.ReduceOp.SUM)
        return values

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Replace every gradient by its sum over all ranks."""
        if self.world_size == 1:
            return
        with _explaining_lost_peers():
            self._sum_buckets(parameters)

    def _sum_buckets(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        pending = []
        for bucket in _cut_into_buckets(p.grad for p in parameters if p.grad is not None):
            flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
            pending.append((bucket, flat, dist.all_reduce(flat, op=dist.ReduceOp.SUM, async_op=True)))
        for bucket, flat, work in pending:
            work.wait()
            for gradient, summed in zip(bucket, torch.split(flat, [g.numel() for g in bucket]), strict=True):
                gradient.copy_(summed.view_as(gradient))

    def broadcast_json(self, value: Any) -> Any:
        """Rank 0's JSON value on every rank; what the others give is ignored."""
        if self.world_size == 1:
            return value
        mine = self._encode(value if self.is_first else None)
        size = torch.tensor([mine.numel()], device=self.device)
        with _explaining_lost_peers():
            dist.broadcast(size, src=0)
            content = mine if self.is_first else torch.zeros(int(size), dtype=torch.uint8, device=self.device)
            dist.broadcast(content, src=0)
        return self._decode(content)

    def gather_json(self, value: Any) -> list[Any]:
        """Every rank's JSON value on every rank, in the order of ranks."""
        if self.world_size == 1:
            return [value]
        mine = self._encode(value)
        sizes = torch.zeros(self.world_size, dtype=torch.int64, device=self.device)
        sizes[self.rank] = mine.numel()
        size_of = self.sum(sizes).tolist()
        padded = torch.zeros(max(size_of), dtype=torch.uint8, device=self.device)
        padded[: mine.numel()] = mine
        pieces = [torch.empty_like(padded) for _ in size_of]
        with _explaining_lost_peers():
            dist.all_gather(pieces, padded)
        return [self._decode(piece[:size]) for piece, size in zip(pieces, size_of, strict=True)]

    def run_on_first(self, work: Callable[[], ResultT]) -> ResultT | None:
        """Do something on rank 0 only, with every rank waiting for it.

        Returns:
            What it returned, on rank 0; None elsewhere.

        Raises:
            ClozelineError: the work raised it; it is raised on every rank, so that none waits for a dead one.
        """
        result, failure = None, None
        if self.is_first:
            try:
                result = work()
            except ClozelineError as error:
                if self.world_size == 1:
                    raise
                failure = error
        shared = self.broadcast_json(None if failure is None else [_error_kind(failure), str(failure)])
        if failure is not None:
            raise failure
        if shared is not None:
            kind, message = shared
            raise _ERRORS[kind](message)
        return result

    def _encode(self, value: Any) -> Tensor:
        content = bytearray(json.dumps(value).encode())
        return torch.frombuffer(content, dtype=torch.uint8).to(self.device)

    def _decode(self, content: Tensor) -> Any:
        return json.loads(content.cpu().numpy().tobytes())


@contextmanager
def join_ranks(device_name: str) -> Iterator[Ranks]:
    """Join the processes of the run, and leave them at the end.

    Args:
        device_name: `auto`, `cpu`, `cuda` or `cuda:N`.

    Raises:
        UsageError: a GPU was asked for that is not there.
    """
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    device = choose_device(device_name, int(os.environ.get("LOCAL_RANK", "0")))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    # A caller that has joined already (a script under torchrun) keeps its group.
    joins = world_size > 1 and not dist.is_initialized()
    if joins:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Ranks(rank=rank, world_size=world_size, device=device)
    finally:
        if joins:
            dist.destroy_process_group()


def choose_device(name: str, local_rank: int = 0) -> torch.device:
    """The device that a name means for the process of this number on its machine.

    Raises:
        UsageError: it means none, or there is no such GPU.
    """
    if not is_device_name(name):
        raise UsageError(f"There is no device {name!r}. Give {DEVICE_NAMES}.")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if not name.startswith("cuda"):
        return torch.device(name)
    index = int(name.partition(":")[2] or local_rank)
    if index >= torch.cuda.device_count():
        raise UsageError(
            f"Device cuda:{index} was asked for, but torch finds {torch.cuda.device_count()} GPUs. "
            f"Use --device cpu, or fewer processes a machine."
        )
    return torch.device("cuda", index)


@contextmanager
def _explaining_lost_peers() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ClozelineError(
            f"Another process of this run has ended or can't be reached ({reason}).\n"
            f"Its own message says why; the run can be resumed from its newest checkpoint."
        ) from error


def _cut_into_buckets(gradients: Iterable[Tensor | None]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    size_bytes = 0
    for gradient in gradients:
        if gradient is None:
            continue
        bucket.append(gradient)
        size_bytes += gradient.numel() * gradient.element_size()
        if size_bytes >= BUCKET_BYTES:
            yield bucket
            bucket, size_bytes = [], 0
    if bucket:
        yield bucket


def _error_kind(error: ClozelineError) -> int:
    return next(kind for kind, error_class in enumerate(_ERRORS) if isinstance(error, error_class))
