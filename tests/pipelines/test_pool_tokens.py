from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines import pool_tokens
from pipelines.pool_tokens import PoolTokens, hash_documents, hash_sentences
from tests.pipelines.corpora import make_pool, to_table

SENTENCES = st.lists(st.integers(0, 3), min_size=1, max_size=4)
DOCUMENTS = st.lists(st.lists(SENTENCES, min_size=1, max_size=4), min_size=1, max_size=8)


def test_joins_tables_in_their_order() -> None:
    first = to_table([[[5, 6], [7]], [[8]]], 100)
    second = to_table([[[9, 9, 9]]], 100)

    pool = PoolTokens.from_tables([first, pa.concat_tables([second, first.slice(1)])])

    assert pool.token_ids.tolist() == [5, 6, 7, 8, 9, 9, 9, 8]
    assert pool.token_ids.dtype == np.uint16
    assert pool.sentence_offsets.tolist() == [0, 2, 3, 4, 7, 8]
    assert pool.document_offsets.tolist() == [0, 2, 3, 4, 5]
    assert pool.num_documents == 4


@settings(deadline=None)
@given(DOCUMENTS)
def test_flat_tables_give_the_pool_back(documents: list[list[list[int]]]) -> None:
    pool = make_pool(documents)

    again = PoolTokens.from_flat_tables(pool.to_flat_tables())

    assert np.array_equal(again.token_ids, pool.token_ids)
    assert np.array_equal(again.sentence_offsets, pool.sentence_offsets)
    assert np.array_equal(again.document_offsets, pool.document_offsets)
    assert np.shares_memory(again.token_ids, pool.token_ids)


@settings(deadline=None)
@given(DOCUMENTS)
def test_hashes_agree_exactly_where_the_tokens_do(documents: list[list[list[int]]]) -> None:
    pool = make_pool(documents)
    sentences = [tuple(sentence) for document in documents for sentence in document]

    hashes = hash_sentences(pool)
    document_hashes = hash_documents(pool, hashes)

    assert len(set(hashes.tolist())) == len(set(sentences))
    assert len(set(zip(sentences, hashes.tolist(), strict=True))) == len(set(sentences))
    texts = [tuple(map(tuple, document)) for document in documents]
    assert len(set(document_hashes.tolist())) == len(set(texts))
    assert len(set(zip(texts, document_hashes.tolist(), strict=True))) == len(set(texts))


def test_hashes_do_not_depend_on_how_the_pool_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = make_pool([[[1, 2, 3], [4]], [[5] * 40, [1, 2, 3]], [[4], [6, 7]]])
    whole = hash_sentences(pool)

    monkeypatch.setattr(pool_tokens, "_HASHED_TOKENS_AT_A_TIME", 4)

    assert np.array_equal(hash_sentences(pool), whole)
    assert whole[0] == whole[3]
    assert whole[1] == whole[4]
