"""The members of a shard, nothing trusted.

In: the bytes of a tar file in order. Out: each member's name, offset and content. A shard is a USTAR archive
of
regular files and nothing else, so this reads just that: links, devices, folders, extended headers (pax, GNU),
sizes that aren't octal, and members longer than a block can be are refused before anything is allocated for
them. Memory: one member at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from schemas.errors import CorruptDataError

RECORD_BYTES = 512
# The two records of zeros that end an archive.
SMALLEST_TAR_BYTES = 2 * RECORD_BYTES
# tarfile fills a file up to a multiple of 20 records with zeros.
MAX_PADDING_BYTES = 20 * RECORD_BYTES
_REGULAR_FILE_TYPES = (b"0", b"\0")
_MEMBER_NAME = re.compile(rb"[A-Za-z0-9_][A-Za-z0-9_.-]{0,98}\.arrow")


class TarMember(NamedTuple):
    """A regular file in a tar; `offset` is that of its first content byte."""

    name: str
    offset: int
    content: bytes


def read_members(
    read: Callable[[int], bytes], size_bytes: int, max_member_bytes: int, where: str
) -> Iterator[TarMember]:
    """Walk through a tar file of known size.

    Args:
        read: gives the next so many bytes, fewer only at the end of the file.
        size_bytes: of the whole file; exactly so many bytes are read.
        max_member_bytes: a longer member is refused.
        where: the shard's URL, for messages.

    Raises:
        CorruptDataError: the bytes are no such tar, or end too early.
    """
    position = 0
    while True:
        header = _read_exactly(read, RECORD_BYTES, position, where)
        position += RECORD_BYTES
        if not header.strip(b"\0"):
            break
        name, length = _parse_header(header, position - RECORD_BYTES, where)
        padded = -(-length // RECORD_BYTES) * RECORD_BYTES
        if length > max_member_bytes or position + padded > size_bytes:
            raise CorruptDataError(
                f"{where}: member {name} claims {length:,} bytes; at most "
                f"{min(max_member_bytes, size_bytes - position):,} are possible here."
            )
        content = _read_exactly(read, padded, position, where)
        yield TarMember(name, position, content[:length] if padded != length else content)
        position += padded
    _read_padding(read, size_bytes - position, position, where)


def _read_padding(read: Callable[[int], bytes], num_bytes: int, position: int, where: str) -> None:
    if not RECORD_BYTES <= num_bytes <= MAX_PADDING_BYTES:
        raise CorruptDataError(
            f"{where}: the archive ends at byte {position:,}, {num_bytes:,} before the file."
        )
    if _read_exactly(read, num_bytes, position, where).strip(b"\0"):
        raise CorruptDataError(
            f"{where}: there is something behind the end of the archive at byte {position:,}."
        )


def _parse_header(header: bytes, position: int, where: str) -> tuple[str, int]:
    place = f"{where}: the tar header at byte {position:,}"
    # The checksum is the sum of the header's bytes with its own field taken as spaces (POSIX.1-1988).
    expected = sum(header) - sum(header[148:156]) + 8 * ord(" ")
    if _parse_octal(header[148:156], place) != expected:
        raise CorruptDataError(f"{place} has a wrong checksum; the shard is damaged, copy it anew.")
    if header[156:157] not in _REGULAR_FILE_TYPES:
        raise CorruptDataError(
            f"{place} is of type {header[156:157]!r}; a shard holds regular files only (type b'0')."
        )
    name = header[:100].rstrip(b"\0")
    if header[257:262] != b"ustar" or header[345:500].strip(b"\0") or not _MEMBER_NAME.fullmatch(name):
        raise CorruptDataError(
            f"{place} names {name[:60]!r}; a shard's members are plain `<key>.arrow` names."
        )
    return name.decode("ascii"), _parse_octal(header[124:136], place)


def _parse_octal(field: bytes, place: str) -> int:
    digits = field.strip(b"\0 ")
    if not re.fullmatch(rb"[0-7]+", digits):
        raise CorruptDataError(f"{place} has {field!r} where an octal number is expected.")
    return int(digits, 8)


def _read_exactly(read: Callable[[int], bytes], num_bytes: int, position: int, where: str) -> bytes:
    content = read(num_bytes)
    if len(content) != num_bytes:
        raise CorruptDataError(
            f"{where} is truncated: it ends at byte {position + len(content):,}, at least "
            f"{position + num_bytes:,} are expected.\nCopy it anew, or build the dataset again."
        )
    return content
