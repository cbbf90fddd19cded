"""Learning a WordPiece vocabulary from counted words.

In: pieces of words with their counts. Out: the tokens in the order of their ids. Deterministic: the same
counts give the same vocabulary in every process, which the `tokenizers` library alone does not promise. Its
trainer numbers the characters inside words in the order of a randomly seeded hash table, and breaks ties
between merges by these numbers; here it is given them, sorted.

The method is that of the library's `WordPieceTrainer`: characters to begin with, then the most frequent pair
of neighbours is merged, again and again (Sennrich et al. 2016, "Neural machine translation of rare words with
subword units", section 3.2), and pieces that go on inside a word are marked `##`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.trainers import WordPieceTrainer

from pipelines.tokenizer_files import PAD_TOKEN, SPECIAL_TOKENS, UNK_TOKEN

CONTINUATION = "##"
MAX_WORD_CHARS = 100
"""WordPiece gives a longer word `[UNK]`, so nothing is learned from it."""
ALPHABET_SIZE = 1000
ALPHABET_SHARE = 1 / 8
ALPHABET_COVERAGE = 0.9995
"""The most frequent characters are kept: ALPHABET_SIZE of them, fewer where they would fill more than
ALPHABET_SHARE of a small vocabulary, and in any case as many as make up ALPHABET_COVERAGE of all text (the
figure is that of SentencePiece's `character_coverage`)."""

_NO_LIMIT = 1 << 31
_LINE_CHARS = 1 << 16


def train_wordpiece(
    piece_counts: Mapping[str, int],
    normaliser: Tokenizer,
    *,
    vocab_size: int,
    min_frequency: int,
    num_unused: int,
) -> list[str]:
    """Learn a vocabulary.

    Args:
        piece_counts: how often each piece occurs; pieces as `pipelines.words` cuts them.
        normaliser: a tokenizer whose normaliser and pre-tokeniser turn pieces into words.
        vocab_size: tokens at most.
        min_frequency: a character or pair of neighbours must occur this often.
        num_unused: reserved `[unused0]` … entries.

    Returns:
        `[PAD]`, `[unused0]` …, the other special tokens, characters, then longer pieces in the order in which
        they were learned. Fewer than `vocab_size` where the words give no more.
    """
    reserved = [PAD_TOKEN, *(f"[unused{index}]" for index in range(num_unused)), *SPECIAL_TOKENS[1:]]
    room = vocab_size - len(reserved)
    words = count_words(piece_counts, normaliser)
    alphabet = choose_alphabet(words, room, min_frequency)
    trained = _train(words, alphabet, room, min_frequency) if alphabet else []
    return reserved + trained


def count_words(piece_counts: Mapping[str, int], normaliser: Tokenizer) -> dict[str, int]:
    """Normalised words with their counts, sorted by word."""
    normalise = normaliser.normalizer.normalize_str
    pre_tokenise = normaliser.pre_tokenizer.pre_tokenize_str
    words: Counter[str] = Counter()
    for piece, count in piece_counts.items():
        for word, _ in pre_tokenise(normalise(piece)):
            if len(word) <= MAX_WORD_CHARS:
                words[word] += count
    return dict(sorted(words.items()))


def choose_alphabet(words: Mapping[str, int], room: int, min_frequency: int) -> list[str]:
    """The single characters of the vocabulary: `a` for each, and `##a` for those met inside a word.

    Args:
        words: words with their counts.
        room: entries at most.
        min_frequency: a rarer character is left out.

    Returns:
        The entries, sorted. The most frequent characters win; equals go by code point.
    """
    anywhere: Counter[str] = Counter()
    inside: set[str] = set()
    for word, count in words.items():
        for character in word:
            anywhere[character] += count
        inside.update(word[1:])
    wanted = ALPHABET_COVERAGE * anywhere.total()
    enough = min(ALPHABET_SIZE, int(room * ALPHABET_SHARE))
    entries: list[str] = []
    covered = 0
    ranked = sorted(anywhere, key=lambda character: (-anywhere[character], character))
    for rank, character in enumerate(ranked):
        if anywhere[character] < min_frequency or (rank >= enough and covered >= wanted):
            break
        forms = [character, CONTINUATION + character] if character in inside else [character]
        if len(entries) + len(forms) > room:
            break
        entries += forms
        covered += anywhere[character]
    return sorted(entries)


def _train(words: Mapping[str, int], alphabet: list[str], room: int, min_frequency: int) -> list[str]:
    trainer = WordPieceTrainer(
        vocab_size=room,
        min_frequency=min_frequency,
        # As "special tokens" the characters get the first numbers, in the order given.
        special_tokens=alphabet,
        limit_alphabet=_NO_LIMIT,
        continuing_subword_prefix=CONTINUATION,
        show_progress=False,
    )
    learner = Tokenizer(WordPiece(unk_token=UNK_TOKEN))
    learner.pre_tokenizer = WhitespaceSplit()
    learner.train_from_iterator(_repeat_words(_covered_words(words, alphabet)), trainer)
    vocabulary = json.loads(learner.to_str())["model"]["vocab"]
    return sorted(vocabulary, key=vocabulary.__getitem__)


def _covered_words(words: Mapping[str, int], alphabet: list[str]) -> Iterator[tuple[str, int]]:
    # A word with another character becomes [UNK] as a whole; the trainer would join what stands around it.
    first = {entry for entry in alphabet if len(entry) == 1}
    inside = {entry.removeprefix(CONTINUATION) for entry in alphabet if len(entry) > 1}
    for word, count in words.items():
        if len(word) > 1 and word[0] in first and inside.issuperset(word[1:]):
            yield word, count


def _repeat_words(words: Iterable[tuple[str, int]]) -> Iterator[str]:
    """Lines that hold each word as often as it occurs: the trainer takes no counts."""
    for word, count in words:
        words_in_line = max(1, _LINE_CHARS // (len(word) + 1))
        full_lines, rest = divmod(count, words_in_line)
        if full_lines:
            line = " ".join([word] * words_in_line)
            for _ in range(full_lines):
                yield line
        if rest:
            yield " ".join([word] * rest)
