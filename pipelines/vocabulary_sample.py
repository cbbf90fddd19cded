"""Which documents a vocabulary is learned from.

In: the inputs, the size of the sample and a seed. Out: the reads to look at, and the documents to take of
each. Deterministic: whether a document is taken follows from the seed and its text. Where the inputs are much
larger than the sample, only some files and reads are looked at, chosen by the seed and their names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from pipelines.reads import ReadDescriptor, choose_read_bytes, group_files, split_into_reads
from pipelines.storage import FileEntry
from schemas.configs import VocabConfig
from schemas.seeding import hash_fraction

_PURPOSE = "vocab"
# Reads enough that documents of the sample come from all over, without reading a terabyte for a gigabyte.
_READ_BYTES_PER_SAMPLE_BYTE = 8
# Stored bytes to bytes of text, roughly: enough for a sample of "about" so many bytes.
_EXPANSION = 3.0

ItemT = TypeVar("ItemT")


def plan_sample(files: Sequence[FileEntry], config: VocabConfig) -> tuple[list[ReadDescriptor], float]:
    """Which reads to look at, and the share of their documents that makes up the sample.

    Args:
        files: all inputs, sorted.
        config: the size of the sample, the seed, the format.

    Returns:
        The reads in the order of the files, and a share over 0; 1 or more takes every document.
    """
    limit = config.sample_bytes * _READ_BYTES_PER_SAMPLE_BYTE
    read_bytes = choose_read_bytes(files)
    groups = _choose_some(
        group_files(files, read_bytes),
        lambda group: (group[0].path, sum(file.size_bytes for file in group)),
        limit,
        config.seed,
    )
    reads = _choose_some(
        [read for group in groups for read in split_into_reads(group, config, read_bytes)],
        lambda read: (read.name, read.size_bytes),
        limit,
        config.seed,
    )
    text_bytes = sum(read.size_bytes * (_EXPANSION if _is_packed(read) else 1.0) for read in reads)
    return reads, config.sample_bytes / max(text_bytes, 1.0)


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
) -> list[ItemT]:
    """Items of about `limit` bytes in all, chosen by a seeded hash of their names, in the order given."""
    described = [describe_item(item) for item in items]
    if sum(size for _, size in described) <= limit:
        return items
    keys = [
        hash_fraction(f"{seed}\x1f{name}".encode("utf-8", "surrogateescape"), _PURPOSE)
        for name, _ in described
    ]
    order = np.argsort(keys, kind="stable")
    sizes = np.array([size for _, size in described], dtype=np.int64)[order]
    num_chosen = int(np.searchsorted(np.cumsum(sizes), limit)) + 1
    return [items[index] for index in sorted(order[:num_chosen].tolist())]


def _is_packed(read: ReadDescriptor) -> bool:
    return any(piece.compression is not None or piece.format == "parquet" for piece in read.pieces)
