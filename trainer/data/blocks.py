"""Shards as record batches, checked against the manifest.

In: a dataset and one of its shards. Out: its blocks, in stored order. A shard is read from front to back; its
size, its SHA-256, its tar structure and every value of every block are checked. Memory: one block at a time
in `iterate_blocks`; the blocks that were asked for in the other two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from schemas.errors import CorruptDataError
from schemas.manifests import ShardRecord
from trainer.data.block_format import BlockLimits, decode_block
from trainer.data.dataset import Dataset
from trainer.data.opener import ByteStream, size_bytes
from trainer.data.tar_stream import SMALLEST_TAR_BYTES, TarMember, read_members

_DIGEST_BYTES = 16


def iterate_blocks(dataset: Dataset, shard: ShardRecord, *, verify: bool = True) -> Iterator[pa.RecordBatch]:
    """The blocks of a shard one by one.

    Args:
        dataset: where the shard lies.
        shard: one of its manifest's records.
        verify: compare the SHA-256 too. It is known only at the end: a caller that must not act on changed
            examples has to exhaust the iterator first, or take `read_shard`.

    Yields:
        Record batches of `example_schema`, `num_blocks` of them.

    Raises:
        CorruptDataError: the shard is missing, truncated, changed or malformed.
        ClozelineError: it can't be read.
    """
    limits = BlockLimits.of(dataset.manifest)
    for number, member in enumerate(_iterate_members(dataset, shard, verify)):
        yield _decode(dataset, shard, limits, number, member)


def read_shard(dataset: Dataset, shard: ShardRecord, *, verify: bool = True) -> list[pa.RecordBatch]:
    """All blocks of a shard, given out only after everything about it was checked.

    Arguments and errors are those of `iterate_blocks`.
    """
    return list(iterate_blocks(dataset, shard, verify=verify))


@dataclass(frozen=True)
class _BlockPlace:
    """Where a block lies in a shard that was verified, and a hash of it as it was then."""

    offset: int
    num_bytes: int
    digest: bytes


class BlockRunReader:
    """Reads runs of blocks out of the middle of shards.

    The first time that a shard is touched it is read and verified as a whole, and the place and the hash of
    each of its blocks is kept (about 150 bytes a block); from then on only the blocks wanted are read.
    """

    def __init__(self) -> None:
        self._places: dict[str, tuple[_BlockPlace, ...]] = {}

    def read_run(
        self, dataset: Dataset, shard: ShardRecord, first: int, num_blocks: int
    ) -> list[pa.RecordBatch]:
        """The blocks `first` … `first + num_blocks - 1` of a shard. Errors are those of `iterate_blocks`."""
        if num_blocks == shard.num_blocks:
            return read_shard(dataset, shard)
        places = self._places.get(dataset.shard_url(shard))
        if places is None:
            return self._read_whole(dataset, shard, first, num_blocks)
        limits = BlockLimits.of(dataset.manifest)
        where = dataset.shard_url(shard)
        blocks = []
        with _explaining_absence(where), ByteStream(where, offset=places[first].offset) as stream:
            for number in range(first, first + num_blocks):
                place = places[number]
                stream.read(place.offset - stream.position)
                content = stream.read(place.num_bytes)
                if _digest(content) != place.digest:
                    raise CorruptDataError(f"{where} was changed while it was in use; start again.")
                blocks.append(_decode(dataset, shard, limits, number, TarMember("", place.offset, content)))
        return blocks

    def _read_whole(
        self, dataset: Dataset, shard: ShardRecord, first: int, num_blocks: int
    ) -> list[pa.RecordBatch]:
        limits = BlockLimits.of(dataset.manifest)
        places, blocks = [], []
        for number, member in enumerate(_iterate_members(dataset, shard, verify=True)):
            places.append(_BlockPlace(member.offset, len(member.content), _digest(member.content)))
            if first <= number < first + num_blocks:
                blocks.append(_decode(dataset, shard, limits, number, member))
        self._places[dataset.shard_url(shard)] = tuple(places)
        return blocks


def _iterate_members(dataset: Dataset, shard: ShardRecord, verify: bool) -> Iterator[TarMember]:
    where = dataset.shard_url(shard)
    with _explaining_absence(where):
        _check_size(where, shard, size_bytes(where))
        with ByteStream(where) as stream:
            yield from _check_members(stream, dataset, shard, verify)


@contextmanager
def _explaining_absence(where: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise CorruptDataError(
            f"{where} is missing, though the manifest lists it.\nCopy the dataset anew, or build it again."
        ) from None


def _check_members(
    stream: ByteStream, dataset: Dataset, shard: ShardRecord, verify: bool
) -> Iterator[TarMember]:
    where = dataset.shard_url(shard)
    digest = hashlib.sha256()

    def read(num_bytes: int) -> bytes:
        content = stream.read(num_bytes)
        if verify:
            digest.update(content)
        return content

    num_members = 0
    for member in read_members(read, shard.size_bytes, BlockLimits.of(dataset.manifest).max_bytes, where):
        num_members += 1
        if num_members > shard.num_blocks:
            break
        yield member
    if num_members != shard.num_blocks:
        more = "more" if num_members > shard.num_blocks else f"{num_members:,}"
        raise CorruptDataError(f"{where} holds {more} blocks; the manifest says {shard.num_blocks:,}.")
    if stream.read(1):
        raise CorruptDataError(f"{where} is longer than the {shard.size_bytes:,} bytes of the manifest.")
    if verify and digest.hexdigest() != shard.sha256:
        raise CorruptDataError(
            f"{where} was changed: its SHA-256 is {digest.hexdigest()[:12]}…, the manifest says "
            f"{shard.sha256[:12]}….\nCopy it anew, or build the dataset again."
        )


def _check_size(where: str, shard: ShardRecord, found: int | None) -> None:
    if found is not None and found != shard.size_bytes:
        state = "is truncated" if found < shard.size_bytes else "was changed"
        raise CorruptDataError(
            f"{where} {state}: it has {found:,} bytes, the manifest says {shard.size_bytes:,}.\n"
            f"Copy it anew, or build the dataset again."
        )
    if shard.size_bytes < SMALLEST_TAR_BYTES:
        # Also keeps away from pipes and devices, whose size is 0 and whose reading may never end.
        raise CorruptDataError(f"{where} can't be a shard: the manifest says {shard.size_bytes:,} bytes.")


def _decode(
    dataset: Dataset, shard: ShardRecord, limits: BlockLimits, number: int, member: TarMember
) -> pa.RecordBatch:
    size = limits.max_examples
    expected = size if number < shard.num_blocks - 1 else shard.num_examples - size * (shard.num_blocks - 1)
    where = f"{dataset.shard_url(shard)}: block {number:,}"
    return decode_block(member.content, limits, where, num_examples=expected)


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
