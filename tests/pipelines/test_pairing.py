from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.pairing import LabelBalance, Pairs, sample_pairs
from pipelines.pool_tokens import PoolTokens
from schemas.configs import BuildConfig
from schemas.seeding import RandomStream
from tests.pipelines.corpora import Document, make_documents, make_pool

SENTENCES = st.lists(st.integers(0, 2), min_size=1, max_size=12)
DOCUMENTS = st.lists(st.lists(SENTENCES, min_size=1, max_size=8), min_size=2, max_size=10)


def sample(documents: list[Document], seed: int = 1, **settings: object) -> tuple[PoolTokens, Pairs]:
    pool = make_pool(documents)
    return pool, sample_pairs(pool, BuildConfig(**settings), RandomStream(seed, "pairs", "train-00000"))


def rows_of(pairs: Pairs) -> list[tuple[int, ...]]:
    columns = [pairs.a_start, pairs.a_end, pairs.b_start, pairs.b_end]
    if pairs.labels is not None:
        columns.append(pairs.labels)
    return [tuple(row) for row in np.stack(columns, axis=1).tolist()]


def document_of(pool: PoolTokens, token: int) -> int:
    starts = pool.sentence_offsets[pool.document_offsets].tolist()
    return bisect_right(starts, token) - 1


def pair_as_google_does(
    documents: list[Document], config: BuildConfig, draws: Iterator[float]
) -> list[tuple]:
    """`create_instances_from_document` over all documents, without balance, before truncation.

    Written from the script with lists of tokens, for a corpus in which no sentence occurs twice. A pair is
    (A, B, is random next).
    """
    max_tokens = config.max_seq_length - 3
    pairs = []
    for number, document in enumerate(documents):
        i = 0
        chunk: list[list[int]] = []
        target = None
        while i < len(document):
            if target is None:
                target = max_tokens
                if next(draws) < config.short_seq_prob:
                    target = 2 + int(next(draws) * (max_tokens - 1))
            chunk.append(list(document[i]))
            if i == len(document) - 1 or sum(map(len, chunk)) >= target:
                a_end = 1
                if len(chunk) >= 2:
                    a_end = 1 + int(next(draws) * (len(chunk) - 1))
                a = list(chain(*chunk[:a_end]))
                random_draw = next(draws)
                if len(chunk) == 1 or random_draw < 0.5:
                    other = int(next(draws) * (len(documents) - 1))
                    other_document = documents[other + (other >= number)]
                    b: list[int] = []
                    for sentence in other_document[int(next(draws) * len(other_document)) :]:
                        b += sentence
                        if len(b) >= target - len(a):
                            break
                    i -= len(chunk) - a_end
                    pairs.append((a, b, True))
                else:
                    pairs.append((a, list(chain(*chunk[a_end:])), False))
                chunk, target = [], None
            i += 1
    return pairs


@pytest.mark.parametrize("seed", range(5))
def test_pairs_are_those_of_the_published_algorithm(seed: int) -> None:
    lengths = [[len(s) for s in d] for d in make_documents(60, ids=[0], name=f"lengths {seed}")]
    numbers = iter(range(1 << 16))
    documents = [[[next(numbers) for _ in range(length)] for length in document] for document in lengths]
    # Long enough that nothing is cut: the length of a chunk can pass the target by a sentence, twice.
    config = BuildConfig(max_seq_length=40, short_seq_prob=0.3, next_sentence_balance=False)
    pool = make_pool(documents)
    draws = RandomStream(seed, "pairs", "x").iterate_floats()
    expected = pair_as_google_does(documents, config, draws)

    pairs = sample_pairs(pool, config, RandomStream(seed, "pairs", "x"))

    assert pairs.labels is not None
    assert pairs.labels.tolist() == [int(is_random) for _, _, is_random in expected]
    for row, (a, b, _) in zip(rows_of(pairs), expected, strict=True):
        found_a = pool.token_ids[row[0] : row[1]].tolist()
        found_b = pool.token_ids[row[2] : row[3]].tolist()
        if len(a) + len(b) <= 37:
            assert (found_a, found_b) == (a, b)
        else:
            assert len(found_a) + len(found_b) == 37
            assert found_a[0] in a
            assert found_b[0] in b


