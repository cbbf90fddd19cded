from __future__ import annotations

import signal
import threading

import pytest

from trainer.interruption import StopRequest, TrainingInterrupted, catch_signals, interrupt_at_sigterm


def test_the_first_signal_is_noted_and_the_second_ends_all() -> None:
    request = StopRequest()
    request.handle(signal.SIGINT, None)
    assert request.is_set
    with pytest.raises(KeyboardInterrupt):
        request.handle(signal.SIGINT, None)


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with catch_signals() as request:
        caught = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        assert caught == [request.handle, request.handle]
        assert not request.is_set
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_other_threads_leave_signals_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    found = []

    def look() -> None:
        with catch_signals() as request:
            found.extend([signal.getsignal(signal.SIGTERM) == before, request.is_set])

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [True, False]


def test_an_interrupted_run_is_no_ordinary_failure() -> None:
    assert issubclass(TrainingInterrupted, KeyboardInterrupt)
    assert not issubclass(TrainingInterrupted, Exception)


def test_before_the_first_step_sigterm_is_ctrl_c() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), interrupt_at_sigterm():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before
