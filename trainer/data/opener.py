"""Bytes of files wherever they lie: local, `gs://`, `s3://`, `https://`, through fsspec.

In: a URL or path, always whole and given by the user or joined from one; names found inside a dataset are
checked by `schemas.manifests` before they get here. Out: bytes, in order and complete, or an error. A read
that fails is tried again from the byte it reached. What could run a command (`pipe:`) or reach another file
system from within a name (`::`) is refused.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import fsspec

from schemas.errors import ClozelineError, UsageError

PROTOCOLS = ("file", "local", "memory", "gs", "gcs", "s3", "s3a", "abfs", "az", "hdfs", "http", "https")
_EXTRA_BY_PROTOCOL = {"gs": "gcp", "gcs": "gcp", "s3": "aws", "s3a": "aws"}
RETRY_DELAYS_SECONDS = (0.2, 1.0, 3.0, 10.0)
REMOTE_READ_BYTES = 8 << 20

T = TypeVar("T")

# What another attempt won't change.
_FINAL_ERRORS = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError, ImportError)


def join(folder: str, name: str) -> str:
    """The URL of a relative name below a folder's URL."""
    return f"{folder.rstrip('/')}/{name}" if folder.rstrip("/") else f"{folder}{name}"


def exists(url: str) -> bool:
    """Whether a file or folder is there."""
    file_system, path = _resolve(url)
    return bool(retry(lambda: file_system.exists(path), url))


def size_bytes(url: str) -> int | None:
    """The size of a file, or None where its server doesn't say.

    Raises:
        FileNotFoundError: there is no such file.
    """
    file_system, path = _resolve(url)
    size = retry(lambda: file_system.size(path), url)
    return None if size is None else int(size)


def list_sizes(url: str) -> dict[str, int | None]:
    """The names of what lies directly in a folder, with sizes: None for a folder in it.

    One request for a thousand files or so in an object store.

    Raises:
        FileNotFoundError: there is no such folder.
        ClozelineError: its server can't or won't list it.
    """
    if url.lower().startswith(("http://", "https://")):
        raise ClozelineError(f"{url}: a web server doesn't list its files.")
    file_system, path = _resolve(url)
    entries = retry(lambda: file_system.ls(path, detail=True), url)
    return {
        entry["name"].rstrip("/").rpartition("/")[2]: None if entry["type"] == "directory" else entry["size"]
        for entry in entries
    }


def read_bytes(url: str, limit_bytes: int) -> bytes:
    """A whole small file.

    Raises:
        FileNotFoundError: there is no such file.
        ClozelineError: the file is longer than `limit_bytes`, or can't be read.
    """
    file_system, path = _resolve(url)

    def read() -> bytes:
        with file_system.open(path, "rb") as file:
            return bytes(file.read(limit_bytes + 1))

    content = retry(read, url)
    if len(content) > limit_bytes:
        raise ClozelineError(f"{url} is longer than the {limit_bytes:,} bytes that such a file may have.")
    return content


class ByteStream:
    """A file read from front to back, reopened at the byte it reached when a read fails."""

    def __init__(self, url: str, offset: int = 0) -> None:
        self._url = url
        self._file_system, self._path = _resolve(url)
        self._position = offset
        self._file: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    @property
    def position(self) -> int:
        """The offset of the next byte."""
        return self._position

    def read(self, num_bytes: int) -> bytes:
        """The next `num_bytes` bytes, fewer only at the end of the file.

        Raises:
            FileNotFoundError: there is no such file.
            ClozelineError: reading failed again and again.
        """
        pieces: list[bytes] = []
        missing = num_bytes
        while missing:
            piece = retry(partial(self._read_some, missing), self._url)
            if not piece:
                break
            pieces.append(piece)
            missing -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _read_some(self, num_bytes: int) -> bytes:
        try:
            if self._file is None:
                self._file = _open_for_streaming(self._file_system, self._path, self._position)
            piece = bytes(self._file.read(num_bytes))
        except BaseException:
            self._close()
            raise
        self._position += len(piece)
        return piece

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def retry(action: Callable[[], T], url: str) -> T:
    """Call `action` until it succeeds, waiting longer each time.

    Args:
        action: reads something from `url`.
        url: named in the error.

    Raises:
        FileNotFoundError, IsADirectoryError, NotADirectoryError: at once, for the caller to explain.
        ClozelineError: any other failure that stays.
    """
    for delay in (*RETRY_DELAYS_SECONDS, None):
        try:
            return action()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError, ClozelineError):
            raise
        except Exception as error:
            # Each file system has exceptions of its own (aiohttp's are no OSError), so all are taken alike.
            if delay is None or isinstance(error, _FINAL_ERRORS):
                raise ClozelineError(f"{url} can't be read: {type(error).__name__}: {error}") from error
            time.sleep(delay)
    raise AssertionError("unreachable")


def describe_missing_package(url: str, protocol: str, error: ImportError) -> UsageError:
    """What to install where the package of a file system isn't."""
    extra = _EXTRA_BY_PROTOCOL.get(protocol)
    advice = f"Install it: pip install 'clozeline[{extra}]'" if extra else str(error)
    return UsageError(f"{url} can't be opened: no file system is installed for {protocol}://\n{advice}")


def _open_for_streaming(file_system: Any, path: str, offset: int) -> Any:
    file = file_system.open(path, "rb", block_size=REMOTE_READ_BYTES, cache_type="readahead")
    if offset:
        file.seek(offset)
    return file


def _resolve(url: str) -> tuple[Any, str]:
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", url)
    protocol = match.group(1).lower() if match else "file"
    if protocol not in PROTOCOLS or "::" in url or "\0" in url:
        raise UsageError(
            f"{url!r} is no place that clozeline reads from.\n"
            f"Give a local path or a URL that begins with gs://, s3://, https:// or file://."
        )
    try:
        file_system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise describe_missing_package(url, protocol, error) from error
    except ValueError as error:
        raise UsageError(f"{url} can't be opened: {error}") from error
    return file_system, str(path)
