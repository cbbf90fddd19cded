"""WordPiece ids of distinct words, by the `tokenizers` library and a bounded memory of what it said before.

In: the distinct words of a block of text (see `pipelines.words`). Out: for each word its ids, as the bytes of
a uint16 or uint32 array. Deterministic: the ids are those that the library gives the word; what is remembered
decides the time and nothing else.

Words are cut into pieces at places where BERT's tokenizer cuts anyway, and the library sees only pieces that
it was not asked about lately.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, pairwise

import numpy as np
from tokenizers import Tokenizer

from pipelines.words import make_piece_finder

CACHED_WORDS = 1 << 19
"""Words remembered: about 100 MB. Pieces are fewer than words, so half as many are."""
CACHED_WORD_LENGTH = 64
LONGEST_PIECE = 1_000_000

_WORDS_AT_A_TIME = 4096
_PIECES_IN_A_TEXT = 64
_ASCII_CONTROLS = re.compile(r"[\x00-\x1f\x7f]+")


class DistinctWordEncoder:
    """Gives words their ids and remembers them.

    Args:
        tokenizer: a BERT tokenizer that keeps special tokens in text as text.
        id_type: uint16 or uint32, the type of the ids in the result.
        isolates_ideographs: the normaliser puts spaces round CJK ideographs.
        unk_id: the id of `[UNK]`.
        max_piece_chars: a pre-token with more characters than this is one `[UNK]`, as WordPiece has it.
        cached_words: how many words are remembered at most, and half as many pieces.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        id_type: np.dtype[np.unsignedinteger],
        *,
        isolates_ideographs: bool,
        unk_id: int,
        max_piece_chars: int,
        cached_words: int = CACHED_WORDS,
    ) -> None:
        self._tokenizer = tokenizer
        self._id_type = id_type
        self._unk = np.array([unk_id], dtype=id_type).tobytes()
        self._max_piece_chars = max_piece_chars
        self._words = _RecentIds(cached_words)
        self._pieces = _RecentIds(cached_words // 2)
        self._find_pieces = make_piece_finder(isolates_ideographs=isolates_ideographs)

    @property
    def num_cached(self) -> int:
        """How many words and pieces are remembered."""
        return len(self._words) + len(self._pieces)

    def encode(self, words: list[str]) -> list[bytes]:
        """The ids of each word, as bytes of the id type in the machine's order."""
        found = self._words.find(words)
        missing = [index for index, ids in enumerate(found) if ids is None]
        for start in range(0, len(missing), _WORDS_AT_A_TIME):
            self._encode_missing(words, found, missing[start : start + _WORDS_AT_A_TIME])
        return found  # type: ignore[return-value]

    def _encode_missing(self, words: list[str], found: list[bytes | None], missing: list[int]) -> None:
        cut = [self._find_pieces(words[index]) for index in missing]
        piece_ids = self._encode_pieces(list(dict.fromkeys(chain.from_iterable(cut))))
        for index, pieces in zip(missing, cut, strict=True):
            ids = found[index] = b"".join([piece_ids[piece] for piece in pieces])
            self._words.remember(words[index], ids)

    def _encode_pieces(self, pieces: list[str]) -> dict[str, bytes]:
        ids_of = dict(zip(pieces, self._pieces.find(pieces), strict=True))
        unseen = [piece for piece, ids in ids_of.items() if ids is None]
        for start in range(0, len(unseen), _WORDS_AT_A_TIME):
            self._ask_library(unseen[start : start + _WORDS_AT_A_TIME], ids_of)
        return ids_of  # type: ignore[return-value]

    def _ask_library(self, pieces: list[str], ids_of: dict[str, bytes | None]) -> None:
        plain, others = [], []
        for piece in pieces:
            if len(piece) > self._max_piece_chars and self._is_too_long(piece):
                ids_of[piece] = self._unk
            elif piece.isascii() and piece.isalnum():
                plain.append(piece)
            else:
                others.append(piece)
        ids_of.update(zip(plain, self._encode_plain(plain), strict=True))
        encodings = self._tokenizer.encode_batch_fast(others, add_special_tokens=False)
        for piece, encoding in zip(others, encodings, strict=True):
            ids_of[piece] = np.array(encoding.ids, dtype=self._id_type).tobytes()
        for piece in plain + others:
            self._pieces.remember(piece, ids_of[piece])  # type: ignore[arg-type]

    def _encode_plain(self, pieces: list[str]) -> Iterator[bytes]:
        """The ids of pieces of ASCII letters and digits, each of which is one pre-token with an id at least.

        So many of them can stand in one text, and the library says which id belongs to which: half the time
        of asking about each by itself.
        """
        texts = [
            " ".join(pieces[start : start + _PIECES_IN_A_TEXT])
            for start in range(0, len(pieces), _PIECES_IN_A_TEXT)
        ]
        for encoding in self._tokenizer.encode_batch(texts, add_special_tokens=False):
            ids = np.array(encoding.ids, dtype=self._id_type).tobytes()
            word_ids = np.array(encoding.word_ids, np.int64)
            bounds = np.flatnonzero(np.diff(word_ids, prepend=-1, append=-1)) * self._id_type.itemsize
            for start, end in pairwise(bounds.tolist()):
                yield ids[start:end]

    def _is_too_long(self, piece: str) -> bool:
        # Megabytes of digits or letters without a space cost the library fifty times their size. In ASCII a
        # piece is one pre-token, less the control characters. Elsewhere only the library knows its borders;
        # past LONGEST_PIECE it is not asked, since memory must stay bounded.
        if piece.isascii():
            return len(_ASCII_CONTROLS.sub("", piece)) > self._max_piece_chars
        return len(piece) > LONGEST_PIECE


class _RecentIds:
    """The ids of the words met most recently.

    Two generations, of which the older goes when the younger is full: a frequent word is met again before
    that and moves on. Long words aren't kept at all.
    """

    def __init__(self, capacity: int) -> None:
        self._generation_size = max(capacity // 2, 1)
        self._young: dict[str, bytes] = {}
        self._old: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def find(self, words: list[str]) -> list[bytes | None]:
        found = list(map(self._young.get, words))
        if self._old:
            old = self._old
            for index, ids in enumerate(found):
                if ids is None and (ids := old.get(words[index])) is not None:
                    found[index] = ids
                    self.remember(words[index], ids)
        return found

    def remember(self, word: str, ids: bytes) -> None:
        if len(word) > CACHED_WORD_LENGTH:
            return
        if len(self._young) >= self._generation_size:
            self._old, self._young = self._young, {}
        self._young[word] = ids
