"""Tokens as a person reads them: pieces of a word joined, what masking did marked.

In: an example of `inspecting`, or the sentences of a sampled document. Out: `ExampleLine`s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from workflows.inspecting import MaskedToken, ReadableExample
from workflows.report.blocks import ExampleLine, Span, SpanKind
from workflows.report.corpus_sample import SampledDocument
from workflows.report.token_tally import Vocabulary

_CONTINUATION = "##"
_MOST_TOKENS_SHOWN = 120

MASKING_LEGEND: tuple[tuple[Span, str], ...] = (
    (Span("[MASK]", "mask", "cat"), "[MASK] stands where “cat” stood"),
    (Span("river", "random", "cat"), "a random token stands where “cat” stood"),
    (Span("cat", "kept"), "“cat” is to be predicted and was left"),
)


def example_lines(example: ReadableExample, vocabulary: Vocabulary) -> tuple[ExampleLine, ...]:
    """Segment A and, where there is one, segment B, without the special tokens around them."""
    masks = {token.position: token for token in example.masked}
    mask_name = vocabulary.name(vocabulary.record.mask_id)
    unknown_name = vocabulary.name(vocabulary.record.unk_id)

    def line(name: str, start: int, end: int) -> ExampleLine:
        spans = (
            _masked_span(masks[position], mask_name)
            if position in masks
            else _text_span(example.tokens[position], unknown_name)
            for position in range(start, end)
        )
        return ExampleLine(name, tuple(_glue(spans)))

    a_end, length = example.segment_a_length, len(example.tokens)
    first = line("A", 1, a_end - 1)
    return (first, line("B", a_end, length - 1)) if a_end < length else (first,)


def document_lines(document: SampledDocument, vocabulary: Vocabulary) -> tuple[ExampleLine, ...]:
    """The first sentences of a document, and a note of what is left out."""
    unknown_name = vocabulary.name(vocabulary.record.unk_id)
    lines, room = [], _MOST_TOKENS_SHOWN
    for number, sentence in enumerate(document.sentences, start=1):
        if room <= 0:
            break
        spans = [_text_span(vocabulary.name(token_id), unknown_name) for token_id in sentence[:room]]
        cut = [Span("…", "note")] if len(sentence) > room else []
        lines.append(ExampleLine(str(number), (*_glue(spans), *cut)))
        room -= len(sentence)
    left = document.num_sentences - len(lines)
    if left:
        lines.append(ExampleLine("", (Span(f"and {left:,} more sentence{'s' if left > 1 else ''}", "note"),)))
    return tuple(lines)


def _masked_span(token: MaskedToken, mask_name: str) -> Span:
    if token.stands == mask_name:
        return Span(token.stands, "mask", token.stood)
    if token.stands == token.stood:
        return Span(token.stands, "kept")
    return Span(token.stands, "random", token.stood)


def _text_span(token: str, unknown_name: str) -> Span:
    kind: SpanKind = "unknown" if token == unknown_name else "text"
    return Span(token, kind)


def _glue(spans: Iterable[Span]) -> Iterator[Span]:
    """Join a continuation to the piece before it, unless one of the two is marked."""
    before: SpanKind = "note"
    for span in spans:
        if (
            span.kind == before == "text"
            and span.text.startswith(_CONTINUATION)
            and span.text != _CONTINUATION
        ):
            yield Span(span.text.removeprefix(_CONTINUATION), glued=True)
        else:
            yield span
        before = span.kind
