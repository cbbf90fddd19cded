"""Scalars for TensorBoard: one event file a process.

In: numbers by name, at a step. Out: a file in a folder that `tensorboard --logdir` shows, in TensorFlow's
record format. tensorboard's own writer works in a thread, which on a full disk prints a traceback and lets
the caller know at some later call; this one writes where it is called, so that a failure comes out at once.
But for times and the file's name, the same numbers give the same records.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from typing import Any

_FILE_VERSION = "brain.Event:2"


class EventFile:
    """Appends to an event file of its own.

    Args:
        folder: made if needed.
        purge_step: what earlier files of the folder hold from this step on is hidden.

    Raises:
        OSError: whatever the file system raises, here and in every method.
    """

    def __init__(self, folder: str, purge_step: int) -> None:
        # Loaded here: it takes as long as the rest of a small run's start, and only rank 0 needs it.
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary = Event, Summary
        os.makedirs(folder, exist_ok=True)
        # TensorBoard reads the files of a folder in the order of their names.
        now = time.time_ns()
        name = f"events.out.tfevents.{now // 10**9}.{socket.gethostname()}.{os.getpid()}.{now}"
        self._file = open(os.path.join(folder, name), "xb")  # noqa: SIM115
        self._records: Any = RecordWriter(self._file)
        self._append(file_version=_FILE_VERSION)
        self._append(step=purge_step, session_log=SessionLog(status=SessionLog.START))

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Write the scalars of one step."""
        values = [self._summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        self._append(step=step, summary=self._summary(value=values))
        self._file.flush()

    def flush(self) -> None:
        """Bring all to the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _append(self, **fields: Any) -> None:
        self._records.write(self._event(wall_time=time.time(), **fields).SerializeToString())
