"""A preview as a person reads it, and as `--json` prints it.

In: a `pipelines.preview.Preview`. Out: lines of text, (label, value) lines of a summary, a plain dictionary.
Long sentences are cut for a person; nothing is cut for `--json`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from workflows.dataset_statistics import share
from workflows.inspecting import ReadableExample, describe_example, readable_examples, terminal_width
from workflows.summaries import Lines, share_lines
from workflows.terminal import format_count, format_share

if TYPE_CHECKING:
    from pipelines.preview import Preview, PreviewedDocument

_DOCUMENTS_SHOWN = 3
_REJECTED_SHOWN = 3
_WIDTH = 160


def summarize_preview(preview: Preview, num_examples: int) -> dict[str, Any]:
    """What `--json` prints: counts and shares, all documents, and the first examples."""
    counts, masking = preview.counts, preview.counts.masking
    num_tokens = sum(document.num_tokens for document in preview.documents)
    num_chosen = masking["num_chosen_tokens"]
    return {
        "num_input_files": preview.num_input_files,
        "num_input_bytes": preview.num_input_bytes,
        "num_documents": len(preview.documents),
        "num_rejected": len(preview.rejected),
        "rejected": dict(sorted(Counter(document.reason for document in preview.rejected).items())),
        "num_sentences": sum(document.num_sentences for document in preview.documents),
        "num_tokens": num_tokens,
        "unknown_share": share(sum(document.num_unknown for document in preview.documents), num_tokens),
        "objective": preview.objective,
        "num_examples": counts.num_examples,
        "mean_example_tokens": share(counts.num_tokens, counts.num_examples),
        "is_next_share": share(counts.num_is_next, counts.num_is_next + counts.num_not_next),
        "chosen_share": share(num_chosen, masking["num_maskable_tokens"]),
        "mask_share": share(masking["num_masked_tokens"], num_chosen),
        "random_share": share(masking["num_random_tokens"], num_chosen),
        "kept_share": share(masking["num_kept_tokens"], num_chosen),
        "notes": list(preview.notes),
        "documents": [_document_as_json(document) for document in preview.documents],
        "examples": [example.as_json() for example in first_examples(preview, num_examples)],
    }


def first_examples(preview: Preview, num_examples: int) -> list[ReadableExample]:
    """The first examples, in the order of the documents."""
    blocks = [block.slice(0, num_examples) for block in preview.examples]
    return readable_examples("preview", blocks, preview.objective, preview.tokenizer)[:num_examples]


def describe_preview(preview: Preview, num_examples: int) -> Iterator[str]:
    """The lines that show a preview: some documents, some rejected ones, some examples."""
    for document in preview.documents[:_DOCUMENTS_SHOWN]:
        yield from _describe_document(document)
    if len(preview.documents) > _DOCUMENTS_SHOWN:
        yield f"and {format_count(len(preview.documents) - _DOCUMENTS_SHOWN)} more documents"
        yield ""
    for rejected in preview.rejected[:_REJECTED_SHOWN]:
        left_out = click.style("left out", fg="yellow")
        yield _cut(f"{rejected.document_id}  {left_out}  {rejected.reason}: {rejected.detail}")
    if preview.rejected:
        yield ""
    for example in first_examples(preview, num_examples):
        yield from describe_example(example, terminal_width())
        yield ""


def preview_lines(summary: dict[str, Any], max_seq_length: int) -> Lines:
    """Lines of the closing summary."""
    num_documents, num_sentences = summary["num_documents"], summary["num_sentences"]
    num_tokens = summary["num_tokens"]
    reasons = ", ".join(f"{reason} {format_count(count)}" for reason, count in summary["rejected"].items())
    left_out = f"; left out among those looked at: {reasons}" if reasons else ""
    num_files, num_bytes = summary["num_input_files"], summary["num_input_bytes"]
    size = f"{num_bytes / 1e6:,.1f} MB" if num_bytes >= 100_000 else f"{num_bytes / 1e3:,.1f} kB"
    lines = [
        ("input", f"{format_count(num_files)} file{'s' if num_files != 1 else ''}, {size} in all"),
        ("documents", f"{format_count(num_documents)} taken{left_out}"),
        ("sentences", f"{format_count(num_sentences)}, {num_sentences / num_documents:,.1f} a document"),
        (
            "tokens",
            f"{format_count(num_tokens)}, {num_tokens / num_sentences:,.1f} a sentence, "
            f"{format_share(summary['unknown_share'])} [UNK]",
        ),
    ]
    if summary["num_examples"]:
        fill = f"{summary['mean_example_tokens']:.1f} tokens of {max_seq_length} on average"
        lines.append(("examples", f"{format_count(summary['num_examples'])}, {fill}"))
    return [*lines, *share_lines(summary)]


def _describe_document(document: PreviewedDocument) -> Iterator[str]:
    head = click.style(document.document_id, bold=True)
    unknown = f", {format_count(document.num_unknown)} [UNK]" if document.num_unknown else ""
    yield (
        f"{head}  {document.split}  {format_count(document.num_sentences)} sentences, "
        f"{format_count(document.num_tokens)} tokens{unknown}"
    )
    for number, sentence in enumerate(document.sentences, start=1):
        yield _cut(f"  {number}  {' '.join(sentence.text.split())}")
        yield click.style(_cut(f"     {' '.join(sentence.tokens)}"), dim=True)
    if document.num_sentences > len(document.sentences):
        yield "  …"
    yield ""


def _document_as_json(document: PreviewedDocument) -> dict[str, Any]:
    return {
        **vars(document),
        "sentences": [
            {"text": sentence.text, "tokens": list(sentence.tokens)} for sentence in document.sentences
        ],
    }


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"
