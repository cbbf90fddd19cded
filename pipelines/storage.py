"""Every access of the pipelines to files: local paths, `gs://`, `s3://` and whatever else Beam can open.

In: paths or globs. Out: listings, streams, whole files, and writes that appear under their name in one step.
Deterministic: listings are sorted by path. Errors of the file system come out as `ClozelineError`, naming the
path and the cause; only those of reading from a stream that is open already pass through.
"""

from __future__ import annotations

import contextlib
import glob
import importlib.util
import itertools
import os
import posixpath
import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, cast

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from schemas.errors import ClozelineError, UsageError

_RAW = CompressionTypes.UNCOMPRESSED
_EXTRA_BY_SCHEME = {"gs": "gcp", "s3": "aws"}
_CLIENT_MODULES = ("apache_beam.io.", "azure.", "boto3.", "botocore.", "google.", "requests.", "urllib3.")


@dataclass(frozen=True, order=True)
class FileEntry:
    """A file and its size. Entries sort by path."""

    path: str
    size_bytes: int


def use_options(beam_args: Sequence[str]) -> None:
    """Reach object stores with these Beam options (credentials, endpoints) outside of a pipeline."""
    FileSystems.set_options(PipelineOptions(list(beam_args)))


def is_local(path: str) -> bool:
    """Whether a path lies on a file system of this machine rather than in an object store."""
    return FileSystems.get_scheme(path) is None


def join(folder: str, *names: str) -> str:
    """A path below a folder, in the spelling of its file system."""
    if is_local(folder):
        return os.path.join(folder, *names)
    return posixpath.join(folder, *names)


def base_name(path: str) -> str:
    """The last part of a path: the name of a file without its folders."""
    return posixpath.basename(path.replace(os.sep, "/").rstrip("/"))


def match(pattern: str) -> list[FileEntry]:
    """The files that a glob or a plain path names, sorted by path; none is an empty list.

    Args:
        pattern: `*` and `?` match within a folder, `**` across folders, and `**/` also none. A local file
            that really has such a name is taken literally. Folders are left out, and local files whose name,
            or a folder that `**` stands for, begins with a dot.
    """
    with _explained("list", pattern):
        if is_local(pattern) and os.path.exists(pattern):
            return [FileEntry(pattern, os.path.getsize(pattern))] if os.path.isfile(pattern) else []
        match_one = _match_local if is_local(pattern) else _match_beam
        return sorted({entry for variant in _vary_folders(pattern) for entry in match_one(variant)})


def list_folder(folder: str) -> list[FileEntry]:
    """The files directly in a folder, sorted by path; a folder that isn't there has none."""
    with _explained("list", folder):
        if not is_local(folder):
            return sorted(_match_beam(folder.rstrip("/") + "/*"))
        if not os.path.isdir(folder):
            return []
        with os.scandir(folder) as entries:
            return sorted(FileEntry(join(folder, e.name), e.stat().st_size) for e in entries if e.is_file())


def is_folder(path: str) -> bool:
    """Whether a path is a folder, or in an object store the beginning of some object's name up to a `/`."""
    with _explained("look at", path):
        if is_local(path):
            return os.path.isdir(path)
        results = FileSystems.match([path.rstrip("/") + "/*"], limits=[1])
        return any(result.metadata_list for result in results)


def exists(path: str) -> bool:
    """Whether there is a file (or local folder) of this name."""
    with _explained("look at", path):
        return bool(FileSystems.exists(path))


def size_bytes(path: str) -> int:
    """The size of a file.

    Raises:
        ClozelineError: there is no such file.
    """
    with _explained("read", path):
        if is_local(path):
            return os.path.getsize(path)
        entries = _match_beam(path)
        if not entries:
            raise FileNotFoundError("no such file")
        return entries[0].size_bytes


def open_read(path: str, offset: int = 0) -> BinaryIO:
    """Open a file for reading its stored bytes (compressed ones stay so), from an offset on.

    Raises:
        ClozelineError: it can't be opened; the message names it and says why.
    """
    with _explained("read", path):
        stream = cast("BinaryIO", FileSystems.open(path, compression_type=_RAW))
        if offset:
            stream.seek(offset)
        return stream


def read_bytes(path: str) -> bytes:
    """The whole content of a small file.

    Raises:
        ClozelineError: it can't be read; the message names it and says why.
    """
    with _explained("read", path), open_read(path) as stream:
        return stream.read()


def make_folder(path: str) -> None:
    """Make a folder and those above it; an existing one is fine. Object stores need none."""
    if is_local(path):
        with _explained("make the folder", path):
            os.makedirs(path, exist_ok=True)


def delete(path: str) -> None:
    """Delete a file, or a folder with all below it; one that isn't there is fine."""
    with _explained("delete", path):
        if is_local(path):
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                with contextlib.suppress(FileNotFoundError):
                    os.remove(path)
        elif FileSystems.exists(path):
            FileSystems.delete([path])
        elif is_folder(path):
            FileSystems.delete([path.rstrip("/") + "/"])


