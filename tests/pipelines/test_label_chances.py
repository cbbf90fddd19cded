"""`expected_not_next`: the labels differ by chance alone from the chances that a pool records."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import pytest

from pipelines.pairing import Pairs, sample_pairs
from schemas.configs import BuildConfig
from schemas.seeding import RandomStream
from tests.pipelines.corpora import Document, make_documents, make_pool

SAME = [[[20, 21], [22, 23, 24], [25, 26]] * 4]
# Half of the documents repeat one text: many draws of a NotNext segment find none.
REPEATING = [*make_documents(30, ids=range(30, 90), max_sentences=6), *(SAME * 60)]
CORPORA: dict[str, Sequence[Document]] = {
    "long": make_documents(60, ids=range(20, 90), max_sentences=20),
    "short": make_documents(120, ids=range(20, 90), max_sentences=2),
    "one-sentence": make_documents(120, ids=range(20, 90), max_sentences=1),
    "same": SAME * 40,
    "repeating": REPEATING,
}


def _sample(name: str, seed: int, **settings: object) -> Pairs:
    config = BuildConfig(max_seq_length=32, **settings)  # type: ignore[arg-type]
    return sample_pairs(make_pool(CORPORA[name]), config, RandomStream(seed, "pairs", name))


@pytest.mark.parametrize("balance", [True, False])
@pytest.mark.parametrize("name", CORPORA)
def test_labels_differ_from_their_chances_as_draws_do(name: str, balance: bool) -> None:
    total, num_pairs = 0.0, 0
    for seed in range(40):
        pairs = _sample(name, seed, next_sentence_balance=balance)
        assert pairs.labels is not None
        assert pairs.expected_not_next is not None
        distance = int(pairs.labels.sum()) - pairs.expected_not_next
        # Azuma's bound for one chance in 10 million, which any of 40 pools might exceed.
        assert abs(distance) <= sqrt(len(pairs) * 8.4)
        total += distance
        num_pairs += len(pairs)
    assert abs(total) <= 5 * sqrt(num_pairs / 4)


def test_what_is_forced_is_expected() -> None:
    alone = _sample("one-sentence", 1)
    assert alone.labels is not None
    assert alone.labels.all()
    assert alone.expected_not_next == len(alone)


def test_half_of_the_segments_are_expected_to_be_swapped() -> None:
    pairs = _sample("long", 1, objective="sentence-order")
    assert pairs.expected_not_next == len(pairs) / 2


def test_without_labels_nothing_is_expected() -> None:
    assert _sample("long", 1, objective="mlm").expected_not_next is None


def test_it_survives_a_change_of_order() -> None:
    pairs = _sample("long", 1)
    assert pairs.take(slice(0, 3)).expected_not_next == pairs.expected_not_next
