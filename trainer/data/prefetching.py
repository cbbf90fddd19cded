"""An iterator run in a thread, a bounded number of items ahead.

In: any iterator. Out: the same items in the same order; an exception of the iterator comes out where its item
would have been. The thread ends with the iterator's first exception (its end is one), or when it is closed.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

_POLL_SECONDS = 0.1
_JOIN_SECONDS = 5.0

T = TypeVar("T")


class _Failure(NamedTuple):
    error: BaseException


class Prefetcher(Generic[T]):
    """Runs `items` in a thread of the given name, at most `num_ahead` items ahead of those taken."""

    def __init__(self, items: Iterator[T], num_ahead: int, name: str) -> None:
        self._results: queue.Queue[T | _Failure] = queue.Queue(maxsize=num_ahead)
        self._stopping = threading.Event()
        # A function for a target, not a method: the thread must not keep the prefetcher alive.
        self._thread = threading.Thread(
            target=_produce, args=(items, self._results, self._stopping), name=name, daemon=True
        )
        self._thread.start()

    def get(self) -> T:
        """The next item. Not to be called again after an exception, or after `close`."""
        item = self._results.get()
        if isinstance(item, _Failure):
            raise item.error
        return item

    def close(self) -> None:
        """Stop the thread, after the item that it is making."""
        self._stopping.set()
        if self._thread is not threading.current_thread():
            # It may be waiting to try a read again; as a daemon it holds up nobody then.
            self._thread.join(_JOIN_SECONDS)


def _produce(items: Iterator[T], results: queue.Queue[T | _Failure], stopping: threading.Event) -> None:
    while not stopping.is_set():
        item: T | _Failure
        try:
            item = next(items)
        except BaseException as error:
            item = _Failure(error)
        while not stopping.is_set():
            try:
                results.put(item, timeout=_POLL_SECONDS)
                break
            except queue.Full:
                continue
        if isinstance(item, _Failure):
            return
