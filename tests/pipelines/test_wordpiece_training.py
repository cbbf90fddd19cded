import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.tokenizer_files import bert_tokenizer
from pipelines.wordpiece_training import choose_alphabet, count_words, train_wordpiece

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def train(counts: dict[str, int], vocab_size: int, min_frequency: int = 1, num_unused: int = 0) -> list[str]:
    return train_wordpiece(
        counts, bert_tokenizer({}), vocab_size=vocab_size, min_frequency=min_frequency, num_unused=num_unused
    )


def merge_plainly(counts: dict[str, int], alphabet: list[str], room: int, min_frequency: int) -> list[str]:
    """Byte-pair merges, counting all pairs anew each time; equals go to the pair of the smallest numbers."""
    tokens = list(alphabet)
    words = {word: [word[0], *(f"##{character}" for character in word[1:])] for word in counts}
    while len(tokens) < room:
        pairs: Counter[tuple[int, int]] = Counter()
        for word, symbols in words.items():
            for left, right in pairwise(symbols):
                pairs[tokens.index(left), tokens.index(right)] += counts[word]
        if not pairs:
            break
        (left_id, right_id), count = min(pairs.items(), key=lambda item: (-item[1], item[0]))
        if count < min_frequency:
            break
        left, right = tokens[left_id], tokens[right_id]
        merged = left + right.removeprefix("##")
        if merged not in tokens:
            tokens.append(merged)
        for symbols in words.values():
            position = 0
            while position < len(symbols) - 1:
                if symbols[position] == left and symbols[position + 1] == right:
                    symbols[position : position + 2] = [merged]
                position += 1
    return tokens


@settings(max_examples=100, deadline=None)
@given(
    counts=st.dictionaries(st.text("abc", min_size=1, max_size=5), st.integers(1, 5), min_size=1, max_size=8),
    vocab_size=st.integers(16, 40),
    min_frequency=st.integers(1, 3),
)
def test_equals_merging_by_counting_anew(counts: dict[str, int], vocab_size: int, min_frequency: int) -> None:
    room = vocab_size - len(SPECIALS)
    alphabet = choose_alphabet(counts, room, min_frequency)
    covered = {
        word: count
        for word, count in counts.items()
        if word[0] in alphabet and all(f"##{character}" in alphabet for character in word[1:])
    }
    expected = SPECIALS + merge_plainly(covered, alphabet, room, min_frequency)
    assert train(counts, vocab_size, min_frequency) == expected


def test_order_of_the_vocabulary() -> None:
    # "##a ##t" occurs 5 times before any other pair, then "c ##at" 3 times, then "s ##at" twice.
    tokens = train({"cat": 3, "Sat": 2, ".": 4}, vocab_size=30, num_unused=2)
    assert tokens == [
        *("[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
        *("##a", "##t", ".", "a", "c", "s", "t"),
        *("##at", "cat", "sat"),
    ]


def test_never_more_tokens_than_asked_for() -> None:
    counts = {f"{chr(97 + i)}{chr(97 + j)}": 1 + i for i in range(20) for j in range(20)}
    for vocab_size in (16, 17, 40, 60):
        tokens = train(counts, vocab_size)
        assert len(tokens) == vocab_size
        assert len(set(tokens)) == vocab_size


def test_rare_characters_and_their_words_are_left_out() -> None:
    tokens = train({"cat": 5, "c\u00fe": 1}, vocab_size=100, min_frequency=2)
    assert not [token for token in tokens if "\u00fe" in token]


def test_a_script_of_many_characters_gets_them() -> None:
    # 1500 ideographs of the same frequency: more than ALPHABET_SIZE, needed for the coverage.
    counts = {chr(0x4E00 + index): 10 for index in range(1500)}
    assert len(choose_alphabet(counts, 30_000, 2)) == 1500


def test_a_long_tail_of_characters_is_cut() -> None:
    counts = {"a": 100_000_000, **{chr(0x4E00 + index): 2 for index in range(5000)}}
    assert len(choose_alphabet(counts, 30_000, 2)) == 1000
    assert len(choose_alphabet(counts, 800, 2)) == 100


def test_words_are_normalised_and_endless_ones_left_out() -> None:
    counts = {"Caf\u00e9": 2, "cafe": 3, "a\xa0b": 1, "\u226e": 1, "x" * 101: 9}
    assert count_words(counts, bert_tokenizer({})) == {"<": 1, "a": 1, "b": 1, "cafe": 5}


def test_text_of_special_tokens_is_learned_as_text() -> None:
    tokens = train({"[": 50, "mask": 50, "]": 50}, vocab_size=40)
    assert tokens[:5] == SPECIALS
    assert {"[", "]", "mask"} <= set(tokens[5:])
    assert len(set(tokens)) == len(tokens)


def test_nothing_to_learn_from_gives_the_special_tokens() -> None:
    assert train({}, vocab_size=100) == SPECIALS


TIED_COUNTS = {"".join(word): 1 + index % 5 for index, word in enumerate(product("abcdefgh", repeat=3))}
SCRIPT = f"""
from pipelines.tokenizer_files import bert_tokenizer
from pipelines.wordpiece_training import train_wordpiece
print(train_wordpiece({TIED_COUNTS!r}, bert_tokenizer({{}}), vocab_size=300, min_frequency=1, num_unused=0))
"""


@pytest.mark.parametrize(("hash_seed", "parallel"), [("1", "true"), ("2", "false")])
def test_same_vocabulary_in_every_process(hash_seed: str, parallel: str) -> None:
    # The library's trainer alone gives another vocabulary in each process: most pairs here are tied.
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "TOKENIZERS_PARALLELISM": parallel},
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.strip() == repr(train(TIED_COUNTS, vocab_size=300))
