"""Find documents whose text occurred before, in bounded memory, whatever their number.

In: for each read, the texts of its documents. Out: for each read, the rows that repeat an earlier document:
of equal texts the first in the order of the reads is kept. Deterministic: the result follows from the texts
and from the order of the reads alone.

A text is told by BLAKE2b of 128 bits: among 10^10 documents the chance that two different ones share it is
below 10^-18. Hashes are dealt to 256 buckets by their highest byte. Each read writes its hashes sorted, so
that a bucket of it is one range of bytes; buckets are then compared across all reads a few at a time, as many
as fit into memory. Both files are little-endian:

    hashes of a read      uint64 [257], where each bucket begins; then records of `HASH_RECORD`
    repeats of a range    uint64 [reads + 1], where each read begins; then rows (uint32), ascending in a read
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipelines import storage
from schemas.errors import CorruptDataError

NUM_BUCKETS = 256
MAX_COMPARED_DOCUMENTS = 4_000_000
"""Documents whose hashes are held at a time: some 200 MB with what sorting needs."""

HASH_RECORD = np.dtype([("high", "<u8"), ("low", "<u8"), ("row", "<u4")])
_HASH_BYTES = 16
_OFFSET_BYTES = 8
_ROW_BYTES = 4
_HEADER_BYTES = (NUM_BUCKETS + 1) * _OFFSET_BYTES


class ByteSink(Protocol):
    """What can be written to."""

    def write(self, content: bytes, /) -> int:
        """Write all of the bytes."""


def hash_texts(texts: pa.Array, first_row: int) -> NDArray[np.void]:
    """The hashes of some texts: `HASH_RECORD` [n], rows counted from `first_row`.

    Args:
        texts: large_string [n], without nulls.
        first_row: the place of the first one among the documents of its read.
    """
    offsets = np.frombuffer(texts.buffers()[1], "<i8")[texts.offset : texts.offset + len(texts) + 1].tolist()
    content = memoryview(texts.buffers()[2] or b"")
    digests = b"".join(
        hashlib.blake2b(content[start:end], digest_size=_HASH_BYTES).digest()
        for start, end in pairwise(offsets)
    )
    records = np.empty(len(texts), HASH_RECORD)
    halves = np.frombuffer(digests, "<u8").reshape(-1, 2)
    records["high"], records["low"] = halves[:, 0], halves[:, 1]
    records["row"] = np.arange(first_row, first_row + len(texts))
    return records


def write_hashes(stream: ByteSink, hashes: NDArray[np.void]) -> None:
    """Write the hashes of a read, sorted into buckets."""
    ordered = hashes[np.lexsort((hashes["row"], hashes["low"], hashes["high"]))]
    bounds = np.arange(1, NUM_BUCKETS, dtype=np.uint64) << np.uint64(56)
    inner = np.searchsorted(ordered["high"], bounds)
    stream.write(np.concatenate([[0], inner, [len(ordered)]]).astype("<u8").tobytes())
    stream.write(ordered.tobytes())


def read_hashes(path: str, first_bucket: int, end_bucket: int) -> NDArray[np.void]:
    """The hashes of a read in a range of buckets: `HASH_RECORD` [n], sorted.

    Raises:
        CorruptDataError: the file is shorter than it says.
    """
    bounds = _read_range(path, 0, _HEADER_BYTES).view("<u8")
    start, end = int(bounds[first_bucket]), int(bounds[end_bucket])
    return _read_range(
        path, _HEADER_BYTES + start * HASH_RECORD.itemsize, (end - start) * HASH_RECORD.itemsize
    ).view(HASH_RECORD)


def divide_buckets(num_documents: int) -> list[tuple[int, int]]:
    """Ranges of buckets that hold about `MAX_COMPARED_DOCUMENTS` each, out of so many documents."""
    num_ranges = min(NUM_BUCKETS, max(1, -(-num_documents // MAX_COMPARED_DOCUMENTS)))
    bounds = [NUM_BUCKETS * number // num_ranges for number in range(num_ranges + 1)]
    return list(pairwise(bounds))


def find_repeats(hashes: Sequence[NDArray[np.void]]) -> list[NDArray[np.uint32]]:
    """For each read the rows whose text occurred in an earlier row or read: uint32, ascending.

    Args:
        hashes: of each read, in the order of the reads, all of the same buckets.
    """
    sizes = [len(part) for part in hashes]
    together = np.concatenate([*hashes, np.empty(0, HASH_RECORD)])
    read = np.repeat(np.arange(len(hashes), dtype=np.uint32), sizes)
    order = np.lexsort((together["row"], read, together["low"], together["high"]))
    high, low = together["high"][order], together["low"][order]
    is_repeat = np.zeros(len(order), np.bool_)
    is_repeat[1:] = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
    repeats = order[is_repeat]
    by_read = repeats[np.lexsort((together["row"][repeats], read[repeats]))]
    bounds = np.searchsorted(read[by_read], np.arange(len(hashes) + 1))
    rows = together["row"][by_read]
    return [rows[start:end] for start, end in pairwise(bounds)]


def write_repeats(stream: ByteSink, repeats: Sequence[NDArray[np.uint32]]) -> None:
    """Write what `find_repeats` found."""
    bounds = np.concatenate([[0], np.cumsum([len(rows) for rows in repeats])])
    stream.write(bounds.astype("<u8").tobytes())
    stream.write(np.concatenate([*repeats, np.empty(0, np.uint32)]).astype("<u4").tobytes())


def read_repeats(paths: Iterable[str], read: int, num_reads: int) -> NDArray[np.uint32]:
    """The rows of one read that repeat an earlier text: uint32, ascending.

    Args:
        paths: what `write_repeats` wrote for each range of buckets.
        read: the place of the read in the order of the reads.
        num_reads: how many reads there are.
    """
    header_bytes = (num_reads + 1) * _OFFSET_BYTES
    parts = [np.empty(0, np.uint32)]
    for path in paths:
        start, end = _read_range(path, read * _OFFSET_BYTES, 2 * _OFFSET_BYTES).view("<u8").tolist()
        rows = _read_range(path, header_bytes + start * _ROW_BYTES, (end - start) * _ROW_BYTES)
        parts.append(rows.view("<u4").astype(np.uint32))
    return np.sort(np.concatenate(parts))


def _read_range(path: str, offset: int, num_bytes: int) -> NDArray[np.uint8]:
    with storage.open_read(path, offset) as stream:
        content = stream.read(num_bytes)
    if len(content) != num_bytes:
        raise CorruptDataError(
            f"{path} ends after {offset + len(content)} bytes, expected {offset + num_bytes}\n"
            "Run the same command again; it makes the file anew."
        )
    return np.frombuffer(content, np.uint8)
