"""One process at a time on an output folder of this machine.

In: a lock file. Out: the lock, or an error that names who has it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator

from schemas.errors import ClozelineError


@contextlib.contextmanager
def hold_lock(path: str, output: str) -> Iterator[None]:
    """Hold the lock of an output folder while the block runs.

    The kernel gives it back however the process ends. On a file system without locks nothing is held.

    Args:
        path: the lock file, made where it is missing.
        output: the folder that it guards, for the message.

    Raises:
        ClozelineError: another process holds it, or the file can't be written.
    """
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:  # the process that held it has just removed the folder
            os.makedirs(os.path.dirname(path), exist_ok=True)
            continue
        except OSError as error:
            raise ClozelineError(f"can't write {path}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
            os.close(descriptor)
            raise ClozelineError(
                f"{output} is being written by {holder}\nWait for it or end it; two can't write one output."
            ) from None
        except OSError:  # a file system without locks: better to work than not
            break
        if _is_same_file(descriptor, path):
            break
        os.close(descriptor)
    try:
        with contextlib.suppress(OSError):  # the words are a courtesy; a full disk is found out later
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _is_same_file(descriptor: int, path: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    return False
