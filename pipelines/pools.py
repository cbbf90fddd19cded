"""Pools: the unit of work, of NotNext sampling and of shuffling; how many there are, and their descriptors.

In: row groups of a corpus. Out: descriptors of pools, each of which becomes one shard, and a plan of them as
a file. Deterministic: names and order follow from the pools alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from pipelines import storage
from schemas.manifests import CorpusManifest, Split

MAX_POOL_TOKENS = 32_000_000
"""Expected tokens in a pool at most: what one worker holds in memory (2 or 4 bytes each, and offsets)."""

MIN_POOL_TOKENS = 2_000_000
"""A small corpus is cut no finer than this, so that its shuffle is nearly global."""

MAX_FULL_POOL_USES = 10
"""Uses of each document up to which a pool may be full: its pairs are in memory too, once for each use."""

SPREAD_POOLS = 16
"""Pools that a corpus of moderate size is spread over, so that several workers have work."""


@dataclass(frozen=True, order=True)
class PoolRowGroup:
    """One row group of one corpus file.

    Attributes:
        digest: hash of its tokens and sentence lengths, as in the corpus manifest.
        file_name: the Parquet file, relative to the corpus.
        index: which row group of the file.
        num_documents: documents in the row group.
        num_tokens: tokens in the row group.
        part: which part of its documents, from 0: every `num_parts`-th one, beginning with this.
        num_parts: parts that it is dealt in.
    """

    digest: str
    file_name: str
    index: int
    num_documents: int
    num_tokens: int
    part: int = 0
    num_parts: int = 1

    @property
    def num_documents_taken(self) -> int:
        """Documents of the part."""
        return len(range(self.part, self.num_documents, self.num_parts))

    @property
    def num_tokens_taken(self) -> int:
        """Tokens of the part, as if all documents of the row group were equally long; one each at least."""
        if self.num_parts == 1:
            return self.num_tokens
        return max(self.num_documents_taken, self.num_tokens * self.num_documents_taken // self.num_documents)


@dataclass(frozen=True)
class PoolDescriptor:
    """The row groups that are paired, masked and shuffled together, in canonical order.

    Attributes:
        split: `train` or `validation`.
        index: number of the pool in its split, from 0.
        num_pools: pools in the split.
        row_groups: sorted by digest.
    """

    split: Split
    index: int
    num_pools: int
    row_groups: tuple[PoolRowGroup, ...]

    @property
    def name(self) -> str:
        """The stable name that random streams and blocks are keyed by, such as `train-00003`."""
        return f"{self.split}-{self.index:05d}"

    @property
    def shard_name(self) -> str:
        """The tar file that the pool becomes, such as `train-00003-of-00016.tar`."""
        return f"{self.name}-of-{self.num_pools:05d}.tar"

    @property
    def num_documents(self) -> int:
        """Documents in the pool."""
        return sum(group.num_documents_taken for group in self.row_groups)

    @property
    def num_tokens(self) -> int:
        """Tokens in the pool, before any duplication; about, where row groups are dealt in parts."""
        return sum(group.num_tokens_taken for group in self.row_groups)


def row_groups_of(manifest: CorpusManifest, split: Split) -> list[PoolRowGroup]:
    """The row groups of a split that hold documents, in the order of the manifest."""
    return [
        PoolRowGroup(group.digest, file.name, index, group.num_documents, group.num_tokens)
        for file in manifest.files
        if file.split == split
        for index, group in enumerate(file.row_groups)
        if group.num_documents
    ]


def choose_num_pools(num_tokens: int, duplicate_factor: int = 1) -> int:
    """How many pools a split of this many tokens is meant to have, where nobody chose."""
    spread = min(SPREAD_POOLS, -(-num_tokens // MIN_POOL_TOKENS))
    return max(1, least_num_pools(num_tokens, duplicate_factor), spread)


def least_num_pools(num_tokens: int, duplicate_factor: int = 1) -> int:
    """How many pools so many tokens need, that each fits into memory."""
    return -(-num_tokens // most_pool_tokens(duplicate_factor))


def most_pool_tokens(duplicate_factor: int) -> int:
    """How many tokens a pool may have, whose documents are used so often."""
    return MAX_POOL_TOKENS * MAX_FULL_POOL_USES // max(MAX_FULL_POOL_USES, duplicate_factor)


def dump_plan(pools: Iterable[PoolDescriptor]) -> bytes:
    """One JSON object a line for each pool, the largest first, so that none is begun late."""
    ordered = sorted(pools, key=lambda pool: (-pool.num_tokens, pool.name))
    return b"".join(json.dumps(asdict(pool), sort_keys=True).encode() + b"\n" for pool in ordered)


def load_plan(path: str) -> Iterator[PoolDescriptor]:
    """The pools that `dump_plan` wrote, in their order."""
    for line in storage.read_bytes(path).splitlines():
        fields = json.loads(line)
        groups = tuple(PoolRowGroup(**group) for group in fields.pop("row_groups"))
        yield PoolDescriptor(row_groups=groups, **fields)
