"""Pieces of work for processes, which must be able to import them; run as a program, work that never ends."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from workflows.verifying.processes import spread


def square(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


def fail_at_two(number: int) -> int:
    if number == 2:
        raise ValueError("two is not wanted")
    return number


def die_at_two(number: int) -> int:
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def work_for_ever(folder: str) -> None:
    Path(folder, str(os.getpid())).touch()
    time.sleep(600)


if __name__ == "__main__":
    for _ in spread(work_for_ever, [sys.argv[1]] * 2, workers=2):
        pass
