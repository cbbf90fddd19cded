"""The ways that clozeline is compared with do their work right: a wrong one could be fast."""

from __future__ import annotations

import array
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks import peers, reference_script
from tests.benchmarks.measuring import Watch
from tests.benchmarks.plain_wordpiece import PlainWordPiece
from tests.conftest import build_tiny_tokenizer, tiny_vocabulary

_TOKENIZER = build_tiny_tokenizer()
_TOKENIZER.encode_special_tokens = True
_WORDS = tiny_vocabulary()
_DOCUMENTS = [
    [["the", "cat", "sat", "."], ["it", "purr", "##ed", "."], ["a", "dog", "ran", "."]] * 30,
    [["the", "sun", "is", "red", "."]],
    [["one", "two"], ["three"], ["four", "five"] * 100],
]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The cat's 3 dogs, fast!",
        "naïve ÉTÉ",
        "一二three",
        "foxes [MASK] x" + "y" * 120,
        "a\u200bb\u00a0c",
        "ß…“q”",
    ],
)
def test_plain_wordpiece_is_the_librarys(text: str) -> None:
    assert PlainWordPiece(_WORDS).tokenize(text) == _TOKENIZER.encode(text, add_special_tokens=False).tokens


@given(st.text(st.characters(min_codepoint=32, max_codepoint=0x24F), max_size=60))
def test_plain_wordpiece_is_the_librarys_on_latin_text(text: str) -> None:
    assert PlainWordPiece(_WORDS).tokenize(text) == _TOKENIZER.encode(text, add_special_tokens=False).tokens


def test_pairs_begin_with_a_documents_sentences_and_fit() -> None:
    pairs = reference_script.pair_document(_DOCUMENTS, 0, random.Random(1))
    assert len(pairs) > 2
    assert {label for _, _, label in pairs} == {True, False}
    for tokens_a, tokens_b, _ in pairs:
        assert len(tokens_a) >= 1
        assert len(tokens_b) >= 1
        assert len(tokens_a) + len(tokens_b) <= reference_script.MAX_SEQ_LENGTH - 3


def test_masks_keep_what_stood_there() -> None:
    tokens_a, tokens_b = _DOCUMENTS[0][0] * 8, _DOCUMENTS[0][1] * 8
    example = reference_script.mask(tokens_a, tokens_b, True, _WORDS, random.Random(2))
    restored = list(example.tokens)
    for position, label in zip(example.masked_lm_positions, example.masked_lm_labels, strict=True):
        restored[position] = label
    assert restored == ["[CLS]", *tokens_a, "[SEP]", *tokens_b, "[SEP]"]
    assert len(example.masked_lm_positions) == round(67 * 0.15)
    assert "[MASK]" in example.tokens
    assert example.segment_ids == [0] * 34 + [1] * 33


def test_the_reference_way_writes_padded_features(tiny_tokenizer_path: Path, tmp_path: Path) -> None:
    sentences = tmp_path / "sentences.txt"
    sentences.write_text(
        "The cat sat.\nIt purred softly.\nThe dog ran.\n\nThe sun is red.\nA big tree.\n\n" * 5
    )
    outputs = [tmp_path / "plain", tmp_path / "library"]
    counts = [
        peers.run_reference(Watch(), str(sentences), str(tiny_tokenizer_path), str(output), with_library)
        for output, with_library in zip(outputs, (False, True), strict=True)
    ]
    assert counts[0] == counts[1]
    assert counts[0]["num_documents"] == 10
    numbers_an_example = 3 * 128 + 3 * 20 + 1
    features = array.array("i", outputs[0].read_bytes())
    assert len(features) == counts[0]["num_examples"] * numbers_an_example
    assert features[0] == _WORDS.index("[CLS]")
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
