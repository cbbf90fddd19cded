from __future__ import annotations

import hashlib
import itertools
import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.row_groups import (
    RowGroupCutter,
    choose_row_group_tokens,
    describe_row_group,
    digest_row_group,
    document_lengths,
)
from schemas.documents import tokenized_document_schema
from schemas.manifests import RowGroup

Documents = list[list[list[int]]]
"""Documents of sentences of token ids."""


def make_table(documents: Documents, vocab_size: int = 100, first: int = 0) -> pa.Table:
    return pa.Table.from_pydict(
        {
            "document_id": [f"d{first + index}" for index in range(len(documents))],
            "token_ids": [[token for sentence in document for token in sentence] for document in documents],
            "sentence_lengths": [[len(sentence) for sentence in document] for document in documents],
        },
        schema=tokenized_document_schema(vocab_size),
    )


SENTENCES = st.lists(st.integers(0, 99), min_size=1, max_size=6)
DOCUMENTS = st.lists(st.lists(SENTENCES, min_size=1, max_size=4), max_size=30)


@given(DOCUMENTS, st.integers(1, 40), st.lists(st.integers(0, 30)))
def test_row_groups_follow_from_the_documents_and_not_from_the_cuts(
    documents: Documents, min_tokens: int, cuts: list[int]
) -> None:
    expected: list[list[str]] = []
    group: list[str] = []
    num_tokens = 0
    for index, document in enumerate(documents):
        group.append(f"d{index}")
        num_tokens += sum(map(len, document))
        if num_tokens >= min_tokens:
            expected.append(group)
            group, num_tokens = [], 0
    expected += [group] if group else []

    table = make_table(documents)
    bounds = [0, *sorted(min(cut, len(documents)) for cut in cuts), len(documents)]
    cutter = RowGroupCutter(min_tokens)
    groups = [
        row_group
        for start, end in itertools.pairwise(bounds)
        for row_group in cutter.push(table.slice(start, end - start))
    ]
    groups += cutter.flush()
    assert [row_group["document_id"].to_pylist() for row_group in groups] == expected
    assert all(row_group["token_ids"].num_chunks == 1 for row_group in groups)
    assert not list(cutter.flush())


def test_a_document_longer_than_a_row_group_stays_whole() -> None:
    cutter = RowGroupCutter(3)
    groups = list(cutter.push(make_table([[[1]], [[2] * 50], [[3]]])))
    assert [row_group["document_id"].to_pylist() for row_group in groups] == [["d0", "d1"]]
    assert [row_group["document_id"].to_pylist() for row_group in cutter.flush()] == [["d2"]]


def test_the_digest_is_blake2b_of_ids_lengths_and_counts() -> None:
    documents = [[[5, 6], [7]], [[8]]]
    content = struct.pack("<4I", 5, 6, 7, 8) + struct.pack("<3i", 2, 1, 1) + struct.pack("<2i", 2, 1)
    expected = hashlib.blake2b(content, digest_size=8).hexdigest()
    assert digest_row_group(make_table(documents)) == expected
    # Neither the width of the ids, nor the identifiers, nor the layout in memory matters.
    assert digest_row_group(make_table(documents, vocab_size=70_000, first=9)) == expected
    halves = pa.concat_tables([make_table(documents[:1]), make_table([[[0]], *documents[1:]]).slice(1)])
    assert digest_row_group(halves) == expected


@pytest.mark.parametrize(
    "others",
    [[[[5, 6], [7]], [[9]]], [[[5], [6, 7]], [[8]]], [[[5, 6]], [[7], [8]]], [[[8]], [[5, 6], [7]]]],
    ids=["token", "sentence boundary", "document boundary", "order"],
)
def test_the_digest_tells_contents_apart(others: Documents) -> None:
    assert digest_row_group(make_table(others)) != digest_row_group(make_table([[[5, 6], [7]], [[8]]]))


def test_a_row_group_is_described() -> None:
    table = make_table([[[5, 6], [7]], [[8]]])
    assert describe_row_group(table) == RowGroup(
        digest=digest_row_group(table), num_documents=2, num_sentences=3, num_tokens=4
    )
    assert document_lengths(table).tolist() == [3, 1]
    assert document_lengths(table.slice(0, 0)).tolist() == []


@pytest.mark.parametrize(
    ("total_bytes", "tokens"),
    [(0, 65_536), (1 << 32, 65_536), (1 << 34, 262_144), (1 << 36, 1 << 20), (1 << 44, 1 << 20)],
)
def test_row_groups_grow_with_the_corpus(total_bytes: int, tokens: int) -> None:
    assert choose_row_group_tokens(total_bytes) == tokens