@contextlib.contextmanager
def write_atomically(path: str, work_folder: str | None = None) -> Iterator[BinaryIO]:
    """Write a file that appears under its name only when it is whole.

    Args:
        path: the name it gets when the block ends; an existing file is replaced.
        work_folder: where the temporary file lies until then, on the same file system; None means beside it.

    Yields:
        A binary stream. When the block raises, nothing appears and the temporary file is removed.

    Raises:
        ClozelineError: the file system refuses (disk full, no permission, …); it names `path` and why.
    """
    folder = work_folder if work_folder is not None else path[: len(path) - len(base_name(path))]
    temporary = join(folder, f"{base_name(path)}.{uuid.uuid4().hex}.tmp")
    with _explained("write", path):
        try:
            with cast("BinaryIO", FileSystems.create(temporary, compression_type=_RAW)) as stream:
                yield stream
            if is_local(path):
                os.makedirs(os.path.dirname(path) or os.curdir, exist_ok=True)
            FileSystems.rename([temporary], [path])
        except BaseException:
            with contextlib.suppress(Exception):
                delete(temporary)
            raise


def write_bytes(path: str, content: bytes, work_folder: str | None = None) -> None:
    """Write a small file in one step, as `write_atomically` does."""
    with write_atomically(path, work_folder) as stream:
        stream.write(content)


def _vary_folders(pattern: str) -> Iterator[str]:
    """The pattern, and those in which a `**/` stands for no folder: for Beam it stands for one at least."""
    *folders, name = pattern.split("/")
    choices = [(f"{folder}/", "") if folder == "**" else (f"{folder}/",) for folder in folders]
    return ("".join((*chosen, name)) for chosen in itertools.product(*choices))


def _match_local(pattern: str) -> list[FileEntry]:
    if "**" in pattern:
        # Beam finds nothing under a relative pattern unless it begins with a folder.
        root = "" if os.path.isabs(pattern) else os.path.join(os.curdir, "")
        fixed = len(os.path.join(os.path.dirname(pattern.partition("**")[0]), ""))
        paths = [entry.path[len(root) :] for entry in _match_beam(root + pattern)]
        paths = [path for path in paths if not any(n.startswith(".") for n in path[fixed:].split(os.sep))]
    else:
        # Beam would walk through every folder below, however deep.
        paths = glob.glob(pattern)
    return [FileEntry(path, os.path.getsize(path)) for path in paths if os.path.isfile(path)]


def _match_beam(pattern: str) -> list[FileEntry]:
    (result,) = FileSystems.match([pattern])
    entries = [FileEntry(metadata.path, metadata.size_in_bytes) for metadata in result.metadata_list]
    # An object whose name ends so marks a folder.
    return [entry for entry in entries if not entry.path.endswith("/")]


def _ensure_options() -> None:
    # Beam's S3 client wants options, which only a worker has set; a runner leaves an empty dictionary behind.
    if FileSystems._pipeline_options is None:
        use_options(())


@contextlib.contextmanager
def _explained(action: str, path: str) -> Iterator[None]:
    if not is_local(path):
        # Beam has a file system for s3:// without boto3 too, which fails an assertion when it is used.
        if FileSystems.get_scheme(path) == "s3" and importlib.util.find_spec("boto3") is None:
            raise UsageError(_explain_no_file_system(action, path))
        _ensure_options()
    try:
        yield
    except ClozelineError:
        raise
    except OSError as error:
        raise ClozelineError(f"can't {action} {path}: {_cause(error)}") from error
    except ValueError as error:
        if "Unable to get filesystem" not in str(error):
            raise
        raise UsageError(_explain_no_file_system(action, path)) from error
    except Exception as error:
        if not type(error).__module__.startswith(_CLIENT_MODULES):
            raise
        reason = str(next(iter(error.args), error)).partition("\n")[0] or type(error).__name__
        raise ClozelineError(f"can't {action} {path}: {reason}") from error


def _explain_no_file_system(action: str, path: str) -> str:
    scheme = FileSystems.get_scheme(path)
    extra = _EXTRA_BY_SCHEME.get(scheme)
    advice = (
        f"Install it: pip install 'clozeline[{extra}]'" if extra else "Expected a local path, gs:// or s3://."
    )
    return f"can't {action} {path}: no file system is installed for {scheme}://\n{advice}"


def _cause(error: OSError) -> str:
    if isinstance(error, BeamIOError) and error.exception_details:
        error = next(iter(error.exception_details.values()))
    if isinstance(error, OSError) and error.__cause__ is None and len(error.args) == 1:
        inner = error.args[0]
        error = inner if isinstance(inner, OSError) else error
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
