"""The page about a corpus.

In: an opened corpus and its sample. Out: a `Page`. Counts come from the manifest and are exact; lengths,
tokens and documents are the sample's, and say so.
"""

from __future__ import annotations

from schemas.manifests import SPLITS, CorpusManifest
from workflows.report.blocks import (
    Bar,
    BarTable,
    Example,
    ExampleList,
    Figure,
    FigureRow,
    Page,
    Part,
    Section,
    SideBySide,
    Strip,
    Table,
)
from workflows.report.charts import compact_count
from workflows.report.corpus_sample import CorpusSample
from workflows.report.length_tally import make_histogram
from workflows.report.opening import Corpus
from workflows.report.provenance import VERSIONS_RECORDED, describe_command, describe_config, page_versions
from workflows.report.token_section import make_token_section, percent
from workflows.report.token_spans import document_lines
from workflows.report.token_tally import Vocabulary
from workflows.terminal import format_bytes

_MEANINGS = {
    "empty": "no character but white space",
    "invalid_utf8": "bytes that are no UTF-8",
    "invalid_json": "a line that is no JSON object",
    "missing_text": "no text field, or one that is no string",
    "too_long": "longer than max_document_bytes",
    "no_tokens": "the tokenizer finds nothing in it",
    "duplicate": "the same text as another document",
}


def make_corpus_page(corpus: Corpus, title: str, vocabulary: Vocabulary, sample: CorpusSample) -> Page:
    """Arrange everything about a corpus."""
    manifest = corpus.manifest
    what_was_read = describe_reading(sample)
    return Page(
        kind="corpus report",
        title=title,
        location=corpus.url,
        figures=_headline(manifest),
        sections=(
            _document_section(manifest),
            _reject_section(manifest),
            _length_section(sample, what_was_read),
            make_token_section(sample.tokens, what_was_read),
            _example_section(sample, vocabulary),
            _provenance_section(manifest),
        ),
        footer=(f"Page made with {page_versions()}.",),
    )


def describe_reading(sample: CorpusSample) -> str:
    """What was read, in a sentence or two."""
    if sample.num_row_groups_read == sample.num_row_groups:
        return f"From all {sample.num_documents_read:,} documents."
    return (
        f"From a sample: {sample.num_documents_read:,} documents in {sample.num_row_groups_read:,} of "
        f"{sample.num_row_groups:,} row groups. The choice is the same every time."
    )


def _headline(manifest: CorpusManifest) -> tuple[Figure, ...]:
    return (
        Figure(
            "documents", compact_count(manifest.num_documents), f"kept of {manifest.num_documents_read:,}"
        ),
        Figure(
            "left out",
            percent(manifest.num_rejected, manifest.num_documents_read),
            f"{manifest.num_rejected:,} rejected",
        ),
        Figure("sentences", compact_count(manifest.num_sentences), f"{manifest.num_sentences:,}"),
        Figure("tokens", compact_count(manifest.num_tokens), f"{manifest.num_tokens:,}"),
        Figure("text", format_bytes(manifest.num_text_bytes), "kept, in UTF-8"),
        Figure("vocabulary", f"{manifest.tokenizer.vocab_size:,}", "entries"),
    )


