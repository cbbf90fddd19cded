from __future__ import annotations

import io
import tarfile
from typing import Any

import pytest

from schemas.errors import CorruptDataError
from trainer.data.tar_stream import TarMember, read_members

CONTENT = b"x" * 700


def write(*members: tuple[str, dict[str, Any]], tar_format: int = tarfile.USTAR_FORMAT) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tar_format) as archive:
        for name, attributes in members:
            member = tarfile.TarInfo(name)
            member.size = len(CONTENT)
            for attribute, value in attributes.items():
                setattr(member, attribute, value)
            archive.addfile(member, io.BytesIO(CONTENT) if member.isreg() else None)
    return sink.getvalue()


def walk(content: bytes, size_bytes: int | None = None, limit: int = 1000) -> list[TarMember]:
    size_bytes = len(content) if size_bytes is None else size_bytes
    return list(read_members(io.BytesIO(content).read, size_bytes, limit, "shard.tar"))


def with_checksum(header: bytes) -> bytes:
    blank = header[:148] + b" " * 8 + header[156:]
    return header[:148] + b"%06o\0 " % sum(blank) + header[156:]


def with_size_field(field: bytes) -> bytes:
    good = write(("a.arrow", {}))
    return with_checksum(good[:124] + field + good[136:512]) + good[512:]


def test_reads_what_tarfile_wrote() -> None:
    content = write(("train-00000-000000.arrow", {}), ("train-00000-000001.arrow", {"size": 512}))
    assert walk(content) == [
        TarMember("train-00000-000000.arrow", 512, CONTENT),
        TarMember("train-00000-000001.arrow", 2048, CONTENT[:512]),
    ]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        pytest.param(
            write(("a.arrow", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"})), "type b'2'", id="link"
        ),
        pytest.param(
            write(("a.arrow", {"type": tarfile.LNKTYPE, "linkname": "b"})), "type b'1'", id="hard link"
        ),
        pytest.param(write(("a.arrow", {"type": tarfile.CHRTYPE})), "type b'3'", id="character device"),
        pytest.param(write(("a.arrow", {"type": tarfile.BLKTYPE})), "type b'4'", id="block device"),
        pytest.param(write(("a.arrow", {"type": tarfile.FIFOTYPE})), "type b'6'", id="fifo"),
        pytest.param(write(("a.arrow", {"type": tarfile.DIRTYPE})), "type b'5'", id="folder"),
        pytest.param(
            write(("a.arrow", {"pax_headers": {"size": "9" * 30}}), tar_format=tarfile.PAX_FORMAT),
            "type b'x'",
            id="pax header",
        ),
        pytest.param(
            write(("a" * 200 + ".arrow", {}), tar_format=tarfile.GNU_FORMAT), "type b'L'", id="gnu long name"
        ),
        pytest.param(write(("a.arrow", {"type": tarfile.GNUTYPE_SPARSE})), "type b'S'", id="sparse file"),
        pytest.param(write(("/etc/a.arrow", {})), "names b'/etc/a.arrow'", id="absolute name"),
        pytest.param(write(("../a.arrow", {})), "names b'../a.arrow'", id="name leading out"),
        pytest.param(write(("sub/a.arrow", {})), "names b'sub/a.arrow'", id="name in a folder"),
        pytest.param(write(("a.pickle", {})), "names b'a.pickle'", id="another ending"),
        pytest.param(
            write(("p" * 60 + "/" + "q" * 60 + ".arrow", {})), "names", id="name in the prefix field"
        ),
        pytest.param(
            with_size_field(b"77777777777\0"), "claims 8,589,934,591 bytes; at most 1,000", id="8 GB"
        ),
        pytest.param(with_size_field(b"\x80" + b"\xff" * 11), "octal number is expected", id="base-256 size"),
        pytest.param(with_size_field(b"-0000000777\0"), "octal number is expected", id="negative size"),
        pytest.param(with_size_field(b"\0" * 12), "wrong checksum|octal", id="no size"),
        pytest.param(b"Z" + write(("a.arrow", {}))[1:], "wrong checksum", id="changed header"),
    ],
)
def test_anything_but_plain_files_is_refused(content: bytes, complaint: str) -> None:
    with pytest.raises(CorruptDataError, match=complaint):
        walk(content)


def test_a_member_larger_than_the_limit_or_the_file_is_refused_before_it_is_read() -> None:
    content = write(("a.arrow", {}))
    asked: list[int] = []
    stream = io.BytesIO(content)

    def read(num_bytes: int) -> bytes:
        asked.append(num_bytes)
        return stream.read(num_bytes)

    with pytest.raises(CorruptDataError, match="claims 700 bytes; at most 699 are possible"):
        list(read_members(read, len(content), 699, "shard.tar"))
    assert asked == [512]
    with pytest.raises(CorruptDataError, match="claims 700 bytes; at most 512 are possible"):
        walk(content, size_bytes=1024)


@pytest.mark.parametrize("num_bytes", [0, 100, 511, 512, 600, 1211, 1535, 1536, 2047, 9000])
def test_every_truncation_is_found(num_bytes: int) -> None:
    content = write(("a.arrow", {}))
    with pytest.raises(CorruptDataError, match=r"shard\.tar is truncated: it ends at byte"):
        walk(content[:num_bytes], size_bytes=len(content))


def test_something_behind_the_end_is_refused() -> None:
    content = write(("a.arrow", {}))
    with pytest.raises(CorruptDataError, match="something behind the end"):
        walk(content[:-1] + b"!")
    with pytest.raises(CorruptDataError, match="the archive ends at byte"):
        walk(content + bytes(20480))
