"""BERT's tokenizer in plain Python: basic splitting, then greedy longest-match-first WordPiece.

In: a sentence. Out: its pieces. After the algorithm that Devlin et al. 2018 published with BERT (uncased),
written for the benchmarks as the yardstick of the plain way, and held equal to the `tokenizers` library by a
test. Deterministic.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection

_MAX_WORD_CHARACTERS = 100
_IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class PlainWordPiece:
    """Tokenizes sentences one character at a time, as the reference implementation does."""

    def __init__(self, vocabulary: Collection[str]) -> None:
        self._vocabulary = vocabulary

    def tokenize(self, text: str) -> list[str]:
        """The pieces of a sentence."""
        pieces: list[str] = []
        for word in _isolate_ideographs(_clean(text)).split():
            for part in _split_on_punctuation(_strip_accents(word.lower())):
                pieces.extend(self._split_word(part))
        return pieces

    def _split_word(self, word: str) -> list[str]:
        if len(word) > _MAX_WORD_CHARACTERS:
            return ["[UNK]"]
        pieces: list[str] = []
        start = 0
        while start < len(word):
            end = len(word)
            while start < end:
                piece = word[start:end] if start == 0 else "##" + word[start:end]
                if piece in self._vocabulary:
                    break
                end -= 1
            else:
                return ["[UNK]"]
            pieces.append(piece)
            start = end
        return pieces


def _clean(text: str) -> str:
    characters: list[str] = []
    for character in text:
        if character in "\t\n\r" or unicodedata.category(character) == "Zs":
            characters.append(" ")
        elif character not in "\0\ufffd" and not unicodedata.category(character).startswith("C"):
            characters.append(character)
    return "".join(characters)


def _isolate_ideographs(text: str) -> str:
    characters: list[str] = []
    for character in text:
        is_ideograph = any(first <= ord(character) <= last for first, last in _IDEOGRAPHS)
        characters.append(f" {character} " if is_ideograph else character)
    return "".join(characters)


def _strip_accents(text: str) -> str:
    return "".join(
        character
        for character in unicodedata.normalize("NFD", text)
        if unicodedata.category(character) != "Mn"
    )


def _split_on_punctuation(word: str) -> list[str]:
    parts: list[list[str]] = []
    begins = True
    for character in word:
        if _is_punctuation(character):
            parts.append([character])
            begins = True
        else:
            if begins:
                parts.append([])
            begins = False
            parts[-1].append(character)
    return ["".join(part) for part in parts]


def _is_punctuation(character: str) -> bool:
    code = ord(character)
    if 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126:
        return True
    return unicodedata.category(character).startswith("P")
