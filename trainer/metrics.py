"""What a run reports while it trains: `metrics.jsonl` and TensorBoard scalars.

In: one flat dict a logged step, with its `step`. Out: a line of JSON and one scalar a number. After a resume
the file holds exactly what an uninterrupted run would: lines past the step that the run went back to are cut
off, and so is a line that a kill tore apart. Floats are written so that reading them gives the same bits.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from typing import Any, BinaryIO

from trainer.event_file import EventFile
from trainer.output_folder import OutputFolder
from trainer.run_folder import METRICS_NAME, TENSORBOARD_NAME


class MetricsLog:
    """Appends to `metrics.jsonl` and to TensorBoard's event files.

    Args:
        run: the run folder.
        resume_step: the step that the run goes on from; None for a run that begins.

    Away from a local disk nothing can be appended to: there the files are uploaded whole at each `flush`.
    """

    def __init__(self, run: OutputFolder, resume_step: int | None) -> None:
        self._run = run
        last = -1 if resume_step is None else resume_step
        content = run.read_bytes(METRICS_NAME) if run.exists(METRICS_NAME) else b""
        kept = keep_lines(content, last)
        self._pending = bytearray(kept)
        self._file: BinaryIO | None = None
        if run.is_local:
            if kept != content or not content:
                run.write_bytes(METRICS_NAME, kept)
            with run.naming(METRICS_NAME, "written"):
                self._file = open(run.local_path(METRICS_NAME), "ab")  # noqa: SIM115
            self._events_folder = run.local_path(TENSORBOARD_NAME)
        else:
            self._events_folder = tempfile.mkdtemp(prefix="clozeline-tensorboard-")
        with run.naming(TENSORBOARD_NAME, "written"):
            self._events = EventFile(self._events_folder, purge_step=last + 1)

    def write(self, metrics: dict[str, Any]) -> None:
        """Log one step.

        Args:
            metrics: JSON values, with `step`; the numbers become scalars.

        Raises:
            ClozelineError: the disk is full, or the like.
        """
        line = (json.dumps(metrics, allow_nan=False) + "\n").encode()
        with self._run.naming(METRICS_NAME, "written"):
            if self._file is not None:
                self._file.write(line)
                self._file.flush()
            else:
                self._pending += line
        scalars = {
            name.replace("validation_", "validation/"): value
            for name, value in metrics.items()
            if name != "step" and isinstance(value, (int, float))
        }
        with self._run.naming(TENSORBOARD_NAME, "written"):
            self._events.write(metrics["step"], scalars)

    def flush(self) -> None:
        """Bring all to where the run lies: before a checkpoint, so that none is ahead of its metrics."""
        with self._run.naming(TENSORBOARD_NAME, "written"):
            self._events.flush()
        if self._file is not None:
            with self._run.naming(METRICS_NAME, "written"):
                os.fsync(self._file.fileno())
            return
        self._run.write_bytes(METRICS_NAME, bytes(self._pending))
        for name in os.listdir(self._events_folder):
            with open(os.path.join(self._events_folder, name), "rb") as file:
                self._run.write_bytes(f"{TENSORBOARD_NAME}/{name}", file.read())

    def close(self) -> None:
        """Close the files; what was written before stays even where `flush` was not called.

        Raises:
            ClozelineError: what still was on its way could not be written.
        """
        try:
            with self._run.naming(TENSORBOARD_NAME, "written"):
                self._events.close()
        finally:
            if self._file is not None:
                with self._run.naming(METRICS_NAME, "written"):
                    self._file.close()
            else:
                shutil.rmtree(self._events_folder, ignore_errors=True)


def keep_lines(content: bytes, last_step: int) -> bytes:
    """The whole lines of `metrics.jsonl` up to a step.

    Args:
        content: the file, possibly torn off in its last line.
        last_step: lines of later steps are left out.
    """
    kept = []
    for line in content.split(b"\n")[:-1]:
        try:
            step = json.loads(line)["step"]
        except (ValueError, KeyError, TypeError):
            break
        if not isinstance(step, int) or step > last_step:
            break
        kept.append(line + b"\n")
    return b"".join(kept)
