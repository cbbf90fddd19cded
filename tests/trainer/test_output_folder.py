from __future__ import annotations

import errno
import hashlib
import os
import uuid
from pathlib import Path

import pytest

from schemas.errors import ClozelineError, UsageError
from trainer.output_folder import FileRecord, FolderWriter, OutputFolder


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> OutputFolder:
    """A folder that does not exist yet, on a disk and in a file system without renaming."""
    return OutputFolder(str(tmp_path / "out") if request.param == "local" else f"memory://{uuid.uuid4().hex}")


def write_two_files(folder: OutputFolder, name: str, content: bytes = b"one") -> FolderWriter:
    with folder.write_subfolder(name, "marker") as writer:
        writer.write("first", content)
        writer.write("marker", b"whole")
    return writer


def test_a_file_is_written_read_listed_and_removed(folder: OutputFolder) -> None:
    assert folder.list_names() == []
    folder.write_bytes("b", b"old")
    folder.write_bytes("b", b"new")
    folder.write_bytes("a", b"")
    assert folder.list_names() == ["a", "b"]
    assert folder.read_bytes("b") == b"new"
    folder.remove("a")
    folder.remove("a")
    assert folder.exists("b")
    assert not folder.exists("a")


def test_a_subfolder_records_what_it_holds(folder: OutputFolder) -> None:
    writer = write_two_files(folder, "deep/sub")
    assert writer.records == [
        FileRecord(name="first", size_bytes=3, sha256=hashlib.sha256(b"one").hexdigest()),
        FileRecord(name="marker", size_bytes=5, sha256=hashlib.sha256(b"whole").hexdigest()),
    ]
    assert folder.list_names("deep/sub") == ["first", "marker"]
    assert folder.read_bytes("deep/sub/first") == b"one"


def test_a_subfolder_replaces_one_of_its_name(folder: OutputFolder) -> None:
    with folder.write_subfolder("sub", "marker") as writer:
        writer.write("other", b"")
    write_two_files(folder, "sub", b"two")
    assert folder.list_names("sub") == ["first", "marker"]
    assert folder.read_bytes("sub/first") == b"two"
    folder.remove("sub", "marker")
    assert folder.list_names() == []


def test_a_failure_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    folder = OutputFolder(str(tmp_path))
    write_two_files(folder, "sub")

    def fail_in_the_middle() -> None:
        with folder.write_subfolder("sub", "marker") as writer:
            writer.write("first", b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(
        ClozelineError, match=rf"{tmp_path}/sub could not be written: No space left on device.\n"
    ):
        fail_in_the_middle()
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == [
        "sub",
        "sub/first",
        "sub/marker",
    ]
    assert folder.read_bytes("sub/first") == b"one"


def test_away_from_a_disk_a_failure_leaves_no_marker() -> None:
    folder = OutputFolder(f"memory://{uuid.uuid4().hex}")

    def fail_in_the_middle() -> None:
        with folder.write_subfolder("sub", "marker") as writer:
            writer.write("first", b"half")
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    write_two_files(folder, "sub")
    with pytest.raises(ClozelineError, match="sub could not be written"):
        fail_in_the_middle()
    assert not folder.exists("sub/marker")


def test_leftovers_of_killed_writers_are_removed(tmp_path: Path) -> None:
    for name in (".writing-step-1-abc", ".removed-step-0-abc", "step-2"):
        (tmp_path / "sub" / name).mkdir(parents=True)
        (tmp_path / "sub" / name / "file").touch()
    OutputFolder(str(tmp_path)).remove_leftovers("sub")
    assert os.listdir(tmp_path / "sub") == ["step-2"]


@pytest.mark.parametrize("path", ["pipe:ls", "simplecache::file://x", "ftp://host/x", "a\0b", "pipe://ls"])
def test_odd_places_are_refused(path: str) -> None:
    with pytest.raises(UsageError, match=r"no place that clozeline writes to"):
        OutputFolder(path)


def test_a_path_below_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ClozelineError, match=r"file/run/config.json could not be written: Not a directory"):
        OutputFolder(str(tmp_path / "file" / "run")).write_bytes("config.json", b"")
