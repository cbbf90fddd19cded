"""Which tokens occur, how often, and in which scripts they are written.

In: arrays of token ids. Out: counts. Memory follows the size of the vocabulary. The bytes of scripts are
those of the pieces of the vocabulary: white space is not among them, nor is what became `[UNK]`, and
text that the tokenizer lower-cased or stripped of accents is counted as it came out.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from schemas.manifests import TokenizerRecord
from workflows.report.unicode_scripts import count_bytes_by_script

_UNUSED = re.compile(r"\[unused\d+\]")
_CONTINUATION = "##"


class Vocabulary:
    """Names of tokens, and the text that each stands for.

    Args:
        content: the bytes of `tokenizer.json`.
        record: its special tokens.
    """

    def __init__(self, content: bytes, record: TokenizerRecord) -> None:
        self.record = record
        self._tokenizer = Tokenizer.from_str(content.decode())
        self._is_wordpiece = json.loads(content)["model"].get("type") == "WordPiece"

    @property
    def size(self) -> int:
        """Entries, special ones included."""
        return self.record.vocab_size

    def name(self, token_id: int) -> str:
        """The entry of an id."""
        return self._tokenizer.id_to_token(token_id) or f"<id {token_id}>"

    def is_continuation(self, token_id: int) -> bool:
        """Whether a token goes on with the word before it."""
        return self._is_wordpiece and self.name(token_id).startswith(_CONTINUATION)

    def text(self, token_id: int) -> str:
        """What a token adds to a text, without the mark of a continuation."""
        if not self._is_wordpiece:
            return str(self._tokenizer.decode([token_id], skip_special_tokens=False)).strip()
        return self.name(token_id).removeprefix(_CONTINUATION)

    @cached_property
    def reserved_ids(self) -> frozenset[int]:
        """Ids that stand for no text: the special tokens and the `[unusedN]` slots."""
        unused = [i for token, i in self._tokenizer.get_vocab().items() if _UNUSED.fullmatch(token)]
        return frozenset([*self.record.special_ids, *unused])


@dataclass(frozen=True)
class FrequentToken:
    """A token, how often it occurs, and its share of all tokens of the text."""

    token: str
    count: int
    share: float


class TokenTally:
    """Counts the tokens of text, special ones left out, `[UNK]` kept apart.

    Args:
        vocabulary: where the ids come from.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._counts = np.zeros(vocabulary.size, dtype=np.int64)

    def add(self, token_ids: NDArray[Any]) -> None:
        """Count ids: unsigned integers [n], each below the size of the vocabulary."""
        # minlength makes the result as long as the vocabulary; a longer one would mean a foreign id.
        self._counts += np.bincount(token_ids, minlength=len(self._counts))

    @property
    def _of_text(self) -> NDArray[np.int64]:
        counts = self._counts.copy()
        counts[list(self._vocabulary.reserved_ids)] = 0
        return counts

    @property
    def num_unknown(self) -> int:
        """Tokens that came out as `[UNK]`."""
        return int(self._counts[self._vocabulary.record.unk_id])

    @property
    def num_tokens(self) -> int:
        """Tokens of text, `[UNK]` among them."""
        return int(self._of_text.sum()) + self.num_unknown

    @property
    def num_different(self) -> int:
        """Entries of the vocabulary that occur."""
        return int((self._of_text > 0).sum())

    @property
    def num_usable(self) -> int:
        """Entries of the vocabulary that could occur: neither special nor reserved."""
        return self._vocabulary.size - len(self._vocabulary.reserved_ids)

    @property
    def num_continuations(self) -> int:
        """Tokens that continue a word."""
        ids = np.flatnonzero(self._of_text).tolist()
        return sum(int(self._of_text[i]) for i in ids if self._vocabulary.is_continuation(i))

    def most_frequent(self, number: int) -> list[FrequentToken]:
        """The tokens of text that occur most, most frequent first; of equals the lower id."""
        counts = self._of_text
        order = np.argsort(-counts, kind="stable")[:number]
        total = max(1, self.num_tokens)
        return [
            FrequentToken(self._vocabulary.name(i), int(counts[i]), int(counts[i]) / total)
            for i in order.tolist()
            if counts[i]
        ]

    def bytes_by_script(self) -> list[tuple[str, int]]:
        """UTF-8 bytes of the pieces by script, most first."""
        totals: Counter[str] = Counter()
        for token_id in np.flatnonzero(self._of_text).tolist():
            times = int(self._of_text[token_id])
            for script, num_bytes in count_bytes_by_script(self._vocabulary.text(token_id)).items():
                totals[script] += times * num_bytes
        return sorted(totals.items(), key=lambda entry: (-entry[1], entry[0]))
