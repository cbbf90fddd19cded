"""The same work on many files, spread over processes of this machine.

In: a function and the pieces of work. Out: its results as they come, each with the number of its piece.
Processes are started anew ("spawn"), since forking one that talks to an object store is not safe. One that
dies ends the work with an error; none outlives the work, Ctrl-C, or the death of the process that started it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from schemas.errors import ClozelineError

PieceT = TypeVar("PieceT")
ResultT = TypeVar("ResultT")

# A process takes about a second of work to start, in which a running one checks nearly so much.
_BYTES_WORTH_A_PROCESS = 200_000_000

# The work of this process, where it is one of several.
_work: Callable[[Any], Any]


def choose_workers(wanted: int | None, url: str, num_bytes: int) -> int:
    """How many processes are to share the files of a folder.

    Args:
        wanted: what the person asked for; None for one a core, but none that isn't worth its start.
        url: the folder.
        num_bytes: of its files.
    """
    if url.startswith("memory:"):
        return 1  # Such files live in the process that wrote them.
    if wanted is not None:
        return wanted
    num_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(num_cores, 1 + num_bytes // _BYTES_WORTH_A_PROCESS)


def spread(
    work: Callable[[PieceT], ResultT], pieces: Sequence[PieceT], workers: int
) -> Iterator[tuple[int, ResultT]]:
    """Do the work on each piece.

    Args:
        work: a function that can be pickled; sent once to each process.
        pieces: the largest first, so that all processes end at about the same time.
        workers: processes at most; with 1, or for one piece, none is started.

    Yields:
        (number of the piece, result), in the order in which they are done.

    Raises:
        ClozelineError: a process died.
    """
    workers = min(workers, len(pieces))
    if workers <= 1:
        for number, piece in enumerate(pieces):
            yield number, work(piece)
        return
    others = set(multiprocessing.active_children())
    executor = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(work,)
    )
    try:
        # Processes start here. Ctrl-C reaches every process of the terminal: this one alone is to take it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            numbers = {executor.submit(_do, piece): number for number, piece in enumerate(pieces)}
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for done in as_completed(numbers):
            yield numbers.pop(done), done.result()
    except BrokenProcessPool:
        raise ClozelineError(
            "a worker process died; the usual cause is too little memory.\n"
            "Run the same command again with fewer --workers."
        ) from None
    except BaseException:
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    finally:
        executor.shutdown(cancel_futures=True)


def _begin(work: Callable[[Any], Any]) -> None:
    global _work
    _work = work
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _do(piece: Any) -> Any:
    return _work(piece)
