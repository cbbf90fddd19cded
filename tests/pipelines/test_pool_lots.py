from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.pool_lots import deal_parts, deal_row_groups, most_pools, order_row_groups
from pipelines.pools import PoolDescriptor, PoolRowGroup

GROUPS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 5_000)), min_size=1, max_size=30)


def make_groups(sizes: Iterable[tuple[int, int]], file_name: str = "train/a.parquet") -> list[PoolRowGroup]:
    """Row groups of (documents, tokens), each with a digest of its own."""
    return [
        PoolRowGroup(f"{index * 0x9E3779B97F4A7C15 % (1 << 64):016x}", file_name, index, documents, tokens)
        for index, (documents, tokens) in enumerate(sizes)
    ]


def documents_of(pools: Iterable[PoolDescriptor]) -> Counter[tuple[str, int]]:
    """How often each document, as (digest of its row group, place), stands in a pool."""
    return Counter(
        (group.digest, place)
        for pool in pools
        for group in pool.row_groups
        for place in range(group.part, group.num_documents, group.num_parts)
    )


def contents_of(pools: Iterable[PoolDescriptor]) -> list[list[tuple[str, int, int]]]:
    return [[(group.digest, group.part, group.num_parts) for group in pool.row_groups] for pool in pools]


@settings(deadline=None)
@given(GROUPS, st.integers(1, 2), st.data())
def test_as_many_pools_as_were_asked_for(
    sizes: list[tuple[int, int]], min_documents: int, data: st.DataObject
) -> None:
    groups = make_groups(sizes)
    most = most_pools(groups, min_documents)
    if most == 0:
        return
    num_pools = data.draw(st.integers(1, most))

    pools = deal_parts("train", groups, 3, num_pools, min_documents)

    assert [(pool.index, pool.num_pools) for pool in pools] == [(i, num_pools) for i in range(num_pools)]
    assert all(pool.num_documents >= min_documents for pool in pools)
    every = Counter((group.digest, place) for group in groups for place in range(group.num_documents))
    assert documents_of(pools) == every


def test_the_most_pools_by_hand() -> None:
    groups = make_groups([(1, 9), (5, 9), (1, 9), (4, 9), (1, 9)])

    # Pairs: two within the row group of five, two within that of four, one of those that stand alone.
    assert most_pools(groups, 2) == 2 + 2 + 1
    assert most_pools(groups, 1) == 12
    pools = deal_parts("train", groups, 0, 5, 2)
    assert sorted(pool.num_documents for pool in pools) == [2, 2, 2, 3, 3]


def test_more_pools_than_row_groups_are_about_equal() -> None:
    groups = make_groups([(200, 65_536)] * 10)

    pools = deal_parts("train", groups, 0, 64, 2)

    mean = 10 * 65_536 / 64
    assert all(abs(pool.num_tokens - mean) < mean / 8 for pool in pools)
    # Sixteen parts each, so from everywhere: a pool sees most of the ten row groups.
    assert all(len({group.digest for group in pool.row_groups}) >= 5 for pool in pools)


def test_row_groups_stay_whole_where_there_are_enough() -> None:
    groups = make_groups([(10, 1_000)] * 64)

    pools = deal_parts("train", groups, 0, 4, 2)

    assert {group.num_parts for pool in pools for group in pool.row_groups} == {1}
    assert contents_of(pools) == contents_of(deal_row_groups("train", groups, 0, 4, 2))


@settings(deadline=None)
@given(st.permutations(range(6)), st.integers(1, 20))
def test_pools_depend_on_neither_names_nor_order_of_the_files(order: list[int], num_pools: int) -> None:
    # The last two row groups are the same, which nothing but their names could tell apart.
    groups = make_groups([(8, 100), (9, 300), (1, 50), (7, 200), (12, 150)])
    groups.append(PoolRowGroup(groups[-1].digest, "train/a.parquet", 5, 12, 150))
    renamed = [
        PoolRowGroup(groups[i].digest, f"train/{order[0]}-{place}.parquet", 0, *sizes)
        for place, i in enumerate(order)
        for sizes in [(groups[i].num_documents, groups[i].num_tokens)]
    ]

    assert contents_of(deal_parts("train", renamed, 1, num_pools, 2)) == contents_of(
        deal_parts("train", groups, 1, num_pools, 2)
    )


def test_another_seed_deals_other_parts_together() -> None:
    groups = make_groups([(100, 1_000)] * 3)

    assert contents_of(deal_parts("train", groups, 1, 8, 2)) != contents_of(
        deal_parts("train", groups, 2, 8, 2)
    )


def test_the_order_of_row_groups_is_that_of_a_hash() -> None:
    groups = make_groups([(2, 10)] * 50)

    ordered = order_row_groups(groups, "train", 1)

    assert sorted(ordered) == sorted(groups)
    assert ordered == order_row_groups(groups[::-1], "train", 1)
    assert ordered != order_row_groups(groups, "train", 2) != order_row_groups(groups, "validation", 2)
