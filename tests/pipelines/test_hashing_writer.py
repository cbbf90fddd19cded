from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from pipelines.hashing_writer import HashingWriter, WrittenFile, describe
from schemas.errors import ClozelineError


def test_the_writer_hashes_what_it_writes(tmp_path: Path) -> None:
    with open(tmp_path / "file", "wb") as stream:
        writer = HashingWriter(stream, "file")
        assert writer.write(b"abc") == 3
        assert writer.write(memoryview(b"\0def")[1:]) == 3
    assert (tmp_path / "file").read_bytes() == b"abcdef"
    assert (writer.size_bytes, writer.tell()) == (6, 6)
    assert writer.sha256 == hashlib.sha256(b"abcdef").hexdigest()
    assert describe("a/b", writer) == WrittenFile(name="a/b", sha256=writer.sha256, size_bytes=6)


def test_a_full_disk_is_an_error_that_names_the_file() -> None:
    with (
        open("/dev/full", "wb", buffering=0) as stream,
        pytest.raises(ClozelineError, match=r"^can't write out/a\.bin: No space left on device$"),
    ):
        HashingWriter(stream, "out/a.bin").write(b"x")
