from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.pools import (
    PoolDescriptor,
    PoolRowGroup,
    choose_num_pools,
    dump_plan,
    least_num_pools,
    load_plan,
)


@pytest.mark.parametrize(
    ("num_tokens", "expected"),
    [
        (0, 1),
        (1, 1),
        (2_000_000, 1),
        (2_000_001, 2),
        (31_000_000, 16),
        (512_000_000, 16),
        (512_000_001, 17),
        (3_200_000_000, 100),
    ],
)
def test_number_of_pools(num_tokens: int, expected: int) -> None:
    assert choose_num_pools(num_tokens) == expected


@pytest.mark.parametrize(("num_tokens", "expected"), [(0, 0), (1, 1), (32_000_000, 1), (32_000_001, 2)])
def test_least_number_of_pools(num_tokens: int, expected: int) -> None:
    assert least_num_pools(num_tokens) == expected


@pytest.mark.parametrize(
    ("duplicate_factor", "num_tokens", "expected"),
    # Used forty times, a pool holds a quarter of 32 million tokens; up to ten times all of them.
    [(10, 640_000_000, 20), (40, 640_000_000, 80), (40, 8_000_000, 4)],
)
def test_documents_used_often_make_smaller_pools(
    duplicate_factor: int, num_tokens: int, expected: int
) -> None:
    assert choose_num_pools(num_tokens, duplicate_factor) == expected


@pytest.mark.parametrize(("num_tokens", "expected"), [(8_000_000, 1), (8_000_001, 2)])
def test_least_number_of_pools_of_documents_used_forty_times(num_tokens: int, expected: int) -> None:
    assert least_num_pools(num_tokens, duplicate_factor=40) == expected


def test_parts_of_a_row_group() -> None:
    parts = [PoolRowGroup("0" * 16, "train/a.parquet", 0, 7, 70, part, 3) for part in range(3)]

    # Documents 0, 3, 6; 1, 4; 2, 5.
    assert [group.num_documents_taken for group in parts] == [3, 2, 2]
    assert [group.num_tokens_taken for group in parts] == [30, 20, 20]
    pool = PoolDescriptor("train", 0, 1, (parts[0], parts[2]))
    assert (pool.num_documents, pool.num_tokens) == (5, 50)


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    small = PoolDescriptor("train", 0, 2, (PoolRowGroup("0" * 16, "train/a.parquet", 3, 2, 10),))
    large = PoolDescriptor("train", 1, 2, (PoolRowGroup("1" * 16, "train/b.parquet", 0, 4, 99, 1, 2),))
    (tmp_path / "pools.jsonl").write_bytes(dump_plan([small, large]))

    assert list(load_plan(str(tmp_path / "pools.jsonl"))) == [large, small]
