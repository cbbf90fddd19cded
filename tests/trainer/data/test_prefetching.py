from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from trainer.data.prefetching import Prefetcher


class Counting:
    """0, 1, 2, … up to an error; tells how many were made."""

    def __init__(self, end: int | None = None) -> None:
        self.num_made = 0
        self.made = threading.Semaphore(0)
        self._end = end

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self.num_made == self._end:
            raise ValueError("the end of the test")
        self.num_made += 1
        self.made.release()
        return self.num_made - 1


def test_items_come_in_order_and_the_error_in_its_place() -> None:
    prefetcher = Prefetcher(Counting(end=20), 3, "test")
    assert [prefetcher.get() for _ in range(20)] == list(range(20))
    with pytest.raises(ValueError, match="the end of the test"):
        prefetcher.get()
    prefetcher.close()


def test_the_end_of_the_iterator_comes_out_as_such() -> None:
    prefetcher = Prefetcher(iter([7]), 3, "test")
    assert prefetcher.get() == 7
    with pytest.raises(StopIteration):
        prefetcher.get()
    prefetcher.close()


def test_at_most_so_many_items_are_made_ahead() -> None:
    items = Counting()
    prefetcher = Prefetcher(items, 3, "test")
    # Three wait in the queue and one in the hands of the thread, which can't put it down.
    for _ in range(4):
        items.made.acquire()
    assert not items.made.acquire(timeout=0.3)
    assert prefetcher.get() == 0
    items.made.acquire()
    assert not items.made.acquire(timeout=0.3)
    prefetcher.close()
    assert items.num_made == 5


def test_closing_ends_the_thread_though_the_queue_is_full() -> None:
    prefetcher = Prefetcher(Counting(), 1, "a thread to be ended")
    prefetcher.close()
    assert "a thread to be ended" not in [thread.name for thread in threading.enumerate()]
