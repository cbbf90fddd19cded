"""Which entries of one vocabulary are those of another, so that embeddings can move with their words.

In: the `tokenizer.json` of the weights and that of the data. Out: for each entry of the data's vocabulary the
row of the weights that it begins with, and sentences that say what differs. Deterministic.

Two cases are told apart. Where words were put into `[unused…]` slots and nothing else changed, every row
stays where it is and a new word begins with the row of its slot. Otherwise rows go by the entry's text, and
an entry that the other vocabulary lacks has none.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

NO_ROW = -1
_PLAIN = {True: "yes", False: "no", None: "none"}
_UNUSED = re.compile(r"\[unused\d+\]")


@dataclass(frozen=True)
class VocabularyMatch:
    """How the data's vocabulary is found in that of the weights.

    Attributes:
        rows: int64 [V], the row of the weights for each id of the data; `NO_ROW` where there is none.
        num_shared: entries that both have.
        num_in_slots: entries in slots that were `[unused…]`; 0 unless nothing else differs.
        num_new: entries that only the data has, and that begin without a row.
        num_lost: entries that only the weights have.
        is_same: both have the same entries at the same ids.
    """

    rows: NDArray[np.int64]
    num_shared: int
    num_in_slots: int
    num_new: int
    num_lost: int
    is_same: bool


def match_vocabularies(
    ours: dict[str, int], theirs: dict[str, int], vocab_size: int, num_rows: int
) -> VocabularyMatch:
    """Find the data's vocabulary in that of the weights.

    Args:
        ours: id of each entry, of the data.
        theirs: id of each entry, of the weights; those beyond `num_rows` have no embedding.
        vocab_size: ids of the data: one more than the largest.
        num_rows: rows of the weights.
    """
    theirs = {token: token_id for token, token_id in theirs.items() if token_id < num_rows}
    rows = np.full(vocab_size, NO_ROW, dtype=np.int64)
    shared = [token for token in ours if token in theirs]
    new = [token for token in ours if token not in theirs]
    rows[[ours[token] for token in shared]] = [theirs[token] for token in shared]
    at_same_ids = all(ours[token] == theirs[token] for token in shared)
    slots = {token_id for token, token_id in theirs.items() if _UNUSED.fullmatch(token)}
    extended = bool(new) and at_same_ids and all(ours[token] in slots for token in new)
    if extended:
        rows[[ours[token] for token in new]] = [ours[token] for token in new]
    return VocabularyMatch(
        rows=rows,
        num_shared=len(shared),
        num_in_slots=len(new) if extended else 0,
        num_new=0 if extended else len(new),
        num_lost=sum(token not in ours for token in theirs) - (len(new) if extended else 0),
        is_same=at_same_ids and ours.keys() == theirs.keys(),
    )


def vocabulary_of(tokenizer_json: str) -> dict[str, int]:
    """The id of each entry, added tokens included."""
    return dict(Tokenizer.from_str(tokenizer_json).get_vocab(with_added_tokens=True))


def describe_rules(ours_json: str, theirs_json: str) -> list[str]:
    """What differs in how text is made ready for the vocabulary: `lowercase yes there, no here`."""
    ours, theirs = _rules(json.loads(ours_json)), _rules(json.loads(theirs_json))
    return [
        f"{name} {_PLAIN.get(theirs.get(name), theirs.get(name))} there, "
        f"{_PLAIN.get(ours.get(name), ours.get(name))} here"
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name) != theirs.get(name)
    ]


def _rules(fields: dict[str, Any]) -> dict[str, Any]:
    normaliser, pre_tokeniser = fields.get("normalizer") or {}, fields.get("pre_tokenizer") or {}
    rules = {"normalizer": normaliser.get("type"), "pre_tokenizer": pre_tokeniser.get("type")}
    if normaliser.get("type") != "BertNormalizer":
        return rules | {"rules": json.dumps([normaliser, pre_tokeniser], sort_keys=True)}
    settings = {name: value for name, value in normaliser.items() if name != "type"}
    if settings.get("strip_accents") is None:
        settings["strip_accents"] = settings.get("lowercase")
    return rules | settings
