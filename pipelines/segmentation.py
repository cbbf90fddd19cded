r"""From texts to sentences.

In: texts, the segmenter's name, a language. Out: for each text the list of its sentences, stripped of white
space at both ends, none empty; a text of white space alone has none. Deterministic: it depends on the text
and the language only.

`sentencex` (Wikimedia's rule-based segmenter) runs at some 40 MB/s of English on one core, and needs five
things done for it:

*   It knows a paragraph by `\n\n` only. Lines of blanks and Windows' `\r\n\r\n` are brought to that form.
*   Its time grows with the square of the length of a stretch without white space that holds terminators
    outside ASCII: measured 1.1 s for 48,000 characters of Chinese without a space, 29.8 s for 300,000. Such
    stretches are cut every `_STRETCH_CHARACTERS`, after a terminator outside quotations and brackets, which
    takes the 29.8 s to 0.2 s and leaves the sentences as they are.
*   It ends no sentence between an opening bracket or quotation mark and what it takes for its partner,
    however far that is: in 40 MB of software manuals one "sentence" had 654,534 characters, and 14% of all
    text lay beyond the 1,000th character of one, where examples never reach. A sentence longer than
    `_LONG_SENTENCE` is cut at its line breaks, each line by itself, and one that still is at white space
    behind a terminator; that leaves 0.3% beyond, and shorter sentences as they are.
*   Its time also grows with the square of a paragraph (18 MB of lines took 30 s). A paragraph longer than
    `_LONG_PARAGRAPH` is handed over in pieces that end at a line break, or behind a terminator where no line
    ends, or anywhere where there is neither for a long way.
*   It looks for the partner of an opening quotation mark up to the end of the paragraph, for each that has
    none anew: 500,000 apostrophes took it 35 s. A paragraph in which that would be more than `_MANY_STEPS` is
    handed over in pieces of `_LONG_SENTENCE` characters.

So a megabyte of whatever it is takes it some seconds at most, and most take a fraction of one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import sentencex

from schemas.configs import IngestConfig, Segmenter

_STRETCH_CHARACTERS = 256
_LONGEST_STRETCH = 2048
"""A quotation or bracket as long as this is cut too: it may be one that is never closed."""
_SPACE = 0x20
_LONG_SENTENCE = 1000
_LONG_PARAGRAPH = 1 << 16
_LONGEST_PARAGRAPH = 1 << 18
_MANY_STEPS = 1 << 26
"""Characters looked at: less than a tenth of a second."""
_PARTNER_OF_QUOTE = {
    "\u00ab": "\u00bb",
    "\u2018": "\u2019",
    "\u201c": "\u201d",
    "\u201e": "\u201c",
    "\u2039": "\u203a",
    "\u300a": "\u300b",
    "\u300c": "\u300d",
    "''": None,
    "``": None,
}
"""The opening marks that sentencex looks for the partner of, found by trying; two of them never have one."""
_SENTENCES_AT_A_TIME = 1 << 16
_SPACES = re.compile(r"\s+")
_SENTENCE_END = re.compile(r"(?<=[.!?\u3002\uff01\uff1f])\s+")

_BLANK_LINES = re.compile(r"\n[ \t\r\f\v]+(?=\n)")

# The terminators of sentencex (Unicode's Sentence_Terminal and a few more), found by trying every character.
_TERMINATORS = (
    "!.?\u0589\u061d-\u061f\u06d4\u0700-\u0702\u07f9\u0837\u0839\u083d\u083e\u0964\u0965\u104a\u104b"
    "\u1362\u1367\u1368\u166e\u1735\u1736\u1803\u1809\u1944\u1945\u1aa8-\u1aab\u1b5a\u1b5b\u1b5e\u1b5f"
    "\u1b7d\u1b7e\u1c3b\u1c3c\u1c7e\u1c7f\u2024\u203c\u203d\u2047-\u2049\u2e2e\u2e3c\u2e53\u2e54\u3002"
    "\ua4ff\ua60e\ua60f\ua6f3\ua6f7\ua876\ua877\ua8ce\ua8cf\ua92f\ua9c8\ua9c9\uaa5d-\uaa5f\uaaf0\uaaf1"
    "\uabeb\ufe52\ufe56\ufe57\uff01\uff0e\uff1f\uff61\U00010a56\U00010a57\U00010f55-\U00010f59"
    "\U00010f86-\U00010f89\U00011047\U00011048\U000110be-\U000110c1\U00011141-\U00011143\U000111c5"
    "\U000111c6\U000111cd\U000111de\U000111df\U00011238\U00011239\U0001123b\U0001123c\U000112a9\U0001144b"
    "\U0001144c\U000115c2\U000115c3\U000115c9-\U000115d7\U00011641\U00011642\U0001173c-\U0001173e"
    "\U00011944\U00011946\U00011a42\U00011a43\U00011a9b\U00011a9c\U00011c41\U00011c42\U00011ef7\U00011ef8"
    "\U00011f43\U00011f44\U00016a6e\U00016a6f\U00016af5\U00016b37\U00016b38\U00016b44\U00016e98\U0001bc9f"
    "\U0001da88"
)
_OPENERS = "([{\u201c\u2018\u00ab\u2039\u300c\u300e\u3010\u3008\u300a\uff08\uff3b\uff5b\u3014"
_CLOSERS = ")]}\u201d\u2019\u00bb\u203a\u300d\u300f\u3011\u3009\u300b\uff09\uff3d\uff5d\u3015"

_LONG_STRETCH = re.compile(rf"\S{{{_STRETCH_CHARACTERS},}}")
_OPEN, _CLOSE = f"[{re.escape(_OPENERS)}]", f"[{re.escape(_CLOSERS)}]"
_MARK = re.compile(f"({_OPEN}+)|([{_TERMINATORS}]+)({_CLOSE}*)|({_CLOSE}+)")


def choose_segmenter(config: IngestConfig) -> Segmenter:
    """The segmenter that a configuration asks for; text of a sentence a line is always split at its lines."""
    return "newline" if config.format == "text-sentences" else config.segmenter


def segment_documents(texts: pa.Array, segmenter: Segmenter, language: str) -> pa.ListArray:
    """Split every text into sentences.

    Args:
        texts: large_string [n], without nulls; a chunked array is taken too.
        segmenter: `sentencex`, or `newline` to take each line as a sentence.
        language: ISO 639 code; sentencex falls back to general rules for one that it doesn't know.

    Returns:
        list<string> [n], without nulls. The sentences of one call may have 2 GiB in all.
    """
    sentences: list[str] = []
    num_sentences = 0
    ends = np.zeros(len(texts) + 1, dtype=np.int32)
    # A string of Python's takes fifty bytes beside its characters: of millions of them, few at a time.
    chunks: list[pa.Array] = []
    has_long_stretch = segmenter == "sentencex" and _has_long_stretch(texts)
    for index, text in enumerate(texts.to_pylist(), start=1):
        pieces = [text.split("\n")] if segmenter == "newline" else _segment(text, language, has_long_stretch)
        for parts in pieces:
            sentences += [stripped for part in parts if (stripped := part.strip())]
            if len(sentences) >= _SENTENCES_AT_A_TIME:
                chunks.append(pa.array(sentences, pa.string()))
                num_sentences += len(sentences)
                sentences = []
        ends[index] = num_sentences + len(sentences)
    chunks.append(pa.array(sentences, pa.string()))
    return pa.ListArray.from_arrays(pa.array(ends), pa.concat_arrays(chunks))


def _segment(text: str, language: str, has_long_stretch: bool) -> Iterator[list[str]]:
    """The sentences of a text, piece by piece."""
    text = _BLANK_LINES.sub("\n", text)
    for part in [text] if not has_long_stretch or text.isascii() else _cut(text):
        for piece in _cut_paragraphs(part):
            sentences = sentencex.segment(language, piece)
            if all(len(sentence) <= _LONG_SENTENCE for sentence in sentences):
                yield sentences
            else:
                yield [part for sentence in sentences for part in _cut_sentence(sentence, language)]


def _cut_paragraphs(text: str) -> Iterator[str]:
    """The text in pieces that sentencex is quick with."""
    for piece in _cut_pieces(text, _LONG_PARAGRAPH, _LONGEST_PARAGRAPH):
        if _has_many_quotes(piece):
            yield from _cut_pieces(piece, _LONG_SENTENCE, _LONG_SENTENCE)
        else:
            yield piece


def _has_many_quotes(piece: str) -> bool:
    """Whether looking for the partners of quotation marks that have none could take very long."""
    if len(piece) ** 2 <= _MANY_STEPS:
        return False
    num_quotes = sum(
        piece.count(quote, piece.rfind(partner) + 1 if partner else 0)
        for quote, partner in _PARTNER_OF_QUOTE.items()
    )
    return (
        num_quotes * len(piece) > _MANY_STEPS
        and num_quotes * max(map(len, piece.split("\n\n"))) > _MANY_STEPS
    )


def _cut_pieces(text: str, size: int, longest: int) -> Iterator[str]:
    """The text in pieces of about a size that end at a line break or behind a terminator, if need be later.

    Where there is none up to the longest length allowed, they end at white space or anywhere.
    """
    start = 0
    while len(text) - start > size and (cut := _find_cut(text, start, size, longest)):
        yield text[start:cut]
        start = cut
    yield text[start:]


def _find_cut(text: str, start: int, size: int, longest: int) -> int:
    """Where the piece that begins at `start` should end; 0 where there is no place for it."""
    middle, limit, last = start + size // 2, start + size, start + longest
    if cut := text.rfind("\n\n", start, limit) + 1 or text.find("\n", middle, limit) + 1:
        return cut
    if ends := [match.end() for match in _SENTENCE_END.finditer(text, middle, limit)]:
        return ends[-1]
    later = _SENTENCE_END.search(text, limit, last)
    line_end = text.find("\n", limit, later.end() if later else last) + 1
    if cut := line_end or (later.end() if later else 0):
        return cut
    if len(text) <= last:
        return 0
    space = _SPACES.search(text, middle, limit)
    return space.end() if space else limit


def _cut_sentence(sentence: str, language: str) -> Iterator[str]:
    """A sentence, or, where it is too long for one, its lines and their sentences."""
    if len(sentence) <= _LONG_SENTENCE:
        yield sentence
        return
    for line in sentence.split("\n"):
        for part in sentencex.segment(language, line):
            yield from _SENTENCE_END.split(part) if len(part) > _LONG_SENTENCE else (part,)


def _cut(text: str) -> list[str]:
    """Cut a text so that no stretch without white space is long; the parts joined are the text."""
    parts: list[str] = []
    start = 0
    for stretch in _LONG_STRETCH.finditer(text):
        for end in _find_cuts(text, stretch.start(), stretch.end()):
            parts.append(text[start:end])
            start = end
    parts.append(text[start:])
    return parts


def _find_cuts(text: str, start: int, end: int) -> Iterator[int]:
    depth = 0
    for mark in _MARK.finditer(text, start, end):
        openers, terminators, closers, other_closers = mark.groups(default="")
        depth = max(0, depth + len(openers) - len(closers) - len(other_closers))
        # Whether a sentence ends behind a closed quotation or bracket is left to sentencex.
        limit = _LONGEST_STRETCH if depth or closers else _STRETCH_CHARACTERS
        if terminators and mark.end() - start >= limit:
            yield mark.end()
            start, depth = mark.end(), 0


def _has_long_stretch(texts: pa.Array | pa.ChunkedArray) -> bool:
    """Whether more bytes in a row than a stretch may have are no white space: a cheap look at the buffers."""
    chunks = texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]
    for chunk in chunks:
        content = _content_bytes(chunk)
        if len(content) > _STRETCH_CHARACTERS:
            spaces = np.flatnonzero(content <= _SPACE)
            gaps = np.diff(spaces, prepend=-1, append=len(content))
            if gaps.max() > _STRETCH_CHARACTERS:
                return True
    return False


def _content_bytes(chunk: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    strings = chunk.cast(pa.large_string())
    _, offsets_buffer, content_buffer = strings.buffers()
    if not len(strings) or content_buffer is None:
        return np.zeros(0, dtype=np.uint8)
    offsets = np.frombuffer(offsets_buffer, dtype=np.int64)[
        strings.offset : strings.offset + len(strings) + 1
    ]
    return np.frombuffer(content_buffer, dtype=np.uint8)[offsets[0] : offsets[-1]]
