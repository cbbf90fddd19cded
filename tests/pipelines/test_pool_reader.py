from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from pipelines.pool_assignment import assign_pools
from pipelines.pool_reader import read_pool
from pipelines.pools import PoolDescriptor
from schemas.configs import BuildConfig
from schemas.errors import ClozelineError, CorruptDataError
from tests.pipelines.corpora import make_documents, make_pool, write_corpus

GROUPS = [make_documents(5, ids=range(60, 100), name=f"group {index}") for index in range(4)]


@pytest.fixture
def pool(tmp_path: Path, tiny_tokenizer: Tokenizer) -> PoolDescriptor:
    files = {"train/a.parquet": GROUPS[:3], "train/b.parquet": GROUPS[3:]}
    (pool,), _ = assign_pools(write_corpus(tmp_path, tiny_tokenizer, files), BuildConfig())
    return pool


def test_documents_come_in_the_order_of_the_descriptor(tmp_path: Path, pool: PoolDescriptor) -> None:
    tokens = read_pool(str(tmp_path), pool, 200)

    places = {("train/a.parquet", i): GROUPS[i] for i in range(3)} | {("train/b.parquet", 0): GROUPS[3]}
    documents = [d for group in pool.row_groups for d in places[group.file_name, group.index]]
    expected = make_pool(documents)
    assert np.array_equal(tokens.token_ids, expected.token_ids)
    assert np.array_equal(tokens.sentence_offsets, expected.sentence_offsets)
    assert np.array_equal(tokens.document_offsets, expected.document_offsets)
    assert sorted(group.digest for group in pool.row_groups) == [group.digest for group in pool.row_groups]


def test_parts_of_row_groups(tmp_path: Path, pool: PoolDescriptor) -> None:
    first, second = (
        group for group in pool.row_groups if group.file_name == "train/a.parquet" and group.index < 2
    )
    parts = (
        replace(first, part=1, num_parts=3),
        replace(second, part=0, num_parts=2),
        replace(second, part=1, num_parts=2),
    )

    tokens = read_pool(str(tmp_path), replace(pool, row_groups=parts), 200)

    expected = make_pool(
        [*GROUPS[first.index][1::3], *GROUPS[second.index][::2], *GROUPS[second.index][1::2]]
    )
    assert np.array_equal(tokens.token_ids, expected.token_ids)
    assert np.array_equal(tokens.sentence_offsets, expected.sentence_offsets)
    assert np.array_equal(tokens.document_offsets, expected.document_offsets)


def test_a_truncated_file_is_named(tmp_path: Path, pool: PoolDescriptor) -> None:
    path = tmp_path / "train/b.parquet"
    path.write_bytes(path.read_bytes()[:-20])

    with pytest.raises(CorruptDataError, match=r"train/b\.parquet can't be read[\s\S]*clozeline ingest"):
        read_pool(str(tmp_path), pool, 200)


def test_a_file_of_other_documents_is_named(
    tmp_path: Path, pool: PoolDescriptor, tiny_tokenizer: Tokenizer
) -> None:
    write_corpus(tmp_path, tiny_tokenizer, {"train/b.parquet": GROUPS[:1]})

    with pytest.raises(CorruptDataError, match=r"train/b\.parquet: row group 0 has digest"):
        read_pool(str(tmp_path), pool, 200)


def test_a_missing_file_is_named(tmp_path: Path, pool: PoolDescriptor) -> None:
    (tmp_path / "train/a.parquet").unlink()

    with pytest.raises(ClozelineError, match=r"can't read .*train/a\.parquet"):
        read_pool(str(tmp_path), pool, 200)


def test_a_file_without_a_row_group_is_named(
    tmp_path: Path, pool: PoolDescriptor, tiny_tokenizer: Tokenizer
) -> None:
    write_corpus(tmp_path, tiny_tokenizer, {"train/a.parquet": GROUPS[:1]})

    with pytest.raises(CorruptDataError, match=r"train/a\.parquet"):
        read_pool(str(tmp_path), pool, 200)
