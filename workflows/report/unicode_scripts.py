"""Which script a character belongs to, as far as its Unicode name tells.

In: text. Out: a count of UTF-8 bytes a script. Python's `unicodedata` lacks the Script property; the name of
a letter begins with its script ("CYRILLIC SMALL LETTER A"), which is enough to see what languages a text may
hold. Digits, punctuation, symbols and marks that several scripts share are counted under what they are.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from functools import lru_cache

DIGITS = "Digits"
PUNCTUATION = "Punctuation and symbols"
MARKS = "Combining marks"
OTHER = "Other characters"
BROKEN = "Parts of characters"

_SCRIPT_NAMES = (
    "Arabic Armenian Bengali Bopomofo Cherokee Coptic Cyrillic Devanagari Ethiopic Georgian Gothic Greek "
    "Gujarati Gurmukhi Hangul Hebrew Hiragana Kannada Katakana Khmer Lao Latin Malayalam Mongolian "
    "Myanmar Oriya Runic Sinhala Syriac Tamil Telugu Thaana Thai Tibetan Tifinagh Yi"
)
_FIRST_WORDS = {
    **{name.upper(): name for name in _SCRIPT_NAMES.split()},
    "CJK": "Han",
    "IDEOGRAPHIC": "Han",
    "KANGXI": "Han",
}
# Words that stand before the script in a name: "FULLWIDTH LATIN SMALL LETTER A".
_PASSED_OVER = frozenset({"FULLWIDTH", "HALFWIDTH", "MODIFIER", "LETTER", "SMALL", "CAPITAL", "COMBINING"})
_LATIN_SIGNS = frozenset("ªº")
_CHARACTERS_REMEMBERED = 1 << 16


@lru_cache(maxsize=_CHARACTERS_REMEMBERED)
def script_of(character: str) -> str:
    """The script of a character, or the kind of sign that it is."""
    if character == "\N{REPLACEMENT CHARACTER}":
        return BROKEN
    category = unicodedata.category(character)
    if category[0] == "N":
        return DIGITS
    if category[0] in "PSZ":
        return PUNCTUATION
    if character in _LATIN_SIGNS:
        return "Latin"
    for word in unicodedata.name(character, "").replace("-", " ").split():
        if word in _FIRST_WORDS:
            return _FIRST_WORDS[word]
        if word not in _PASSED_OVER:
            break
    return MARKS if category[0] == "M" else OTHER


def count_bytes_by_script(text: str) -> Counter[str]:
    """The UTF-8 bytes of a text by script. Lone surrogates count as they would be encoded."""
    counts: Counter[str] = Counter()
    for character in text:
        counts[script_of(character)] += len(character.encode("utf-8", "surrogatepass"))
    return counts
