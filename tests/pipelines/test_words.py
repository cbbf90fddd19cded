import re
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.words import cut_blocks, encode_words, make_piece_finder, string_layout


@given(
    st.lists(st.text(max_size=10), max_size=8),
    st.integers(0, 3),
    st.sampled_from([pa.string(), pa.large_string()]),
)
def test_layout_gives_back_the_strings_of_a_slice(strings: list[str], start: int, kind: pa.DataType) -> None:
    content, offsets = string_layout(pa.array(strings, kind).slice(start))
    found = [content[a:b].tobytes().decode() for a, b in pairwise(offsets)]
    assert found == strings[start:]


@given(st.lists(st.integers(0, 9), max_size=20), st.integers(1, 30))
def test_blocks_tile_the_strings_and_keep_to_their_size(lengths: list[int], block_bytes: int) -> None:
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
    blocks = list(cut_blocks(offsets, block_bytes))
    assert [i for first, last in blocks for i in range(first, last)] == list(range(len(lengths)))
    for first, last in blocks:
        assert offsets[last] - offsets[first] <= block_bytes or last == first + 1


def test_words_end_after_separators_and_with_strings() -> None:
    content, offsets = string_layout(pa.array(["the cat\tthe ", "", "the\x0bcat", "\r\nthe "]))
    words, word_offsets = encode_words(content, offsets)
    assert words.to_pylist() == ["the ", "cat\t", "the ", "the\x0bcat", "\r", "\n", "the "]
    assert words.dictionary.to_pylist() == ["the ", "cat\t", "the\x0bcat", "\r", "\n"]
    assert word_offsets.tolist() == [0, 4, 8, 12, 19, 20, 21, 25]


def test_ascii_punctuation_is_a_word_of_its_own() -> None:
    content, offsets = string_layout(pa.array(["(don't!)\n", "a-b \u201cc\u201d."]))
    words, word_offsets = encode_words(content, offsets)
    expected = ["(", "don", "'", "t", "!", ")", "\n", "a", "-", "b ", "\u201cc\u201d", "."]
    assert words.to_pylist() == expected
    assert np.diff(word_offsets).tolist() == [len(word.encode()) for word in expected]


def test_no_strings_have_no_words() -> None:
    content, offsets = string_layout(pa.array([], pa.string()))
    words, word_offsets = encode_words(content, offsets)
    assert words.to_pylist() == []
    assert word_offsets.tolist() == [0]


@pytest.mark.parametrize(
    ("word", "isolates_ideographs", "pieces"),
    [
        pytest.param("cat ", True, ["cat"], id="separator-goes"),
        pytest.param("(don't!)\n", True, ["(", "don", "'", "t", "!", ")"], id="ascii-punctuation"),
        pytest.param(
            "\u201cwell\u2014no\u2026\u201d",
            True,
            ["\u201c", "well", "\u2014", "no", "\u2026", "\u201d"],
            id="quotes",
        ),
        pytest.param("\u00bfqu\u00e9", True, ["\u00bfqu\u00e9"], id="left-to-the-library"),
        pytest.param("a\xa0b\x0bc", True, ["a\xa0b\x0bc"], id="other-white-space-stays"),
        pytest.param("ab\u4e2d\u6587c", True, ["ab", "\u4e2d", "\u6587", "c"], id="ideographs"),
        pytest.param("ab\u4e2d\u6587c", False, ["ab\u4e2d\u6587c"], id="ideographs-joined"),
        pytest.param(" ", True, [], id="nothing"),
    ],
)
def test_pieces_of_a_word(word: str, isolates_ideographs: bool, pieces: list[str]) -> None:
    assert make_piece_finder(isolates_ideographs=isolates_ideographs)(word) == pieces


@given(st.text(st.sampled_from("aZ9 \t\n.(\u00e9\u4e2d\u2014\x0b"), max_size=12))
def test_pieces_are_what_stands_between_separators_and_lonely_characters(word: str) -> None:
    apart = word
    for character in ".(\u4e2d\u2014":
        apart = apart.replace(character, f" {character} ")
    pieces = [piece for piece in re.split(r"[ \t\n]", apart) if piece]
    assert make_piece_finder(isolates_ideographs=True)(word) == pieces
