"""A folder that the trainer writes to, on a local disk or wherever fsspec reaches.

In: names relative to the folder, and bytes. Out: files and subfolders that are there whole or not at all. On
a local disk a thing is written under a temporary name, synced and renamed; elsewhere a file appears when its
upload ends, and a subfolder counts from the moment its marker, uploaded last, is there. Every failure of the
file system comes out as one error that names the path and the cause.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

import fsspec
from fsspec.implementations.local import LocalFileSystem

from schemas.configs import FrozenModel
from schemas.errors import ClozelineError, UsageError
from schemas.manifests import Count, RelativeName, Sha256
from trainer.data.opener import PROTOCOLS, describe_missing_package

_TEMPORARY_PREFIXES = (".writing-", ".removed-")


class FileRecord(FrozenModel):
    """A file of a committed subfolder."""

    name: RelativeName
    size_bytes: Count
    sha256: Sha256


class OutputFolder:
    """A folder by its path or URL. Nothing is created before the first write."""

    def __init__(self, path: str) -> None:
        match = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", path)
        protocol = match.group(1).lower() if match else "file"
        if protocol not in PROTOCOLS or "::" in path or "\0" in path:
            raise UsageError(
                f"{path!r} is no place that clozeline writes to.\nGive a local path, or a gs:// or s3:// URL."
            )
        try:
            filesystem, root = fsspec.core.url_to_fs(path)
        except ImportError as error:
            raise describe_missing_package(path, protocol, error) from None
        except ValueError as error:
            raise UsageError(f"{path} can't be opened: {error}") from None
        self.path = path.rstrip("/") or path
        self._filesystem: Any = filesystem
        self._root: str = root.rstrip("/") or root
        self.is_read_only = protocol in ("http", "https")
        self.is_local = isinstance(filesystem, LocalFileSystem)

    def locate(self, name: str) -> str:
        """The path of a thing in the folder, as a person may type it."""
        return f"{self.path}/{name}" if name else self.path

    def local_path(self, name: str) -> str:
        """The same as a path of the local file system; only where `is_local`."""
        return self._inside(name)

    def exists(self, name: str = "") -> bool:
        """Whether there is a file or folder of this name."""
        with self.naming(name, "read"):
            return bool(self._filesystem.exists(self._inside(name)))

    def list_names(self, name: str = "") -> list[str]:
        """Names of what lies in a subfolder, sorted; none where there is no such folder."""
        with self.naming(name, "read"):
            self._filesystem.invalidate_cache()
            try:
                found = self._filesystem.ls(self._inside(name), detail=False)
            except FileNotFoundError:
                return []
            return sorted(str(path).rstrip("/").rsplit("/", 1)[-1] for path in found)

    def read_bytes(self, name: str) -> bytes:
        """The content of a file.

        Raises:
            ClozelineError: it is missing or can't be read.
        """
        with self.naming(name, "read"):
            return bytes(self._filesystem.cat_file(self._inside(name)))

    def write_bytes(self, name: str, content: bytes) -> None:
        """Write a file in one step: afterwards it holds all of the content, or what it held before."""
        with self.naming(name, "written"):
            if not self.is_local:
                self._filesystem.pipe_file(self._inside(name), content)
                return
            parent, base = os.path.split(self._inside(name))
            os.makedirs(parent, exist_ok=True)
            temporary = os.path.join(parent, f".writing-{base}-{uuid.uuid4().hex[:8]}")
            try:
                with open(temporary, "xb") as file:
                    file.write(content)
                    _sync(file)
                os.replace(temporary, self._inside(name))
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise

    @contextmanager
    def write_subfolder(self, name: str, marker: str) -> Iterator[FolderWriter]:
        """Write a subfolder in one step: it appears, whole, when the block ends without an exception.

        Args:
            name: of the subfolder, relative; one of that name that is there is replaced.
            marker: the file without which the subfolder does not count; it must be written last.
        """
        if not self.is_local:
            self.remove(name, marker)
            with self.naming(name, "written"):
                yield FolderWriter(self._filesystem, self._inside(name))
            return
        parent, base = os.path.split(self._inside(name))
        temporary = os.path.join(parent, f".writing-{base}-{uuid.uuid4().hex[:8]}")
        try:
            with self.naming(name, "written"):
                os.makedirs(temporary)
                yield FolderWriter(self._filesystem, temporary)
                self.remove(name, marker)
                os.replace(temporary, self._inside(name))
                _sync_folder(parent)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise

    def remove(self, name: str, marker: str = "") -> None:
        """Remove a file or subfolder, if there; nobody ever sees half of it.

        Args:
            name: relative name.
            marker: of a subfolder: goes first, where there is no renaming.
        """
        with self.naming(name, "removed"):
            path = self._inside(name)
            if self.is_local:
                _remove_local(path)
            elif self._filesystem.exists(path):
                if marker and self._filesystem.exists(f"{path}/{marker}"):
                    self._filesystem.rm_file(f"{path}/{marker}")
                self._filesystem.rm(path, recursive=True)

    def remove_leftovers(self, name: str = "") -> None:
        """Remove what killed writers left in a subfolder. Only for one who holds the folder's lock."""
        for entry in self.list_names(name) if self.is_local else []:
            if entry.startswith(_TEMPORARY_PREFIXES):
                self.remove(f"{name}/{entry}" if name else entry)

    def _inside(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    @contextmanager
    def naming(self, name: str, done: str) -> Iterator[None]:
        """Turn an OSError of the block into "<name> could not be <done>: <cause>"."""
        try:
            yield
        except OSError as error:
            raise ClozelineError(f"{self.locate(name)} could not be {done}: {_explain(error)}") from error


class FolderWriter:
    """Writes the files of one subfolder and remembers what it wrote."""

    def __init__(self, filesystem: Any, root: str) -> None:
        self._filesystem = filesystem
        self._root = root
        self.records: list[FileRecord] = []

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """A binary file to write; its size and checksum are in `records` afterwards."""
        with self._filesystem.open(f"{self._root}/{name}", "wb") as raw:
            hashing = _HashingFile(raw)
            yield hashing  # type: ignore[misc]
            raw.flush()
            if isinstance(self._filesystem, LocalFileSystem):
                os.fsync(raw.fileno())
        self.records.append(
            FileRecord(name=name, size_bytes=hashing.size_bytes, sha256=hashing.digest.hexdigest())
        )

    def write(self, name: str, content: bytes) -> None:
        """Write a file whole."""
        with self.open(name) as file:
            file.write(content)


class _HashingFile:
    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self.digest = hashlib.sha256()
        self.size_bytes = 0

    def write(self, content: bytes | memoryview) -> int:
        self.digest.update(content)
        self.size_bytes += len(content)
        return self._raw.write(content)


def _remove_local(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        parent, base = os.path.split(path)
        doomed = os.path.join(parent, f".removed-{base}-{uuid.uuid4().hex[:8]}")
        os.replace(path, doomed)
        shutil.rmtree(doomed)
    elif os.path.lexists(path):
        os.unlink(path)


def _explain(error: OSError) -> str:
    cause = error.strerror or str(error) or type(error).__name__
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"{cause}.\nFree some space and run the same command again; what was there before is intact."
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{cause}.\nGive a folder that you may write to."
    return f"{cause}."


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
