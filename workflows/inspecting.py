"""Examples as a person reads them.

In: a dataset, a split and how many examples. Out: `ReadableExample`s, and lines of text for them: A and B
apart, each masked position as `{what stands there <- what stood there}`, the label in words:

    A  the {[MASK] <- cat} sat on the mat
    B  it {purred kept} softly

Deterministic: the first examples of a split in stored order, which is random already.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import click
import pyarrow as pa
from rich.cells import cell_len
from tokenizers import Tokenizer

from schemas.examples import NOT_NEXT
from schemas.manifests import Split
from trainer.data.blocks import iterate_blocks
from trainer.data.dataset import Dataset
from trainer.data.example_arrays import NO_LABEL, ExampleArrays, arrays_from_blocks

LABELS = {
    "next-sentence": {0: "IsNext", 1: "NotNext"},
    "sentence-order": {0: "in order", 1: "swapped"},
}


@dataclass(frozen=True)
class MaskedToken:
    """A position chosen for prediction: the token that stands there, and the one that stood there."""

    position: int
    stands: str
    stood: str


@dataclass(frozen=True)
class ReadableExample:
    """An example in tokens.

    Attributes:
        shard: the shard it lies in.
        number: its number in the shard, from 0.
        tokens: all of them, masked as the model sees them, `[CLS]` and `[SEP]` included.
        segment_a_length: tokens of `[CLS] A [SEP]`.
        masked: the chosen positions, ascending.
        label: in words; None where the objective has none.
    """

    shard: str
    number: int
    tokens: list[str]
    segment_a_length: int
    masked: list[MaskedToken]
    label: str | None

    def as_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {
            "shard": self.shard,
            "number": self.number,
            "label": self.label,
            "tokens": self.tokens,
            "segment_a_length": self.segment_a_length,
            "masked": [vars(token) for token in self.masked],
        }


def read_examples(dataset: Dataset, split: Split, num_examples: int, first: int = 0) -> list[ReadableExample]:
    """Some examples of a split.

    Args:
        dataset: an opened dataset.
        split: which split.
        num_examples: how many.
        first: the number of the first one, counted over all shards of the split.

    Raises:
        UsageError: the split has no examples.
        CorruptDataError: a shard or the tokenizer is damaged.
    """
    tokenizer = Tokenizer.from_str(dataset.read_tokenizer().decode())
    return list(islice(_iterate_readable(dataset, split, first, tokenizer), num_examples))


def readable_examples(
    source: str, blocks: Sequence[pa.RecordBatch], objective: str, tokenizer: Tokenizer
) -> list[ReadableExample]:
    """All examples of some record batches of `schemas.examples.example_schema`.

    Args:
        source: what the examples are named by, in place of a shard.
        blocks: the batches; there may be none.
        objective: what their labels mean.
        tokenizer: that of their ids.
    """
    if not blocks:
        return []
    examples = arrays_from_blocks(blocks)
    labels = LABELS.get(objective, {})
    return [_make_readable(source, row, examples, row, labels, tokenizer) for row in range(len(examples))]


def describe_example(example: ReadableExample, width: int | None = None) -> list[str]:
    """The lines that show an example, styled; click drops the style where the output takes none.

    Args:
        example: what to show.
        width: characters in a line, so that none is broken within a word; None for a segment a line.
    """
    head = f"{example.shard} example {example.number}"
    facts = f"{len(example.tokens)} tokens, {len(example.masked)} chosen"
    label = f"  {_style_label(example.label)}" if example.label else ""
    lines = [f"{click.style(head, bold=True)}{label}  {facts}"]
    a_end = example.segment_a_length
    lines += _lay_out("  A  ", _mark_tokens(example, 1, a_end - 1), width)
    if a_end < len(example.tokens):
        lines += _lay_out("  B  ", _mark_tokens(example, a_end, len(example.tokens) - 1), width)
    return lines


def terminal_width() -> int | None:
    """Columns of the terminal that standard output is; None where it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _iterate_readable(
    dataset: Dataset, split: Split, first: int, tokenizer: Tokenizer
) -> Iterator[ReadableExample]:
    labels = LABELS.get(dataset.manifest.config.objective, {})
    for shard in dataset.require_split(split):
        start = min(first, shard.num_examples)
        first -= start
        if start == shard.num_examples:
            continue
        number = 0
        for block in iterate_blocks(dataset, shard, verify=False):
            examples = arrays_from_blocks([block])
            for row in range(max(0, start - number), len(examples)):
                yield _make_readable(shard.name, number + row, examples, row, labels, tokenizer)
            number += len(examples)


def _make_readable(
    shard: str, number: int, examples: ExampleArrays, row: int, labels: dict[int, str], tokenizer: Tokenizer
) -> ReadableExample:
    def name(token_id: int) -> str:
        return tokenizer.id_to_token(token_id) or f"<id {token_id}>"

    start, masked_start = examples.starts[row], examples.masked_starts[row]
    masked = slice(masked_start, masked_start + examples.masked_counts[row])
    tokens = [
        name(token_id) for token_id in examples.input_ids[start : start + examples.lengths[row]].tolist()
    ]
    positions = examples.masked_lm_positions[masked].tolist()
    originals = examples.masked_lm_ids[masked].tolist()
    label = int(examples.labels[row])
    return ReadableExample(
        shard=shard,
        number=number,
        tokens=tokens,
        segment_a_length=int(examples.segment_a_lengths[row]),
        masked=[MaskedToken(at, tokens[at], name(was)) for at, was in zip(positions, originals, strict=True)],
        label=None if label == NO_LABEL else labels.get(label, str(label)),
    )


def _style_label(label: str) -> str:
    return click.style(
        label, fg="magenta" if label in (LABELS["next-sentence"][NOT_NEXT], "swapped") else "green"
    )


def _mark_tokens(example: ReadableExample, start: int, end: int) -> list[str]:
    marks = {token.position: _mark(token) for token in example.masked}
    return [marks.get(position, example.tokens[position]) for position in range(start, end)]


def _lay_out(head: str, words: list[str], width: int | None) -> list[str]:
    """The words after a head, and below it where a line is full."""
    if width is None:
        return [head + " ".join(words)]
    lines: list[str] = []
    line, used = head + words[0], len(head) + _count_columns(words[0])
    for word in words[1:]:
        columns = _count_columns(word)
        if used + 1 + columns > width:
            lines.append(line)
            line, used = " " * len(head) + word, len(head) + columns
        else:
            line, used = f"{line} {word}", used + 1 + columns
    return [*lines, line]


def _count_columns(word: str) -> int:
    return cell_len(click.unstyle(word))


def _mark(token: MaskedToken) -> str:
    if token.stands == token.stood:
        return click.style(f"{{{token.stood} kept}}", fg="cyan")
    colour = "yellow" if token.stands == "[MASK]" else "red"
    return click.style(f"{{{token.stands} <- {token.stood}}}", fg=colour)