def _document_section(manifest: CorpusManifest) -> Section:
    rows, parts = [], []
    for split in SPLITS:
        files = [file for file in manifest.files if file.split == split]
        groups = [group for file in files for group in file.row_groups]
        num_documents = sum(group.num_documents for group in groups)
        rows.append(
            (
                split,
                f"{num_documents:,}",
                f"{sum(group.num_sentences for group in groups):,}",
                f"{sum(group.num_tokens for group in groups):,}",
                f"{len(files):,}",
                format_bytes(sum(file.size_bytes for file in files)),
            )
        )
        share = num_documents / max(1, manifest.num_documents)
        parts.append(Part(split, share, "accent" if split == "train" else "contrast"))
    headings = ("Split", "Documents", "Sentences", "Tokens", "Files", "Size")
    sentences, tokens = max(1, manifest.num_sentences), max(1, manifest.num_tokens)
    ratios = FigureRow(
        (
            Figure("bytes a token", f"{manifest.num_text_bytes / tokens:.2f}", "of the text as it came in"),
            Figure("tokens a sentence", f"{manifest.num_tokens / sentences:.1f}", "on average"),
            Figure(
                "sentences a document",
                f"{manifest.num_sentences / max(1, manifest.num_documents):.1f}",
                "on average",
            ),
        )
    )
    lead = (
        f"{manifest.num_input_files:,} input file{'s' if manifest.num_input_files != 1 else ''} of "
        f"{format_bytes(manifest.num_input_bytes)} as stored. From the manifest, exact."
    )
    blocks = (
        Strip("Documents by split", tuple(parts)),
        Table("What each split holds", headings, tuple(rows)),
        ratios,
    )
    return Section("Documents", "documents", lead, blocks)


def _reject_section(manifest: CorpusManifest) -> Section:
    num_read = manifest.num_documents_read
    if not manifest.num_rejected:
        return Section("Left out", "rejects", f"Nothing: all {num_read:,} documents were kept.", ())
    reasons = sorted(
        ((count, reason) for reason, count in manifest.rejected.items() if count), key=lambda e: (-e[0], e[1])
    )
    bars = tuple(
        Bar(
            f"{reason} ({_MEANINGS[reason]})" if reason in _MEANINGS else reason,
            (f"{count:,}", percent(count, manifest.num_rejected), percent(count, num_read)),
            count / manifest.num_rejected,
            tone="random",
        )
        for count, reason in reasons
    )
    lead = (
        f"{manifest.num_rejected:,} of {num_read:,} documents, each listed in the folder rejects/ with its "
        f"reason. From the manifest, exact."
    )
    headings = ("Reason", "Documents", "Of those left out", "Of all read")
    return Section("Left out", "rejects", lead, (BarTable("Documents left out, by reason", headings, bars),))


def _length_section(sample: CorpusSample, what_was_read: str) -> Section:
    blocks = [
        make_histogram(caption, unit, tally)
        for caption, unit, tally in (
            ("Tokens a sentence", "tokens", sample.sentence_tokens),
            ("Tokens a document", "tokens", sample.document_tokens),
            ("Sentences a document", "sentences", sample.document_sentences),
        )
        if tally.num_things
    ]
    return Section("Lengths", "lengths", what_was_read, (*blocks[:1], SideBySide(tuple(blocks[1:]))))


def _example_section(sample: CorpusSample, vocabulary: Vocabulary) -> Section:
    shown = tuple(
        Example(
            heading=document.document_id,
            badge="",
            badge_tone="good",
            remark=f"{document.num_sentences:,} sentences, {document.num_tokens:,} tokens",
            lines=document_lines(document, vocabulary),
        )
        for document in sample.documents
    )
    lead = (
        f"{len(shown)} documents of the sample, sentence by sentence, as the tokenizer left them. Pieces of "
        f"a word are joined."
        if shown
        else "None were asked for."
    )
    return Section("Beginnings of documents", "examples", lead, (ExampleList(shown),) if shown else ())


def _provenance_section(manifest: CorpusManifest) -> Section:
    command = describe_command("ingest", manifest.config, {"tokenizer": "TOKENIZER", "output": "CORPUS"})
    origin = Table(
        "Versions and checksums",
        ("Field", "Value"),
        (
            ("made by", manifest.created_by),
            ("format", f"{manifest.format}, version {manifest.version}"),
            ("corpus fingerprint", manifest.fingerprint),
            ("tokenizer SHA-256", manifest.tokenizer.sha256),
        ),
        numeric=False,
    )
    lead = (
        f"From the same input and tokenizer, the same version makes the same bytes again. {VERSIONS_RECORDED}"
    )
    config = describe_config("Configuration", manifest.config)
    return Section("How it was made", "provenance", lead, (command, origin, config))