@settings(max_examples=200, deadline=None)
@given(
    documents=DOCUMENTS,
    seed=st.integers(0, 1000),
    max_seq_length=st.integers(8, 40),
    short_seq_prob=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_not_next_never_continues_its_a(
    documents: list[Document], seed: int, max_seq_length: int, short_seq_prob: float
) -> None:
    # Three different tokens only, so that sentences and whole documents occur again and again.
    pool, pairs = sample(documents, seed, max_seq_length=max_seq_length, short_seq_prob=short_seq_prob)

    assert pairs.labels is not None
    offsets = pool.sentence_offsets.tolist()
    ids = pool.token_ids.tolist()
    for a_start, a_end, b_start, b_end, label in rows_of(pairs):
        assert a_end > a_start
        assert b_end > b_start
        assert a_end - a_start + b_end - b_start <= max_seq_length - 3
        a_document, b_document = document_of(pool, a_start), document_of(pool, b_start)
        if label == 0:
            assert a_document == b_document
            assert a_end <= b_start
            continue
        assert documents[a_document] != documents[b_document]
        if a_end in (offsets[boundary] for boundary in pool.document_offsets):
            continue
        # The sentences that B was cut from, and the one with the token that truly follows what is left of A.
        following = bisect_right(offsets, a_end) - 1
        b_sentences = [
            ids[offsets[i] : offsets[i + 1]]
            for i in range(bisect_right(offsets, b_start) - 1, bisect_right(offsets, b_end - 1))
        ]
        assert ids[offsets[following] : offsets[following + 1]] not in b_sentences


@pytest.mark.parametrize(
    ("max_sentences", "max_tokens"),
    [(2, 10), (3, 60), (12, 20), (40, 30), (12, 150)],
    ids=["two short", "three", "chunks", "long documents", "long sentences"],
)
@pytest.mark.parametrize("duplicate_factor", [1, 3])
def test_labels_are_half_and_half(max_sentences: int, max_tokens: int, duplicate_factor: int) -> None:
    documents = [
        [[token + 3 * index % 1000 for token in sentence] for sentence in document + document[:1]]
        for index, document in enumerate(
            make_documents(2000, ids=range(30_000), max_sentences=max_sentences, max_tokens=max_tokens)
        )
    ]

    _, pairs = sample(documents, duplicate_factor=duplicate_factor)

    assert pairs.labels is not None
    assert abs(pairs.labels.mean() - 0.5) < 4 * 0.5 / np.sqrt(len(pairs))


def test_labels_are_half_and_half_in_each_part_of_a_sorted_corpus() -> None:
    # First documents of three sentences, of which many chunks have one; then long ones, which have none.
    short = make_documents(1500, ids=range(30_000), max_sentences=3, max_tokens=100, name="short")
    long = make_documents(300, ids=range(30_000), max_sentences=80, max_tokens=20, name="long")

    for documents in (short + long, long + short):
        _, pairs = sample([document for document in documents if len(document) > 1])
        assert pairs.labels is not None
        assert abs(pairs.labels.mean() - 0.5) < 4 * 0.5 / np.sqrt(len(pairs))


def test_without_balance_more_than_half_are_not_next() -> None:
    documents = make_documents(2000, ids=range(30_000))

    _, pairs = sample(documents, next_sentence_balance=False)

    assert pairs.labels is not None
    assert pairs.labels.mean() > 0.55


def test_balance_lowers_the_chance_by_what_chunks_alone_take() -> None:
    balance = LabelBalance(enabled=True)
    assert balance.chance() == 0.5
    for _ in range(10_000):
        balance.record(alone=True, chance=1.0)
        for _ in range(3):
            balance.record(alone=False, chance=balance.chance())

    # A quarter is NotNext for certain: (1/2 - 1/4) / (1 - 1/4) of the others make it a half.
    assert balance.chance() == pytest.approx(1 / 3, abs=0.01)


def test_documents_of_one_sentence_are_all_not_next() -> None:
    documents = [[[index]] for index in range(50)]

    pool, pairs = sample(documents)

    assert pairs.labels is not None
    assert pairs.labels.tolist() == [1] * 50
    assert pairs.num_documents_unused == 0
    assert all(
        document_of(pool, a_start) != document_of(pool, b_start)
        for a_start, _, b_start, _, _ in rows_of(pairs)
    )


def test_equal_documents_give_no_not_next() -> None:
    documents = [[[1, 2], [3, 4, 5], [6]]] * 8 + [[[7, 8]]] * 3

    _, pairs = sample(documents[:8])
    assert pairs.labels is not None
    assert set(pairs.labels.tolist()) == {0}
    _, pairs = sample(documents[8:])
    assert len(pairs) == 0
    assert pairs.num_documents_unused == 3


def test_a_sentence_longer_than_an_example_is_cut() -> None:
    documents = [[list(range(500))], [list(range(1000, 1900)), [5]], [[1, 2, 3]] * 2]

    _, pairs = sample(documents, max_seq_length=32, duplicate_factor=20)

    lengths = pairs.a_end - pairs.a_start + pairs.b_end - pairs.b_start
    assert lengths.max() == 29
    assert (pairs.a_end - pairs.a_start).min() >= 1
    assert (pairs.b_end - pairs.b_start).min() >= 1


def test_two_sentences_longer_than_an_example_share_it() -> None:
    # 29 tokens of 32 are text: of two long sentences the longer gives way down to the other, then they take
    # turns, so that A keeps 15 and B 14 (Google's script cuts B where both are equally long); and of a short
    # and a long one the short stays whole.
    long_document, longer_document, short_document = [[[7] * 500]], [[[8] * 900]], [[[9] * 4]]

    _, both_long = sample([*long_document, *longer_document], max_seq_length=32)
    _, one_short = sample([*long_document, *short_document], max_seq_length=32)

    for pairs, expected in ((both_long, [(15, 14), (15, 14)]), (one_short, [(25, 4), (4, 25)])):
        a_lengths, b_lengths = pairs.a_end - pairs.a_start, pairs.b_end - pairs.b_start
        assert list(zip(a_lengths.tolist(), b_lengths.tolist(), strict=True)) == expected
        assert pairs.labels is not None
        assert pairs.labels.tolist() == [1, 1]


@settings(max_examples=100, deadline=None)
@given(documents=DOCUMENTS, seed=st.integers(0, 1000), max_seq_length=st.integers(8, 40))
def test_sentence_order_pairs_neighbours(documents: list[Document], seed: int, max_seq_length: int) -> None:
    pool, pairs = sample(documents, seed, objective="sentence-order", max_seq_length=max_seq_length)

    assert pairs.labels is not None
    for a_start, a_end, b_start, b_end, label in rows_of(pairs):
        assert a_end > a_start
        assert b_end > b_start
        assert a_end - a_start + b_end - b_start <= max_seq_length - 3
        assert document_of(pool, a_start) == document_of(pool, b_start)
        end, start = (a_end, b_start) if label == 0 else (b_end, a_start)
        assert end <= start
        # They stand side by side, unless what was too long was cut where they meet.
        assert end == start or a_end - a_start + b_end - b_start == max_seq_length - 3
    alone = sum(len(document) == 1 for document in documents)
    assert pairs.num_documents_unused == alone


def test_half_of_the_sentence_order_pairs_are_swapped() -> None:
    _, pairs = sample(make_documents(2000, ids=range(1000)), objective="sentence-order")

    assert pairs.labels is not None
    assert abs(pairs.labels.mean() - 0.5) < 4 * 0.5 / np.sqrt(len(pairs))


@settings(deadline=None)
@given(
    documents=DOCUMENTS,
    seed=st.integers(0, 1000),
    max_seq_length=st.integers(8, 40),
    short_seq_prob=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_packing_uses_every_token_once(
    documents: list[Document], seed: int, max_seq_length: int, short_seq_prob: float
) -> None:
    pool, pairs = sample(
        documents, seed, objective="mlm", max_seq_length=max_seq_length, short_seq_prob=short_seq_prob
    )

    assert pairs.labels is None
    assert pairs.num_documents_unused == 0
    assert pairs.a_start.tolist() == [0, *pairs.a_end.tolist()[:-1]]
    assert pairs.a_end[-1] == len(pool.token_ids)
    assert np.all(pairs.a_end - pairs.a_start <= max_seq_length - 2)
    assert np.array_equal(pairs.b_start, pairs.b_end)
    boundaries = set(pool.sentence_offsets.tolist())
    for a_start, a_end, *_ in rows_of(pairs):
        assert document_of(pool, a_start) == document_of(pool, a_end - 1)
        # Only a sentence that is too long for an example is cut.
        assert a_end in boundaries or a_end - a_start == max_seq_length - 2


def test_packing_takes_as_many_whole_sentences_as_fit() -> None:
    documents = [[[1] * 4, [2] * 3, [3] * 5, [4] * 2], [[5] * 21]]

    _, pairs = sample(documents, objective="mlm", max_seq_length=12, short_seq_prob=0.0)

    lengths = (pairs.a_end - pairs.a_start).tolist()
    assert lengths == [7, 7, 10, 10, 1]


def test_short_lengths_are_uniform() -> None:
    # Sentences of one token let a chunk end exactly at its target.
    documents = [[[index % 50_000 + j] for j in range(400)] for index in range(0, 400 * 300, 400)]

    _, pairs = sample(documents, objective="mlm", max_seq_length=12, short_seq_prob=1.0, duplicate_factor=1)

    lengths = pairs.a_end - pairs.a_start
    ends_document = pairs.a_end % 400 == 0
    counts = np.bincount(lengths[~ends_document], minlength=11)[2:]
    expected = counts.sum() / 9
    assert len(counts) == 9
    assert np.all(np.abs(counts - expected) < 5 * np.sqrt(expected))


def test_duplicates_differ() -> None:
    documents = make_documents(40, ids=range(1000))

    _, pairs = sample(documents, duplicate_factor=3)

    first, second = np.flatnonzero(np.diff(pairs.a_start) < 0) + 1
    passes = [rows_of(pairs)[:first], rows_of(pairs)[first:second], rows_of(pairs)[second:]]
    assert all(len(rows) > len(pairs) / 4 for rows in passes)
    assert passes[0] != passes[1] != passes[2] != passes[0]


def test_a_seed_gives_the_same_pairs_and_another_gives_others() -> None:
    documents = make_documents(40, ids=range(1000))

    assert rows_of(sample(documents, 1)[1]) == rows_of(sample(documents, 1)[1])
    assert rows_of(sample(documents, 1)[1]) != rows_of(sample(documents, 2)[1])


@pytest.mark.parametrize("objective", ["next-sentence", "mlm"])
def test_a_table_gives_the_pairs_back(objective: str) -> None:
    _, pairs = sample(make_documents(20, ids=range(1000)), objective=objective)

    again = Pairs.from_table(pairs.to_table(), 7)

    assert rows_of(again) == rows_of(pairs)
    assert again.num_documents_unused == 7
