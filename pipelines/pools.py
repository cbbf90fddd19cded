"""Deal the row groups of a corpus to pools: the unit of work, of NotNext sampling and of shuffling.

In: a corpus manifest and a build configuration. Out: descriptors of pools, each of which becomes one shard.
Deterministic: a row group's place follows from the seed and from the digest of its tokens, never from the
name or number of the files, so that a dataset does not depend on where its inputs lay or how they were cut.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field

from pipelines import storage
from schemas.configs import BuildConfig
from schemas.errors import ClozelineError
from schemas.manifests import SPLITS, CorpusManifest, Split

MAX_POOL_TOKENS = 32_000_000
"""Expected tokens in a pool at most: what one worker holds in memory (2 or 4 bytes each, and offsets)."""

MIN_POOL_TOKENS = 2_000_000
"""A small corpus is cut no finer than this, so that its shuffle is nearly global."""

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
        """Tokens of the part, as if all documents of the row group were equally long."""
        return self.num_tokens * self.num_documents_taken // max(1, self.num_documents)


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


@dataclass
class _OpenPool:
    """A pool that is being filled."""

    num_documents: int = 0
    num_tokens: int = 0
    row_groups: list[PoolRowGroup] = field(default_factory=list)

    def add(self, groups: list[PoolRowGroup]) -> None:
        self.row_groups.extend(groups)
        self.num_documents += sum(group.num_documents_taken for group in groups)
        self.num_tokens += sum(group.num_tokens_taken for group in groups)


def assign_pools(manifest: CorpusManifest, config: BuildConfig) -> tuple[list[PoolDescriptor], list[str]]:
    """Deal every row group of a corpus to a pool of its split.

    Returns:
        The pools of `train`, then those of `validation`, and warnings for a person. A `validation` split that
        is too small for the objective is left out with a warning.

    Raises:
        ClozelineError: `train` has no document, or only one where the objective needs two.
    """
    pools: list[PoolDescriptor] = []
    warnings: list[str] = []
    min_documents = 2 if config.objective == "next-sentence" else 1
    for split in SPLITS:
        groups = _row_groups_of(manifest, split)
        num_documents = sum(group.num_documents for group in groups)
        if num_documents >= min_documents:
            pools.extend(_deal_split(split, groups, config.seed, min_documents))
        elif split == "train":
            raise ClozelineError(_explain_too_few(num_documents))
        elif num_documents:
            warnings.append(
                "validation has one document, which has no other to draw a NotNext segment from: "
                "the split is left out and the document stays unused"
            )
        else:
            warnings.append(
                "the corpus holds out no document, so the dataset has no validation split: "
                "with more documents or a larger --validation-fraction it would have one"
            )
    return pools, warnings


def choose_num_pools(num_tokens: int) -> int:
    """How many pools a split of this many tokens is meant to have."""
    return max(1, -(-num_tokens // MAX_POOL_TOKENS), min(SPREAD_POOLS, -(-num_tokens // MIN_POOL_TOKENS)))


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


def _row_groups_of(manifest: CorpusManifest, split: Split) -> list[PoolRowGroup]:
    return [
        PoolRowGroup(group.digest, file.name, index, group.num_documents, group.num_tokens)
        for file in manifest.files
        if file.split == split
        for index, group in enumerate(file.row_groups)
        if group.num_documents
    ]


def _deal_split(
    split: Split, groups: list[PoolRowGroup], seed: int, min_documents: int
) -> list[PoolDescriptor]:
    shuffled = sorted(groups, key=lambda group: (_hash_order(seed, split, group.digest), group))
    num_pools = min(choose_num_pools(sum(group.num_tokens for group in groups)), len(groups))
    pools = [_OpenPool() for _ in range(num_pools)]
    # The lightest pool takes the next row group: round-robin would let one long document unbalance a pool.
    lightest = [(0, index) for index in range(num_pools)]
    for group in shuffled:
        _, index = lightest[0]
        pools[index].add([group])
        heapq.heapreplace(lightest, (pools[index].num_tokens, index))
    pools = _merge_small(pools, min_documents)
    return [
        PoolDescriptor(split, index, len(pools), tuple(sorted(pool.row_groups)))
        for index, pool in enumerate(pools)
    ]


def _merge_small(pools: list[_OpenPool], min_documents: int) -> list[_OpenPool]:
    """Pour each pool with too few documents into the lightest other one."""
    kept = [pool for pool in pools if pool.num_documents >= min_documents]
    small = [pool for pool in pools if pool.num_documents < min_documents]
    while small:
        pool = small.pop()
        target = min([*kept, *small], key=lambda other: other.num_tokens)
        target.add(pool.row_groups)
        if target.num_documents >= min_documents and target in small:
            small.remove(target)
            kept.append(target)
    return kept


def _hash_order(seed: int, split: str, digest: str) -> bytes:
    return hashlib.blake2b(f"{seed}\x1f{split}\x1f{digest}".encode(), digest_size=16).digest()


def _explain_too_few(num_documents: int) -> str:
    if num_documents == 0:
        return (
            "the corpus has no document in `train`, so there is nothing to build\n"
            "Ingest more documents, or use a smaller --validation-fraction."
        )
    return (
        "the corpus has one document in `train`, but a NotNext segment must come from another document\n"
        "Ingest two documents or more (where each line is a document: --format text-lines), or build with "
        "`--objective mlm`."
    )
