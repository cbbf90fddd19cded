"""The files of a folder: there, as long as they should be, and none too many. Nothing is read.

In: a folder's URL and the sizes that its manifest gives. Out: a line for each fault. An object store is
asked for a list of the folder, which takes a request for about a thousand files; where that is refused, for
each file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from schemas.errors import ClozelineError
from trainer.data.opener import join, list_sizes, size_bytes

Progress = Callable[[int, int], None]

_REQUESTS_AT_A_TIME = 32


@dataclass(frozen=True)
class FolderFiles:
    """What lies in a folder and those below it.

    Attributes:
        sizes: by the name relative to the folder.
    """

    sizes: Mapping[str, int]

    def find_strays(self, expected: Mapping[str, int | None], pattern: re.Pattern[str]) -> Iterator[str]:
        """Files of a name that only clozeline gives, which the manifest doesn't list."""
        for name in sorted(set(self.sizes) - set(expected)):
            if pattern.fullmatch(name):
                yield f"{name} is no file of the manifest's: it is left over or belongs elsewhere; delete it"


def list_files(url: str, expected: Mapping[str, int | None]) -> FolderFiles | None:
    """List a folder, and the folders below it that files are expected in; None where that is refused."""
    folders = sorted({name.rpartition("/")[0] for name in expected})
    sizes: dict[str, int] = {}
    try:
        for folder in folders:
            prefix = f"{folder}/" if folder else ""
            for name, size in _list_folder(join(url, folder) if folder else url).items():
                if size is not None:
                    sizes[prefix + name] = size
    except ClozelineError:
        return None
    return FolderFiles(sizes)


def find_wrong_sizes(
    url: str, expected: Mapping[str, int | None], files: FolderFiles | None, progress: Progress
) -> Iterator[str]:
    """Files that are missing or of another size than the manifest's.

    Args:
        url: the folder.
        expected: size by name; None where the manifest doesn't tell.
        files: what `list_files` gave.
        progress: called with (files done, files in all).
    """

    def ask(name: str) -> int | ClozelineError | None:
        try:
            return size_bytes(join(url, name))
        except FileNotFoundError:
            return None
        except ClozelineError as error:
            return error

    with ThreadPoolExecutor(_REQUESTS_AT_A_TIME) as threads:
        found = map(files.sizes.get, expected) if files is not None else threads.map(ask, expected)
        for done, (name, size) in enumerate(zip(expected, found, strict=True), start=1):
            if isinstance(size, ClozelineError):
                yield " ".join(str(size).split())
            elif size is None:
                yield f"{name} is missing, though the manifest lists it"
            elif expected[name] not in (None, size):
                yield f"{name} has {size:,} bytes, the manifest says {expected[name]:,}"
            progress(done, len(expected))


def _list_folder(url: str) -> Mapping[str, int | None]:
    try:
        return list_sizes(url)
    except (FileNotFoundError, NotADirectoryError):
        return {}
