"""SIGINT and SIGTERM while a run trains: noted, and acted upon between two steps.

In: signals to this process. Out: a flag that the loop reads, so that it can write a checkpoint first. A
second signal of the kind ends the process at once, and so does the first before there is anything to save.
Nothing here is random.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class TrainingInterrupted(KeyboardInterrupt):
    """The run was asked to stop and can be resumed; the message says how.

    A KeyboardInterrupt, so that no `except Exception` on the way takes it for a failure.
    """


class StopRequest:
    """Whether this process was asked to stop."""

    def __init__(self) -> None:
        self.is_set = False

    def handle(self, signal_number: int, frame: FrameType | None) -> None:
        """Note a signal; at the second, stop at once."""
        if self.is_set:
            raise KeyboardInterrupt
        self.is_set = True


@contextmanager
def interrupt_at_sigterm() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does within the block; outside of the main thread signals are left alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def catch_signals() -> Iterator[StopRequest]:
    """Note SIGINT and SIGTERM within the block; outside of the main thread signals are left alone."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before: dict[signal.Signals, Any] = {number: signal.signal(number, request.handle) for number in _SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
