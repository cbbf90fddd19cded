"""The reference preprocessing script's algorithm in its plain form, written anew for the benchmarks.

In: documents as lists of sentences of tokens. Out: examples with pairs and masks, as Python objects. It is
the algorithm of Devlin et al. 2018 (`create_pretraining_data.py`), with its known defects: the whole corpus
in memory, more than half of the labels NotNext, a NotNext segment from the same document by chance.
Deterministic for a seeded `random.Random`.
"""

from __future__ import annotations

import array
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_SEQ_LENGTH = 128
MAX_PREDICTIONS = 20
MASKED_LM_PROB = 0.15
SHORT_SEQ_PROB = 0.1

Document = list[list[str]]
Pair = tuple[list[str], list[str], bool]
"""Segment A, segment B, and whether B is a random one."""


@dataclass
class Example:
    """A masked pair."""

    tokens: list[Any]
    segment_ids: list[int]
    is_random_next: bool
    masked_lm_positions: list[int]
    masked_lm_labels: list[Any]


def read_documents(path: Path, tokenize: Callable[[str], list[str]]) -> list[Document]:
    """Read a sentence a line, documents parted by empty lines, into one list."""
    documents: list[Document] = [[]]
    with path.open(encoding="utf-8", newline="\n") as lines:
        for line in lines:
            sentence = line.strip()
            if not sentence:
                documents.append([])
            elif tokens := tokenize(sentence):
                documents[-1].append(tokens)
    return [document for document in documents if document]


def create_examples(documents: list[Document], words: Sequence[str], rng: random.Random) -> list[Example]:
    """Every document once: pairs, masks, and a shuffle."""
    rng.shuffle(documents)
    examples = [
        mask(*pair, words, rng)
        for index in range(len(documents))
        for pair in pair_document(documents, index, rng)
    ]
    rng.shuffle(examples)
    return examples


def pair_document(documents: Sequence[Document], index: int, rng: random.Random) -> list[Pair]:
    """The pairs whose first segment comes from one document."""
    document = documents[index]
    max_tokens = MAX_SEQ_LENGTH - 3
    target = rng.randint(2, max_tokens) if rng.random() < SHORT_SEQ_PROB else max_tokens
    pairs: list[Pair] = []
    chunk: list[list[str]] = []
    num_tokens = 0
    position = 0
    while position < len(document):
        chunk.append(document[position])
        num_tokens += len(document[position])
        if position == len(document) - 1 or num_tokens >= target:
            a_end = rng.randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
            tokens_a = [token for sentence in chunk[:a_end] for token in sentence]
            is_random_next = len(chunk) == 1 or rng.random() < 0.5
            if is_random_next:
                tokens_b = _draw_random_next(documents, index, target - len(tokens_a), rng)
                position -= len(chunk) - a_end  # the unused sentences are put back
            else:
                tokens_b = [token for sentence in chunk[a_end:] for token in sentence]
            _truncate(tokens_a, tokens_b, max_tokens, rng)
            pairs.append((tokens_a, tokens_b, is_random_next))
            chunk, num_tokens = [], 0
        position += 1
    return pairs


def mask(
    tokens_a: list[Any],
    tokens_b: list[Any],
    is_random_next: bool,
    words: Sequence[Any],
    rng: random.Random,
    specials: tuple[Any, Any, Any] = ("[CLS]", "[SEP]", "[MASK]"),
) -> Example:
    """Choose and mask the tokens of a pair; they may be ids, with the ids of the special tokens."""
    begin, separator, masked = specials
    tokens = [begin, *tokens_a, separator, *tokens_b, separator]
    segment_ids = [0] * (len(tokens_a) + 2) + [1] * (len(tokens_b) + 1)
    candidates = [index for index, token in enumerate(tokens) if token not in (begin, separator)]
    rng.shuffle(candidates)
    num_predictions = min(MAX_PREDICTIONS, max(1, round(len(tokens) * MASKED_LM_PROB)))
    positions = sorted(candidates[:num_predictions])
    labels = [tokens[position] for position in positions]
    for position in positions:
        if rng.random() < 0.8:
            tokens[position] = masked
        elif rng.random() >= 0.5:
            tokens[position] = words[rng.randint(0, len(words) - 1)]
    return Example(tokens, segment_ids, is_random_next, positions, labels)


def write_examples(examples: Iterable[Example], ids: dict[str, int], path: Path) -> int:
    """Write the seven padded features of each example, 32 bits a number; returns how many examples."""
    num_examples = 0
    with path.open("wb") as output:
        for example in examples:
            length, chosen = len(example.tokens), len(example.masked_lm_positions)
            padding, unpredicted = [0] * (MAX_SEQ_LENGTH - length), [0] * (MAX_PREDICTIONS - chosen)
            features = [
                *([ids[token] for token in example.tokens] + padding),
                *([1] * length + padding),
                *(example.segment_ids + padding),
                *(example.masked_lm_positions + unpredicted),
                *([ids[token] for token in example.masked_lm_labels] + unpredicted),
                int(example.is_random_next),
            ]
            array.array("i", features).tofile(output)
            array.array("f", [1.0] * chosen + [0.0] * len(unpredicted)).tofile(output)
            num_examples += 1
    return num_examples


def _draw_random_next(
    documents: Sequence[Document], index: int, target: int, rng: random.Random
) -> list[str]:
    for _ in range(10):
        other = rng.randint(0, len(documents) - 1)
        if other != index:
            break
    tokens: list[str] = []
    start = rng.randint(0, len(documents[other]) - 1)
    for sentence in documents[other][start:]:
        tokens.extend(sentence)
        if len(tokens) >= target:
            break
    return tokens


def _truncate(tokens_a: list[str], tokens_b: list[str], max_tokens: int, rng: random.Random) -> None:
    while len(tokens_a) + len(tokens_b) > max_tokens:
        longer = tokens_a if len(tokens_a) > len(tokens_b) else tokens_b
        if rng.random() < 0.5:
            del longer[0]
        else:
            longer.pop()
