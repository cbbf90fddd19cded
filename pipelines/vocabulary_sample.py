"""Which documents a vocabulary is learned from.

In: the inputs, the size of the sample and a seed. Out: the reads to look at, and the share of documents to
take of each. Deterministic: whether a document is taken follows from the seed and its text. Where the inputs
are much larger than the sample, only some files and reads are looked at, chosen by the seed and their names.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from pipelines.readers.expansion import measure_expansion
from pipelines.reads import ReadDescriptor, ReadPiece, choose_read_bytes, group_files, split_into_reads
from pipelines.storage import FileEntry
from schemas.configs import VocabConfig
from schemas.seeding import hash_fraction

_PURPOSE = "vocab"
# Reads enough that documents of the sample come from all over, without reading a terabyte for a gigabyte.
_READ_BYTES_PER_SAMPLE_BYTE = 8
# Files of each kind whose expansion is measured.
_MEASURED_FILES = 4

ItemT = TypeVar("ItemT")


@dataclass(frozen=True)
class SamplePlan:
    """What to look at and what to take of it.

    Attributes:
        reads: in the order of the files.
        read_share: their share of all stored bytes.
        fraction: share of their documents to take, over 0; 1 or more takes every document. It goes by the
            bytes of the files, decompressed: keys of JSONL and other columns of CSV count as text.
    """

    reads: list[ReadDescriptor]
    read_share: float
    fraction: float


def plan_sample(files: Sequence[FileEntry], config: VocabConfig) -> SamplePlan:
    """Plan a sample of about `sample_bytes`.

    Args:
        files: all inputs, sorted.
        config: the size of the sample, the seed, the format.

    Raises:
        ClozelineError: a compressed or a Parquet file can't be opened.
    """
    limit = config.sample_bytes * _READ_BYTES_PER_SAMPLE_BYTE
    read_bytes = choose_read_bytes(files)
    groups, share_of_files = _choose_some(
        group_files(files, read_bytes),
        lambda group: (group[0].path, sum(file.size_bytes for file in group)),
        limit,
        config.seed,
    )
    reads, share_of_reads = _choose_some(
        [read for group in groups for read in split_into_reads(group, config, read_bytes)],
        lambda read: (read.name, read.size_bytes),
        limit,
        config.seed,
    )
    fraction = config.sample_bytes / max(_estimate_plain_bytes(reads, config), 1.0)
    return SamplePlan(reads, share_of_files * share_of_reads, fraction)


def sample_texts(texts: pa.Array, seed: int, fraction: float) -> pa.Array:
    """The documents of a batch that are in the sample: a share of all distinct texts, by a hash of each.

    Args:
        texts: large_string [n], nothing null.
        seed: another seed takes other documents.
        fraction: share to take; 1 or more takes all.
    """
    if fraction >= 1.0:
        return texts
    salt = f"{seed}\x1f".encode()
    contents = texts.cast(pa.large_binary()).to_pylist()
    chosen = [hash_fraction(salt + content, _PURPOSE) < fraction for content in contents]
    return texts.filter(pa.array(chosen, pa.bool_()))


def _choose_some(
    items: list[ItemT], describe_item: Callable[[ItemT], tuple[str, int]], limit: int, seed: int
) -> tuple[list[ItemT], float]:
    """Items of about `limit` bytes, chosen by a seeded hash of their names, in order; their share of all."""
    described = [describe_item(item) for item in items]
    if sum(size for _, size in described) <= limit:
        return items, 1.0
    keys = [_hash_name(name, seed) for name, _ in described]
    order = np.argsort(keys, kind="stable")
    sizes = np.array([size for _, size in described], dtype=np.int64)[order]
    num_chosen = int(np.searchsorted(np.cumsum(sizes), limit)) + 1
    chosen = [items[index] for index in sorted(order[:num_chosen].tolist())]
    return chosen, int(sizes[:num_chosen].sum()) / int(sizes.sum())


def _estimate_plain_bytes(reads: Sequence[ReadDescriptor], config: VocabConfig) -> float:
    """About how many bytes the reads hold when decompressed, going by a few files of each kind."""
    kinds: dict[Hashable, dict[str, ReadPiece]] = defaultdict(dict)
    for read in reads:
        for piece in read.pieces:
            kinds[_kind_of(piece)][piece.path] = piece
    expansions: dict[Hashable, float] = {}
    for kind, pieces in kinds.items():
        measured = sorted(pieces, key=lambda path: _hash_name(path, config.seed))[:_MEASURED_FILES]
        ratios = [measure_expansion(pieces[path], config.text_field) for path in measured]
        known = [ratio for ratio in ratios if ratio is not None]
        expansions[kind] = statistics.fmean(known) if known else 1.0
    return sum(
        # A read of several pieces takes each file as a whole.
        (read.size_bytes if len(read.pieces) == 1 else piece.file_size) * expansions[_kind_of(piece)]
        for read in reads
        for piece in read.pieces
    )


def _kind_of(piece: ReadPiece) -> Hashable:
    return piece.format, piece.compression


def _hash_name(name: str, seed: int) -> float:
    return hash_fraction(f"{seed}\x1f{name}".encode("utf-8", "surrogateescape"), _PURPOSE)
