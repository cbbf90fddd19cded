"""Work in progress on an output folder: what makes it resumable, exclusive and all or nothing.

In: the output folder of a job, the configuration of the work, the finished pieces. Out: files under their
final names, each piece's record beside them in `_work/`, at last a manifest. Deterministic: names and bytes
follow from the pieces alone.

    output/_work/config.json      the configuration that the work in progress was started with
    output/_work/lock             held by the one process that works here (local file systems)
    output/_work/<piece>.json     a finished piece: its files with size and SHA-256, and its record
    output/_work/*.tmp            files being written, renamed to their final names when whole

A file is written to a temporary name and renamed; a piece is finished when its sidecar is there; the work
is done when the manifest is there, which is written last. Killed at any moment, the same work started again
keeps what is finished and whole, and does the rest.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from typing import Any

from pipelines import storage
from pipelines.hashing_writer import HashingWriter, WrittenFile
from pipelines.output_lock import hold_lock
from schemas.errors import ClozelineError, UsageError

WORK_FOLDER_NAME = "_work"
READING_THREADS = 16
"""Records read at a time: in an object store each takes tens of milliseconds, nearly all of them waiting."""

_CONFIG_NAME = "config.json"
_LOCK_NAME = "lock"
_READ_BYTES = 1 << 20


class WorkFolder:
    """The work in progress on one output folder. Small and picklable: workers get a copy.

    Args:
        output: the output folder: a local path, `gs://…`, `s3://…`.

    Raises:
        UsageError: its name holds bytes that are no UTF-8, which can't travel to workers.
    """

    def __init__(self, output: str) -> None:
        try:
            output.encode()
        except UnicodeEncodeError:
            raise UsageError(f"--output {output}: holds bytes that are no UTF-8; name it otherwise") from None
        self.output = output
        self.path = storage.join(output, WORK_FOLDER_NAME)
        self._had_work = False

    # What the launching process does.

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Make the folder, and keep every other process away from it as long as the block runs.

        Raises:
            ClozelineError: another process works here, or the folder can't be written.
        """
        made_output = storage.is_local(self.output) and not storage.exists(self.output)
        self._had_work = storage.is_folder(self.path)
        storage.make_folder(self.path)
        if not storage.is_local(self.path):
            yield
            return
        with hold_lock(storage.join(self.path, _LOCK_NAME), self.output):
            try:
                yield
            finally:
                # Refused or finished: nothing of ours is left behind but the finished output.
                if not storage.exists(storage.join(self.path, _CONFIG_NAME)):
                    storage.delete(self.path)
                    if made_output:
                        with contextlib.suppress(OSError):
                            os.rmdir(self.output)

    def start(self, pinned: Mapping[str, Any], *, overwrite: bool, owned_names: Iterable[str]) -> None:
        """Begin the work, or go on with it. Call it while the folder is held.

        Args:
            pinned: what the bytes of the output depend on, as JSON values; nested mappings are compared by
                key.
            overwrite: delete what was there, finished or not.
            owned_names: files and folders below `output` that the job writes, its manifest first: with
                `overwrite`, or after other work that finished nothing, exactly these are deleted, in this
                order.

        Raises:
            UsageError: the folder holds finished pieces of work with another configuration, or files that are
                none of ours; with `overwrite`, such as have names of ours but no manifest and no work beside
                them.
        """
        names = list(owned_names)
        if overwrite:
            self._refuse_foreign_namesakes(names)
            self._delete(names)
            self._empty()
        config_path = storage.join(self.path, _CONFIG_NAME)
        content = (json.dumps(pinned, indent=1, sort_keys=True) + "\n").encode()
        if storage.exists(config_path):
            before = _parse_json(storage.read_bytes(config_path))
            if before == json.loads(content):
                self._remove_temporary_files()
                return
            if self.count_finished():
                raise UsageError(
                    f"{self.output} holds unfinished work with another configuration: "
                    f"{describe_difference(before, json.loads(content))}\n"
                    "Start it as before to finish it, choose another --output, or add --overwrite."
                )
            # A file that got its name, and whose piece was not recorded before the work broke off.
            self._delete(names)
        elif not overwrite:
            self._refuse_foreign_files(names)
        self._empty()
        storage.write_bytes(config_path, content, self.path)

    def commit(self, manifest_name: str, content: bytes) -> None:
        """Write the manifest in one step. From then on the output exists."""
        storage.write_bytes(storage.join(self.output, manifest_name), content, self.path)

    def remove(self) -> None:
        """Remove `_work/` with everything in it."""
        storage.delete(self.path)

    def remove_remains(self) -> None:
        """Remove what is left of `_work/` where a process ended between its commit and its last step."""
        if storage.is_folder(self.path):
            # Busy, or on a read-only file system: the output is finished, and the remains harm nobody.
            with contextlib.suppress(ClozelineError), self.hold():
                self.remove()

    def count_finished(self) -> int:
        """How many pieces are finished. A name with a dot, a step on the way to pieces, doesn't count."""
        return sum("." not in name for name in self.finished_names())

    def finished_names(self) -> list[str]:
        """The names of the finished pieces, sorted."""
        names = (storage.base_name(entry.path) for entry in storage.list_folder(self.path))
        return sorted(
            name.removesuffix(".json") for name in names if name.endswith(".json") and name != _CONFIG_NAME
        )

    def report_to(self, progress: Callable[[int, int], None] | None, total: int) -> Callable[[], None] | None:
        """For `run_pipeline(report=…)`: tells `progress` how many of `total` pieces are finished."""
        if progress is None:
            return None
        last = -1

        def report() -> None:
            nonlocal last
            with contextlib.suppress(ClozelineError):  # a listing that failed once is no reason to stop
                done = min(self.count_finished(), total)
                if done > last:
                    last = done
                    progress(done, total)

        return report

    # What a worker does.

    @contextlib.contextmanager
    def write_file(self, name: str) -> Iterator[HashingWriter]:
        """Write a file of the output, which appears under its name when the block ends.

        Args:
            name: relative to the output folder, with `/`.

        Yields:
            A stream that knows size and SHA-256 of what was written; see `hashing_writer.describe`.
        """
        path = storage.join(self.output, *name.split("/"))
        with storage.write_atomically(path, self.path) as stream:
            yield HashingWriter(stream, path)

    def finish(self, piece: str, files: Iterable[WrittenFile], record: Mapping[str, Any]) -> None:
        """Record that a piece is finished: its files have their names, and this is what is known of it.

        Args:
            piece: its stable name, valid as a file name.
            files: the files that it wrote; they are checked when the work is taken up again.
            record: JSON values that `load_finished` gives back.
        """
        sidecar = {
            "files": [{"name": f.name, "sha256": f.sha256, "size_bytes": f.size_bytes} for f in files],
            "record": record,
        }
        content = json.dumps(sidecar, sort_keys=True)
        # A sidecar damaged on its way to the disk must not pass for a finished piece.
        check = hashlib.sha256(content.encode()).hexdigest()
        storage.write_bytes(self._sidecar_path(piece), f"{check}\n{content}\n".encode(), self.path)

    def load_finished(self, piece: str) -> dict[str, Any] | None:
        """The record of a piece that is finished and whole; None if it has to be done (again)."""
        record = self._read_sidecar(piece)
        if record is None or not all(self._is_whole(WrittenFile(**file)) for file in record["files"]):
            return None
        return dict(record["record"])

    def read_records(self, pieces: Iterable[str]) -> list[dict[str, Any]]:
        """The records of finished pieces in their order, without looking at their files again.

        Raises:
            ClozelineError: one of them isn't finished.
        """
        with ThreadPoolExecutor(READING_THREADS) as threads:
            return list(threads.map(self._read_record, pieces))

    def _read_record(self, piece: str) -> dict[str, Any]:
        sidecar = self._read_sidecar(piece)
        if sidecar is None:
            raise ClozelineError(
                f"{self._sidecar_path(piece)} is missing or damaged, though its work was done\n"
                "Run the same command again: it does what is missing."
            )
        return dict(sidecar["record"])

    def _sidecar_path(self, piece: str) -> str:
        return storage.join(self.path, f"{piece}.json")

    def _read_sidecar(self, piece: str) -> dict[str, Any] | None:
        path = self._sidecar_path(piece)
        if not storage.exists(path):
            return None
        check, _, content = storage.read_bytes(path).partition(b"\n")
        content = content.removesuffix(b"\n")
        if hashlib.sha256(content).hexdigest().encode() != check:
            return None
        return dict(json.loads(content))

    def _is_whole(self, file: WrittenFile) -> bool:
        path = storage.join(self.output, *file.name.split("/"))
        if not storage.exists(path) or storage.size_bytes(path) != file.size_bytes:
            return False
        digest = hashlib.sha256()
        with storage.open_read(path) as stream:
            while block := stream.read(_READ_BYTES):
                digest.update(block)
        return digest.hexdigest() == file.sha256

    def _remove_temporary_files(self) -> None:
        for entry in storage.list_folder(self.path):
            if entry.path.endswith(".tmp"):
                storage.delete(entry.path)

    def _delete(self, names: list[str]) -> None:
        for name in names:
            storage.delete(storage.join(self.output, name))

    def _empty(self) -> None:
        for entry in storage.list_folder(self.path):
            # The lock stays: it is held by its inode, and another process must find the same one.
            if storage.base_name(entry.path) != _LOCK_NAME:
                storage.delete(entry.path)

    def _refuse_foreign_namesakes(self, owned_names: list[str]) -> None:
        # A folder `train` may as well hold the only copy of somebody's text: what we wrote has a manifest
        # beside it, or what was left of work.
        paths = [storage.join(self.output, name) for name in owned_names]
        if self._had_work or storage.exists(paths[0]):
            return
        found = [path for path in paths[1:] if storage.exists(path) or storage.is_folder(path)]
        if found:
            raise UsageError(
                f"{self.output} holds {storage.base_name(found[0])}, and no {owned_names[0]} that says it "
                "was made by this command: --overwrite would delete what may be yours\n"
                "Choose another --output, or move or delete it yourself."
            )

    def _refuse_foreign_files(self, owned_names: list[str]) -> None:
        found = [entry.path for entry in storage.list_folder(self.output)]
        namesakes = [p for name in owned_names if storage.is_folder(p := storage.join(self.output, name))]
        found += namesakes
        if found:
            otherwise = "" if namesakes else ", or add --overwrite, which leaves files of others alone"
            raise UsageError(
                f"{self.output} isn't empty: it holds {storage.base_name(found[0])}, and no work to "
                f"go on with\nExpected a new or empty folder; choose another --output{otherwise}."
            )


def created_by() -> str:
    """What manifests say of the program that wrote them: its name and version."""
    return f"clozeline {metadata.version('clozeline')}"


def describe_difference(before: Any, now: Any, where: str = "") -> str:
    """The first difference of two JSON values in the order of their keys: `seed was 1, is now 2`."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in sorted({*before, *now}):
            if before.get(key) != now.get(key):
                return describe_difference(before.get(key), now.get(key), f"{where}.{key}" if where else key)
    return f"{where or 'configuration'} was {_shorten(before)}, is now {_shorten(now)}"


def _shorten(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _parse_json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return None
