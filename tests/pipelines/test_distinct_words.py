from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from pipelines.distinct_words import CACHED_WORD_LENGTH, DistinctWordEncoder


class CountingTokenizer:
    """The library, with a list of what it was asked."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.asked: list[str] = []

    def encode_batch_fast(self, pieces: list[str], add_special_tokens: bool) -> Sequence[object]:
        self.asked += pieces
        return self._tokenizer.encode_batch_fast(pieces, add_special_tokens=add_special_tokens)

    def encode_batch(self, texts: list[str], add_special_tokens: bool) -> Sequence[object]:
        self.asked += [piece for text in texts for piece in text.split()]
        return self._tokenizer.encode_batch(texts, add_special_tokens=add_special_tokens)


@pytest.fixture
def library(tiny_tokenizer: Tokenizer) -> CountingTokenizer:
    return CountingTokenizer(tiny_tokenizer)


def make_encoder(library: CountingTokenizer, cached_words: int = 1000) -> DistinctWordEncoder:
    return DistinctWordEncoder(
        library,  # type: ignore[arg-type]
        np.dtype(np.uint16),
        isolates_ideographs=True,
        unk_id=5,
        max_piece_chars=100,
        cached_words=cached_words,
    )


def ids_of(encoded: bytes) -> list[int]:
    return np.frombuffer(encoded, np.uint16).tolist()


def test_gives_the_ids_of_words_in_their_order(library: CountingTokenizer, tiny_tokenizer: Tokenizer) -> None:
    encoded = make_encoder(library).encode(["Cats, ", "the ", "(cats)", " "])
    tokens = [[tiny_tokenizer.id_to_token(token_id) for token_id in ids_of(ids)] for ids in encoded]
    assert tokens == [["cat", "##s", ","], ["the"], ["(", "cat", "##s", ")"], []]


def test_asks_the_library_once_about_a_piece(library: CountingTokenizer) -> None:
    encoder = make_encoder(library)
    first = encoder.encode(["cat, ", "cat."])
    again = encoder.encode(["cat.", "cat, ", "(cat)"])
    assert again[:2] == first[::-1]
    assert sorted(library.asked) == ["(", ")", ",", ".", "cat"]


def test_forgets_the_words_not_met_lately(library: CountingTokenizer) -> None:
    encoder = make_encoder(library, cached_words=4)
    for word in ["cat", "dog", "cat", "sun", "cat", "moon", "cat", "star", "cat", "dog"]:
        encoder.encode([word])
        assert encoder.num_cached <= 6
    assert library.asked.count("cat") == 1
    assert library.asked.count("dog") == 2


def test_keeps_no_long_words(library: CountingTokenizer) -> None:
    encoder = make_encoder(library)
    encoder.encode(["a" * (CACHED_WORD_LENGTH + 1)])
    assert encoder.num_cached == 0


def test_never_asks_about_a_word_that_is_unknown_by_its_length(library: CountingTokenizer) -> None:
    encoded = make_encoder(library).encode(["a" * 101, "\x00" * 10 + "a" * 100])
    assert ids_of(encoded[0]) == [5]
    assert ids_of(encoded[1]) != [5]
    assert library.asked == ["\x00" * 10 + "a" * 100]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.text("abcdefgst0189", min_size=1, max_size=120), min_size=1, max_size=300))
def test_pieces_asked_about_together_get_the_ids_that_each_gets_alone(
    tiny_tokenizer: Tokenizer, pieces: list[str]
) -> None:
    encoded = make_encoder(CountingTokenizer(tiny_tokenizer)).encode(pieces)
    for piece, ids in zip(pieces, encoded, strict=True):
        alone = tiny_tokenizer.encode(piece, add_special_tokens=False).ids
        assert ids_of(ids) == (alone if len(piece) <= 100 else [5])
