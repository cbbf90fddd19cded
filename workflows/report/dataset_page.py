"""The page about a dataset.

In: an opened dataset, its sample and a few examples. Out: a `Page`. Counts and shares come from the manifest
and are exact; lengths and tokens are the sample's, and say so.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.masking import MASK_SHARE, RANDOM_SHARE
from schemas.manifests import SPLITS, ShardRecord
from trainer.data.dataset import Dataset
from workflows.dataset_statistics import summarize_shards
from workflows.inspecting import LABELS, ReadableExample
from workflows.report.blocks import (
    Bar,
    BarTable,
    Block,
    Command,
    Example,
    ExampleList,
    Figure,
    Page,
    Paragraph,
    Part,
    Section,
    SideBySide,
    Strip,
    Table,
    Tone,
)
from workflows.report.charts import compact_count
from workflows.report.dataset_sample import DatasetSample
from workflows.report.intervals import wilson_interval
from workflows.report.length_tally import make_histogram
from workflows.report.provenance import VERSIONS_RECORDED, describe_command, describe_config, page_versions
from workflows.report.token_section import make_token_section, percent
from workflows.report.token_spans import MASKING_LEGEND, example_lines
from workflows.report.token_tally import Vocabulary
from workflows.terminal import format_bytes

_INTERVAL_NOTE = (
    "The whisker is the 95% Wilson interval, as for independent draws; with many draws it is narrower than "
    "the line that draws it."
)


def make_dataset_page(
    dataset: Dataset,
    title: str,
    vocabulary: Vocabulary,
    sample: DatasetSample,
    examples: Sequence[ReadableExample],
) -> Page:
    """Arrange everything about a dataset."""
    manifest = dataset.manifest
    what_was_read = describe_reading(sample, len(manifest.shards))
    return Page(
        kind="dataset report",
        title=title,
        location=dataset.url,
        figures=_headline(dataset),
        sections=(
            _split_section(manifest.shards),
            _sequence_section(dataset, sample, what_was_read),
            _masking_section(dataset),
            _label_section(dataset),
            make_token_section(
                sample.tokens, f"{what_was_read} Tokens are counted as they stood before masking."
            ),
            _example_section(examples, vocabulary),
            _provenance_section(dataset),
        ),
        footer=(f"Page made with {page_versions()}.",),
    )


def describe_reading(sample: DatasetSample, num_shards: int) -> str:
    """What was read, in a sentence or two."""
    if sample.num_blocks_read == sample.num_blocks:
        return f"From all {sample.num_examples_read:,} examples."
    return (
        f"From a sample: {sample.num_examples_read:,} examples in {sample.num_blocks_read:,} of "
        f"{sample.num_blocks:,} blocks, out of {sample.num_shards_read:,} of {num_shards:,} shards. "
        f"The choice is the same every time."
    )


def _headline(dataset: Dataset) -> tuple[Figure, ...]:
    manifest = dataset.manifest
    figures = summarize_shards(manifest.shards)
    config = manifest.config
    mean = manifest.num_tokens / max(1, manifest.num_examples)
    return (
        Figure("examples", compact_count(manifest.num_examples), f"{manifest.num_examples:,}"),
        Figure("tokens", compact_count(manifest.num_tokens), f"{manifest.num_tokens:,}"),
        Figure("mean length", f"{mean:.1f}", f"tokens, {config.max_seq_length:,} at most"),
        Figure("masked", percent(figures["num_masked_tokens"], manifest.num_tokens), "of all tokens"),
        Figure("shards", f"{len(manifest.shards):,}", format_bytes(figures["size_bytes"])),
        Figure("vocabulary", f"{manifest.tokenizer.vocab_size:,}", "entries"),
    )


def _split_section(shards: Sequence[ShardRecord]) -> Section:
    rows = []
    for split in SPLITS:
        figures = summarize_shards([shard for shard in shards if shard.split == split])
        cells = ("num_examples", "num_tokens", "num_documents", "num_documents_unused", "num_shards")
        rows.append((split, *(f"{figures[cell]:,}" for cell in cells), format_bytes(figures["size_bytes"])))
    headings = ("Split", "Examples", "Tokens", "Documents", "Unused", "Shards", "Size")
    note = Paragraph(
        "A document is unused where no example could be made of it. Tokens include [CLS] and [SEP]."
    )
    return Section("Splits", "splits", "", (Table("Examples by split", headings, tuple(rows)), note))


def _sequence_section(dataset: Dataset, sample: DatasetSample, what_was_read: str) -> Section:
    manifest = dataset.manifest
    limit = manifest.config.max_seq_length
    fill = manifest.num_tokens / max(1, manifest.num_examples * limit)
    blocks: list[Block] = [
        Strip(
            f"Fill, were every example padded to {limit:,} tokens (exact)",
            (Part("tokens", fill, "accent"), Part("padding", 1 - fill, "quiet")),
        )
    ]
    segments = [("Tokens of segment A", sample.segment_a), ("Tokens of segment B", sample.segment_b)]
    if sample.num_examples_read:
        blocks.append(make_histogram("Tokens an example", "tokens", sample.lengths, limit))
    if sample.segment_b.num_things:
        blocks.append(SideBySide(tuple(make_histogram(name, "tokens", tally) for name, tally in segments)))
    full = sample.lengths.count_between(limit, limit + 1)
    lead = (
        f"{what_was_read} {percent(full, sample.num_examples_read)} of the examples have the greatest "
        f"length. The trainer pads only to the longest example of a batch."
    )
    return Section("Sequences", "sequences", lead, tuple(blocks))


def _masking_section(dataset: Dataset) -> Section:
    manifest = dataset.manifest
    records = [shard.masking for shard in manifest.shards]
    num_chosen = sum(record.num_chosen_tokens for record in records)
    num_maskable = sum(record.num_maskable_tokens for record in records)
    kinds: tuple[tuple[str, Tone, int, float], ...] = (
        ("[MASK]", "mask", sum(record.num_masked_tokens for record in records), MASK_SHARE),
        ("a random token", "random", sum(record.num_random_tokens for record in records), RANDOM_SHARE),
        (
            "left as it was",
            "kept",
            sum(record.num_kept_tokens for record in records),
            round(1 - MASK_SHARE - RANDOM_SHARE, 9),
        ),
    )
    bars = tuple(
        _share_bar(f"{label}, {expected:.0%} expected", count, num_chosen, tone, expected)
        for label, tone, count, expected in kinds
    )
    parts = tuple(Part(label, count / max(1, num_chosen), tone) for label, tone, count, _ in kinds)
    config = manifest.config
    unit = "whole words" if config.whole_word_mask else "single tokens"
    lead = (
        f"{num_chosen:,} of {num_maskable:,} tokens that could be chosen were: "
        f"{percent(num_chosen, num_maskable)}, asked for {config.masked_lm_prob:.1%} as {unit}, at least 1 "
        f"and at most {config.prediction_limit:,} an example. From the manifest, exact."
    )
    headings = ("A chosen token became", "Count", "Share", "95% interval")
    return Section(
        "Masking",
        "masking",
        lead,
        (
            Strip("What the chosen tokens became", parts),
            BarTable(
                "Chosen tokens",
                headings,
                bars,
                note=f"The tick marks the share that is expected. {_INTERVAL_NOTE}",
            ),
        ),
    )


def _label_section(dataset: Dataset) -> Section:
    manifest = dataset.manifest
    objective = manifest.config.objective
    if objective not in LABELS:
        return Section("Labels", "labels", "The objective is mlm: one segment an example, and no label.", ())
    blocks: list[Block] = []
    for split in SPLITS:
        shards = manifest.shards_of(split)
        counts = (sum(s.num_is_next for s in shards), sum(s.num_not_next for s in shards))
        if sum(counts):
            bars = tuple(
                _share_bar(label, count, sum(counts), tone)
                for label, count, tone in zip(LABELS[objective].values(), counts, _LABEL_TONES, strict=True)
            )
            headings = ("Label", "Count", "Share", "95% interval")
            blocks.append(BarTable(f"Labels, {split}", headings, bars))
    how = {
        "next-sentence": "IsNext: B follows A in its document. NotNext: B is from another document.",
        "sentence-order": "In order: B follows A in its document. Swapped: the two changed places.",
    }[objective]
    lead = (
        f"{how} From the manifest, exact. Balance is on: pairs are drawn so that halves come out, which "
        f"keeps the shares closer to one half than independent draws would be."
        if objective == "next-sentence" and manifest.config.next_sentence_balance
        else f"{how} From the manifest, exact."
    )
    return Section("Labels", "labels", lead, (*blocks, Paragraph(_INTERVAL_NOTE)))


_LABEL_TONES: tuple[Tone, Tone] = ("good", "contrast")


def _share_bar(label: str, count: int, total: int, tone: Tone, expected: float | None = None) -> Bar:
    interval = wilson_interval(count, total)
    share = count / max(1, total)
    between = f"{interval[0]:.2%} to {interval[1]:.2%}" if interval else "none"
    return Bar(label, (f"{count:,}", f"{share:.2%}", between), share, interval, expected, tone)


def _example_section(examples: Sequence[ReadableExample], vocabulary: Vocabulary) -> Section:
    shown = tuple(
        Example(
            heading=f"{example.shard}, example {example.number:,}",
            badge=example.label or "",
            badge_tone="contrast" if example.label in ("NotNext", "swapped") else "good",
            remark=f"{len(example.tokens):,} tokens, {len(example.masked):,} chosen",
            lines=example_lines(example, vocabulary),
        )
        for example in examples
    )
    lead = (
        f"The first {len(shown)} in stored order, which is random already. Pieces of a word are joined; "
        f"around marked ones they keep their ##."
        if shown
        else "None were asked for."
    )
    return Section("Examples", "examples", lead, (ExampleList(shown, MASKING_LEGEND),) if shown else ())


def _provenance_section(dataset: Dataset) -> Section:
    manifest = dataset.manifest
    command: Command = describe_command("build", manifest.config, {"corpus": "CORPUS", "output": "DATASET"})
    origin = Table(
        "Versions and checksums",
        ("Field", "Value"),
        (
            ("made by", manifest.created_by),
            ("format", f"{manifest.format}, version {manifest.version}"),
            ("corpus fingerprint", manifest.corpus_fingerprint),
            ("tokenizer SHA-256", manifest.tokenizer.sha256),
        ),
        numeric=False,
    )
    lead = (
        f"From a corpus of this fingerprint, the same version makes the same bytes again. {VERSIONS_RECORDED}"
    )
    config = describe_config("Configuration", manifest.config)
    return Section("How it was made", "provenance", lead, (command, origin, config))
