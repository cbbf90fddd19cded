from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import fsspec
import pytest

from schemas.errors import ClozelineError, UsageError
from trainer.data import opener
from trainer.data.opener import ByteStream, exists, join, read_bytes, retry, size_bytes

CONTENT = bytes(range(256)) * 40


class FlakyFile(io.BytesIO):
    """Fails on every second read."""

    num_reads = 0

    def read(self, size: int | None = -1) -> bytes:
        FlakyFile.num_reads += 1
        if FlakyFile.num_reads % 2:
            raise ConnectionResetError("connection reset by peer")
        # Half of what is asked for, as a network gives.
        return super().read(max(1, (size or 0) // 2))


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opener, "RETRY_DELAYS_SECONDS", (0.0, 0.0))


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "file").write_bytes(CONTENT)
    return str(tmp_path / "file")


@pytest.mark.parametrize(
    "url",
    [
        "pipe:cat /etc/passwd",
        "PIPE:true",
        "pipe://true",
        "simplecache::https://example.org/x",
        "zip://a::file.zip",
        "reference://x",
        "sftp://host/x",
        "data:text/plain,hello",
        "file.tar::memory://x",
        "a\0b",
    ],
)
def test_what_may_run_a_command_or_chain_is_refused(url: str) -> None:
    for call in (exists, size_bytes, ByteStream, lambda refused: read_bytes(refused, 10)):
        with pytest.raises(UsageError, match="is no place that clozeline reads from"):
            call(url)


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("a/b", "a/b/x.tar"),
        ("a/b/", "a/b/x.tar"),
        ("gs://bucket/a", "gs://bucket/a/x.tar"),
        ("/", "/x.tar"),
        ("", "x.tar"),
    ],
)
def test_join(folder: str, expected: str) -> None:
    assert join(folder, "x.tar") == expected


def test_files_on_disk_and_in_other_file_systems(path: str) -> None:
    fsspec.filesystem("memory").pipe("/opener/file", CONTENT)
    for url in (path, f"file://{path}", "memory://opener/file"):
        assert exists(url)
        assert size_bytes(url) == len(CONTENT)
        assert read_bytes(url, len(CONTENT)) == CONTENT
        with ByteStream(url, offset=3) as stream:
            assert stream.read(5) == CONTENT[3:8]
            assert stream.position == 8
            assert stream.read(len(CONTENT)) == CONTENT[8:]
            assert stream.read(1) == b""


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    assert not exists(missing)
    for call in (size_bytes, lambda url: read_bytes(url, 10), lambda url: ByteStream(url).read(1)):
        with pytest.raises(FileNotFoundError):
            call(missing)


def test_a_small_file_that_is_too_long_is_not_read_whole(path: str) -> None:
    with pytest.raises(ClozelineError, match="is longer than the 100 bytes"):
        read_bytes(path, 100)


@pytest.mark.usefixtures("no_waiting")
def test_a_failing_read_goes_on_at_the_byte_it_reached(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened_at: list[int] = []

    def open_flaky(file_system: Any, file_path: str, offset: int) -> FlakyFile:
        opened_at.append(offset)
        file = FlakyFile(CONTENT)
        file.seek(offset)
        return file

    monkeypatch.setattr(opener, "_open_for_streaming", open_flaky)
    FlakyFile.num_reads = 0
    with ByteStream(path) as stream:
        assert stream.read(1000) + stream.read(len(CONTENT)) == CONTENT
    assert opened_at[:4] == [0, 0, 500, 750]
    assert opened_at == sorted(opened_at)


@pytest.mark.usefixtures("no_waiting")
def test_an_error_that_stays_is_told_with_the_url() -> None:
    attempts: list[int] = []

    def fail() -> None:
        attempts.append(1)
        raise TimeoutError("no answer")

    with pytest.raises(ClozelineError, match="gs://b/x can't be read: TimeoutError: no answer"):
        retry(fail, "gs://b/x")
    assert len(attempts) == 3


def test_what_waiting_does_not_mend_is_told_at_once() -> None:
    def fail() -> None:
        raise PermissionError("access denied")

    with pytest.raises(ClozelineError, match="gs://b/x can't be read: PermissionError: access denied"):
        retry(fail, "gs://b/x")


def test_a_missing_package_for_a_file_system_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(url: str) -> None:
        raise ImportError("Please install gcsfs to access Google Storage")

    monkeypatch.setattr(fsspec.core, "url_to_fs", refuse)
    with pytest.raises(UsageError, match=r"gs://b/x can't be opened.*\n.*pip install 'clozeline\[gcp\]'"):
        read_bytes("gs://b/x", 10)
