from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from trainer.vocabulary_match import describe_rules, match_vocabularies

THEIRS = {"[PAD]": 0, "[unused0]": 1, "[unused1]": 2, "[UNK]": 3, "the": 4, "cat": 5}


def test_the_same_vocabulary() -> None:
    match = match_vocabularies(THEIRS, dict(THEIRS), 6, 6)
    assert match.is_same
    assert match.rows.tolist() == [0, 1, 2, 3, 4, 5]
    assert (match.num_shared, match.num_in_slots, match.num_new, match.num_lost) == (6, 0, 0, 0)


def test_words_in_unused_slots_begin_with_the_row_of_the_slot() -> None:
    ours = {"[PAD]": 0, "[unused0]": 1, "zebra": 2, "[UNK]": 3, "the": 4, "cat": 5}
    match = match_vocabularies(ours, THEIRS, 6, 6)
    assert match.rows.tolist() == [0, 1, 2, 3, 4, 5]
    assert (match.num_shared, match.num_in_slots, match.num_new, match.num_lost) == (5, 1, 0, 0)
    assert not match.is_same


def test_rows_follow_their_entries_into_another_vocabulary() -> None:
    ours = {"[PAD]": 0, "[UNK]": 1, "cat": 2, "zebra": 3, "the": 4}
    match = match_vocabularies(ours, THEIRS, 5, 6)
    assert match.rows.tolist() == [0, 3, 5, -1, 4]
    assert (match.num_shared, match.num_in_slots, match.num_new, match.num_lost) == (4, 0, 1, 2)


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        ({"zebra": 2, "horse": 6}, [0, 1, -1, 3, 4, 5, -1]),  # one word beyond the slots
        ({"zebra": 5, "cat": 2}, [0, 1, 5, 3, 4, -1]),  # a word that moved into a slot
        ({"zebra": 4, "the": None}, [0, 1, 2, 3, -1, 5]),  # a word where a word was
    ],
    ids=["beyond the slots", "a word moved", "a word replaced"],
)
def test_anything_else_is_another_vocabulary(change: dict[str, int | None], rows: list[int]) -> None:
    merged = {token: token_id for token, token_id in (THEIRS | change).items() if token_id is not None}
    taken = {change_id for change_id in change.values() if change_id is not None}
    ours = {token: token_id for token, token_id in merged.items() if token in change or token_id not in taken}
    match = match_vocabularies(ours, THEIRS, max(ours.values()) + 1, 6)
    assert match.rows.tolist() == rows
    assert match.num_in_slots == 0
    assert match.num_new == rows.count(-1)


def test_an_entry_without_an_embedding_is_none() -> None:
    """An added token of the tokenizer that the matrix was never enlarged for."""
    match = match_vocabularies({"[PAD]": 0, "new": 1}, {"[PAD]": 0, "x": 1, "new": 2}, 2, 2)
    assert match.rows.tolist() == [0, -1]


words = st.lists(st.text("ab[]unsed0", min_size=1, max_size=3), min_size=1, max_size=8, unique=True)


@given(ours=words, theirs=words)
def test_every_row_is_that_of_the_same_entry(ours: list[str], theirs: list[str]) -> None:
    ids, rows_of = ({token: index for index, token in enumerate(tokens)} for tokens in (ours, theirs))
    match = match_vocabularies(ids, rows_of, len(ours), len(theirs))
    assert match.rows.tolist() == [rows_of.get(token, -1) for token in ours]
    assert match.num_shared + match.num_new == len(ours)
    assert match.num_shared + match.num_lost == len(theirs)


def rules(**settings: bool | None) -> str:
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(**settings)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return str(tokenizer.to_str())


def test_rules_that_differ_are_named() -> None:
    assert describe_rules(rules(lowercase=False), rules(lowercase=True)) == [
        "lowercase yes there, no here",
        "strip_accents yes there, no here",
    ]
    assert describe_rules(rules(handle_chinese_chars=False), rules()) == [
        "handle_chinese_chars yes there, no here"
    ]


def test_stripping_accents_follows_lower_casing_where_nothing_is_said() -> None:
    assert describe_rules(rules(lowercase=True, strip_accents=True), rules(lowercase=True)) == []
    assert describe_rules(rules(lowercase=False), rules(lowercase=False, strip_accents=False)) == []


def test_rules_that_are_not_bert_s_are_compared_as_a_whole() -> None:
    other = json.loads(rules())
    other["normalizer"] = {"type": "Lowercase"}
    assert "normalizer Lowercase there, BertNormalizer here" in describe_rules(rules(), json.dumps(other))
    assert describe_rules(json.dumps(other), json.dumps(other)) == []
