"""Deal row groups, or parts of them, to pools that become about equally large.

In: the row groups of a split, a seed, and how many pools. Out: descriptors of pools. Deterministic: a row
group's place follows from the seed and from the digest of its tokens, never from the name or number of the
files, so that a dataset does not depend on where its inputs lay or how they were cut.
"""

from __future__ import annotations

import hashlib
import heapq
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from pipelines.pools import PoolDescriptor, PoolRowGroup
from schemas.manifests import Split

LOTS_A_POOL = 16
"""Lots that each pool is to get where the number of pools was chosen: so its size is right to a sixteenth."""

Lot = tuple[PoolRowGroup, ...]
"""What is dealt to a pool as one."""


@dataclass
class _OpenPool:
    """A pool that is being filled."""

    num_documents: int = 0
    num_tokens: int = 0
    row_groups: list[PoolRowGroup] = field(default_factory=list)

    def add(self, groups: Iterable[PoolRowGroup]) -> None:
        for group in groups:
            self.row_groups.append(group)
            self.num_documents += group.num_documents_taken
            self.num_tokens += group.num_tokens_taken


def deal_row_groups(
    split: Split, groups: Sequence[PoolRowGroup], seed: int, num_pools: int, min_documents: int
) -> list[PoolDescriptor]:
    """Deal whole row groups.

    Args:
        split: of the row groups.
        groups: all of them, in any order.
        seed: another one deals otherwise.
        num_pools: pools at most; there are fewer where row groups or documents are.
        min_documents: documents that a pool needs; all row groups together have so many.
    """
    lots = [(group,) for group in order_row_groups(groups, split, seed)]
    pools = _merge_small(_fill(lots, min(num_pools, len(lots))), min_documents)
    return _describe(split, pools)


def deal_parts(
    split: Split, groups: Sequence[PoolRowGroup], seed: int, num_pools: int, min_documents: int
) -> list[PoolDescriptor]:
    """Deal exactly `num_pools` pools, row groups in parts where there are too few of them.

    Args:
        split: of the row groups.
        groups: all of them, in any order.
        seed: another one deals otherwise.
        num_pools: from 1 to `most_pools`.
        min_documents: documents that each pool gets at least.
    """
    ordered = order_row_groups(groups, split, seed)
    lots = _in_seeded_order(_cut_lots(ordered, LOTS_A_POOL * num_pools, min_documents), split, seed)
    return _describe(split, _fill(lots, num_pools))


def order_row_groups(groups: Iterable[PoolRowGroup], split: Split, seed: int) -> list[PoolRowGroup]:
    """The row groups in the order in which they are dealt, which follows from the seed and their digests."""
    return [group for (group,) in _in_seeded_order(((group,) for group in groups), split, seed)]


def most_pools(groups: Iterable[PoolRowGroup], min_documents: int) -> int:
    """How many pools `deal_parts` can make of these row groups."""
    num_documents = [group.num_documents for group in groups]
    num_small = sum(number for number in num_documents if number < min_documents)
    return sum(number // min_documents for number in num_documents) + num_small // min_documents


def _cut_lots(groups: Sequence[PoolRowGroup], num_lots: int, min_documents: int) -> list[Lot]:
    """At least `num_lots` lots of `min_documents` or more documents each, or as many as there can be."""
    small = [group for group in groups if group.num_documents < min_documents]
    large = [group for group in groups if group.num_documents >= min_documents]
    most = [group.num_documents // min_documents for group in large]
    # A small row group has one document, where a pool needs two.
    joined = [tuple(small[i : i + min_documents]) for i in range(0, len(small), min_documents)]
    left = joined.pop() if joined and len(joined[-1]) < min_documents else ()
    num_parts = 1 + bisect_left(
        range(1, max(most, default=1)),
        num_lots - len(joined),
        key=lambda parts: sum(min(parts, limit) for limit in most),
    )
    lots = list(joined)
    for group, limit in zip(large, most, strict=True):
        parts = min(num_parts, limit)
        lots += [(replace(group, part=part, num_parts=parts),) for part in range(parts)]
    lots[0] += left
    return lots


def _in_seeded_order(lots: Iterable[Lot], split: Split, seed: int) -> list[Lot]:
    return sorted(lots, key=lambda lot: (_hash_order(seed, split, lot[0]), lot))


def _hash_order(seed: int, split: Split, group: PoolRowGroup) -> bytes:
    name = group.digest if group.num_parts == 1 else f"{group.digest}\x1f{group.part}\x1f{group.num_parts}"
    return hashlib.blake2b(f"{seed}\x1f{split}\x1f{name}".encode(), digest_size=16).digest()


def _fill(lots: Sequence[Lot], num_pools: int) -> list[_OpenPool]:
    pools = [_OpenPool() for _ in range(num_pools)]
    # The lightest pool takes the next lot: round-robin would let one long document unbalance a pool.
    lightest = [(0, index) for index in range(num_pools)]
    for lot in lots:
        _, index = lightest[0]
        pools[index].add(lot)
        heapq.heapreplace(lightest, (pools[index].num_tokens, index))
    return pools


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


def _describe(split: Split, pools: Sequence[_OpenPool]) -> list[PoolDescriptor]:
    return [
        PoolDescriptor(split, index, len(pools), tuple(sorted(pool.row_groups)))
        for index, pool in enumerate(pools)
    ]
