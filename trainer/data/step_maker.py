"""The global steps of one rank, one after the other.

In: where to read, the order, the lanes of this rank and where they stand. Out: lists of microbatches.
Deterministic: what the order says; the thread that reads ahead changes when a window is read, never what it
gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from trainer.data.batches import Batch, assemble_batch
from trainer.data.example_arrays import ExampleArrays
from trainer.data.order import Cursor, Order
from trainer.data.shard_source import ShardSource

# So early before its end is a lane's next window read: the memory of two windows is held only for so long.
READ_AHEAD_MICROBATCHES = 64


@dataclass(frozen=True)
class _LoadedWindow:
    examples: ExampleArrays
    microbatches: list[NDArray[np.int64]]


class _WindowKey(NamedTuple):
    lane: int
    epoch: int
    position: int


class StepMaker:
    """Endless iterator over the steps of a rank.

    Args:
        source: where windows are read.
        order: which examples come when.
        lanes: of this rank, ascending.
        start: where every lane of the run stands, by its number.
        pin_memory: put batches into page-locked memory.
        read_ahead: read a lane's next window in a thread before the current one ends.
    """

    def __init__(
        self,
        source: ShardSource,
        order: Order,
        lanes: Sequence[int],
        start: Sequence[Cursor],
        *,
        pin_memory: bool,
        read_ahead: bool,
    ) -> None:
        self._source = source
        self._order = order
        self._cursors = {lane: start[lane] for lane in lanes}
        # The device of the thread that makes the loader: another one would open a context on device 0.
        self._pinning_device = torch.cuda.current_device() if pin_memory else None
        self._windows: dict[_WindowKey, _LoadedWindow] = {}
        self._coming: dict[_WindowKey, Future[_LoadedWindow]] = {}
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="clozeline-window") if read_ahead else None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> list[Batch]:
        return [self._next_microbatch(lane) for lane in self._cursors]

    def close(self) -> None:
        """Stop reading ahead. Making another step may fail then."""
        if self._reader is not None:
            self._reader.shutdown(wait=False, cancel_futures=True)

    def _next_microbatch(self, lane: int) -> Batch:
        cursor = self._cursors[lane]
        key = _WindowKey(lane, cursor.epoch, cursor.position)
        loaded = self._windows.get(key) or self._take_window(key)
        indices = loaded.microbatches[cursor.offset]
        batch = assemble_batch(loaded.examples, indices, self._source.pad_id)
        self._cursors[lane] = following = self._order.advance(lane, cursor, 1)
        remaining = len(loaded.microbatches) - cursor.offset
        if (following.epoch, following.position) != (cursor.epoch, cursor.position):
            del self._windows[key]
        elif self._reader is not None and remaining <= READ_AHEAD_MICROBATCHES:
            self._request(lane, self._order.advance(lane, cursor, remaining))
        if self._pinning_device is None:
            return batch
        with torch.cuda.device(self._pinning_device):
            return batch.pin_memory()

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
