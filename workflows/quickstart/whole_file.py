"""Write a file of the quickstart whole or not at all.

In: a path and bytes. Out: the file, which appears under its name when everything is written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def write_whole(path: Path) -> Iterator[BinaryIO]:
    """Write a file, in a folder that is made where it is missing.

    Args:
        path: the name it gets when the block ends; an existing file is replaced.

    Yields:
        A binary stream. When the block raises, nothing appears and nothing is left behind.

    Raises:
        OSError: the disk is full, …; `filename` is set.
    """
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as stream:
            yield stream
        unfinished.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        # A write that fails says why, but not where.
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)
        raise
