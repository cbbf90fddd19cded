"""Where a text may be cut into words and pieces without changing what BERT's tokenizer makes of it.

In: sentences or documents as Arrow strings. Out: their words as a dictionary-encoded Arrow array, and the
pieces of a word. Deterministic and free of settings, but for one of the tokenizer's.

BERT's normaliser and pre-tokeniser never look across a space, tab or line end, ASCII punctuation or a CJK
ideograph: each of these is a token border of its own, and canonical decomposition can't move a combining mark
past it. The cuts made here are a subset of the tokenizer's own: whatever else it would split (other scripts'
punctuation, unusual spaces, characters that decompose) stays inside a piece and is left to it.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_SEPARATORS = b" \t\n\r"
# The normaliser deletes other ASCII white space (VT, FF, FS …) as control characters: no words end there.
_ASCII_PUNCTUATION = string.punctuation.encode()
_IS_PUNCTUATION = np.zeros(256, dtype=np.bool_)
_IS_PUNCTUATION[list(_ASCII_PUNCTUATION)] = True
_ENDS_WORD = _IS_PUNCTUATION.copy()
_ENDS_WORD[list(_SEPARATORS)] = True
# ASCII punctuation, general punctuation (dashes, quotes, ellipsis, …) and CJK commas, stops and brackets:
# each has had a punctuation category and no decomposition for as long as Unicode has known it.
_PUNCTUATION = r"!-/:-@\[-`{-~\u2010-\u2027\u3001-\u3003\u3008-\u3011"
# The ranges round which the library's BertNormalizer puts spaces when `handle_chinese_chars` is on.
_IDEOGRAPHS = (
    "\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff"
    "\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f\U0002f800-\U0002fa1f"
)


def string_layout(strings: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of an Arrow array of strings and where each string begins and ends in them.

    Args:
        strings: string or large_string [n], nothing null.

    Returns:
        content: uint8, a view of the array's buffer.
        offsets: int64 [n + 1].
    """
    if len(strings) == 0:
        return np.empty(0, dtype=np.uint8), np.zeros(1, dtype=np.int64)
    offset_type = np.int64 if pa.types.is_large_string(strings.type) else np.int32
    _, offsets, content = strings.buffers()
    bounds = np.frombuffer(offsets, dtype=offset_type)[strings.offset : strings.offset + len(strings) + 1]
    return np.frombuffer(content or b"", dtype=np.uint8), bounds.astype(np.int64)


def cut_blocks(offsets: NDArray[np.int64], block_bytes: int) -> Iterator[tuple[int, int]]:
    """Half-open ranges of whole strings of at most `block_bytes`, or of one string where it is longer."""
    first = 0
    while first < len(offsets) - 1:
        last = int(np.searchsorted(offsets, offsets[first] + block_bytes, side="right")) - 1
        last = max(last, first + 1)
        yield first, last
        first = last


def encode_words(
    block: NDArray[np.uint8], offsets: NDArray[np.int64]
) -> tuple[pa.DictionaryArray, NDArray[np.int32]]:
    """Cut strings into words and number the distinct ones.

    Args:
        block: uint8, the strings end to end, less than 2 GiB.
        offsets: int64 [n + 1], where they begin and end, from 0 to `len(block)`.

    Returns:
        words: dictionary<int32, string> [words]. A word ends after each separator and with each string, and
            keeps its separator, since Arrow's strings lie end to end. Each character of ASCII punctuation is
            a word: there are far fewer distinct words than with it, and cutting here is cheaper than later.
        word_offsets: int32 [words + 1] into the block.
    """
    starts = np.empty(len(block) + 1, dtype=np.bool_)
    starts[0] = True
    np.take(_ENDS_WORD, block, out=starts[1:])
    starts[:-1] |= _IS_PUNCTUATION[block]
    starts[offsets] = True
    word_offsets = np.flatnonzero(starts).astype(np.int32)
    words = pa.StringArray.from_buffers(
        len(word_offsets) - 1, pa.py_buffer(word_offsets), pa.py_buffer(block)
    )
    return words.dictionary_encode(), word_offsets


def make_piece_finder(*, isolates_ideographs: bool) -> Callable[[str], list[str]]:
    """A function that cuts a word into pieces, without its separator.

    Args:
        isolates_ideographs: the normaliser puts spaces round CJK ideographs (`handle_chinese_chars`).
    """
    separators = _SEPARATORS.decode()
    single = _PUNCTUATION + (_IDEOGRAPHS if isolates_ideographs else "")
    find_all = re.compile(f"[{single}]|[^{re.escape(separators)}{single}]+").findall

    def find_pieces(word: str) -> list[str]:
        piece = word.rstrip(separators)
        # Most words, told ten times as fast as by searching them.
        return [piece] if piece.isascii() and piece.isalnum() else find_all(word)

    return find_pieces
