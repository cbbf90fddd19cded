"""The global steps of one rank, one after the other.

In: where to read, the order, the lanes of this rank and where they stand. Out: lists of microbatches.
Deterministic: what the order says; the thread that reads ahead changes when a window is read, never what it
gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch

from schemas.errors import UsageError
from trainer.data.batches import Batch, assemble_batch
from trainer.data.example_arrays import ExampleArrays
from trainer.data.microbatches import Microbatch
from trainer.data.order import Cursor, Order
from trainer.data.packed_batches import FixedSizes, assemble_packed_batch
from trainer.data.shard_source import ShardSource

# So early before its end is a lane's next window read: the memory of two windows is held only for so long.
READ_AHEAD_MICROBATCHES = 64


@dataclass(frozen=True)
class _LoadedWindow:
    examples: ExampleArrays
    microbatches: list[Microbatch]


class _WindowKey(NamedTuple):
    lane: int
    epoch: int
    position: int


class Step(NamedTuple):
    """A global step of one rank: its microbatches by lane, and where these lanes stand after it."""

    microbatches: list[Batch]
    cursors: dict[int, Cursor]


class StepMaker:
    """Endless iterator over the steps of a rank.

    Args:
        source: where windows are read.
        order: which examples come when.
        lanes: of this rank, ascending.
        start: where these lanes stand, at least.
        fixed_sizes: of packed batches, so that all have the same shapes; None leaves them as small as can be.
        pin_memory: put batches into page-locked memory.
        read_ahead: read a lane's next window in a thread before the current one ends.
    """

    def __init__(
        self,
        source: ShardSource,
        order: Order,
        lanes: Sequence[int],
        start: Mapping[int, Cursor],
        *,
        fixed_sizes: FixedSizes | None = None,
        pin_memory: bool,
        read_ahead: bool,
    ) -> None:
        self._source = source
        self._order = order
        self._cursors = {lane: start[lane] for lane in lanes}
        self._fixed_sizes = fixed_sizes
        # The device of the thread that makes the loader: another one would open a context on device 0.
        self._pinning_device = torch.cuda.current_device() if pin_memory else None
        self._windows: dict[_WindowKey, _LoadedWindow] = {}
        self._coming: dict[_WindowKey, Future[_LoadedWindow]] = {}
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="clozeline-window") if read_ahead else None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Step:
        microbatches = [self._next_microbatch(lane) for lane in self._cursors]
        return Step(microbatches, dict(self._cursors))

    def close(self) -> None:
        """Stop reading ahead. Making another step may fail then."""
        if self._reader is not None:
            self._reader.shutdown(wait=False, cancel_futures=True)

    def _next_microbatch(self, lane: int) -> Batch:
        cursor = self._cursors[lane]
        key = _WindowKey(lane, cursor.epoch, cursor.position)
        loaded = self._windows.get(key) or self._take_window(key)
        batch = self._assemble(loaded, lane, cursor)
        following = self._order.next_window(cursor)
        remaining = len(loaded.microbatches) - cursor.offset - 1
        if remaining == 0:
            del self._windows[key]
            self._cursors[lane] = following
        else:
            self._cursors[lane] = cursor._replace(offset=cursor.offset + 1)
        if 0 < remaining < READ_AHEAD_MICROBATCHES:
            self._request(lane, following)
        if self._pinning_device is None:
            return batch
        with torch.cuda.device(self._pinning_device):
            return batch.pin_memory()

    def _assemble(self, loaded: _LoadedWindow, lane: int, cursor: Cursor) -> Batch:
        if cursor.offset >= len(loaded.microbatches):
            raise UsageError(
                f"The position in the data is malformed: lane {lane} stands at {tuple(cursor)}, but its "
                f"window has {len(loaded.microbatches)} microbatches."
            )
        microbatch = loaded.microbatches[cursor.offset]
        pad_id, row_length = self._source.pad_id, self._order.row_length
        if row_length is None:
            return assemble_batch(loaded.examples, microbatch.examples, pad_id)
        return assemble_packed_batch(loaded.examples, microbatch, row_length, pad_id, self._fixed_sizes)

    def _request(self, lane: int, cursor: Cursor) -> None:
        key = _WindowKey(lane, cursor.epoch, cursor.position)
        if key not in self._coming and self._reader is not None:
            self._coming[key] = self._reader.submit(self._load, key)

    def _take_window(self, key: _WindowKey) -> _LoadedWindow:
        future = self._coming.pop(key, None)
        loaded = self._load(key) if future is None else future.result()
        self._windows[key] = loaded
        return loaded

    def _load(self, key: _WindowKey) -> _LoadedWindow:
        window = self._order.window_at(key.lane, Cursor(key.epoch, key.position, 0))
        examples = self._source.read_window(window)
        return _LoadedWindow(examples, self._order.microbatches(window, examples.lengths))
