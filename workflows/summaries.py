"""The closing summaries as a person reads them: from the dictionaries of `--json` to (label, value) lines."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from workflows.dataset_statistics import FIRST_LABEL
from workflows.terminal import format_count, format_seconds, format_share

Lines = list[tuple[str, str]]


def vocab_lines(summary: Mapping[str, Any]) -> Lines:
    """Lines for a vocabulary."""
    new_words = summary.get("num_new_words")
    extension = "" if new_words is None else f", {format_count(new_words)} of them new words"
    sample = f"{format_count(summary['num_documents'])} documents, {_megabytes(summary['num_text_bytes'])}"
    least = summary.get("exhausted_at_min_frequency")
    fewer = "" if least is None else f"; the text gives no more at --min-frequency {least}"
    num_rejected = summary.get("num_rejected", 0)
    rejected = f"{format_count(num_rejected)} documents, empty or unreadable" if num_rejected else ""
    return [
        ("sample", f"{format_share(summary['sampled_share'])} of the text: {sample}"),
        *([("rejected", rejected)] if rejected else []),
        ("vocabulary", f"{format_count(summary['vocab_size'])} entries{extension}{fewer}"),
        ("time", _time(summary, None)),
        ("output", str(summary["output"])),
    ]


def ingest_lines(summary: Mapping[str, Any]) -> Lines:
    """Lines for a corpus, with the rejected documents by their reason."""
    rejected = ", ".join(f"{reason} {format_count(n)}" for reason, n in summary["rejected"].items() if n)
    read, kept = format_count(summary["num_documents_read"]), format_count(summary["num_documents"])
    num_files = summary["num_input_files"]
    files = f"{format_count(num_files)} file{'s' if num_files != 1 else ''}"
    return [
        (
            "input",
            f"{files}, {_megabytes(summary['num_input_bytes'])}",
        ),
        ("documents", f"{read} read, {kept} kept, {format_count(summary['num_rejected'])} rejected"),
        *(
            [("rejected", f"{rejected} (see {str(summary['output']).rstrip('/')}/rejects/)")]
            if rejected
            else []
        ),
        ("sentences", format_count(summary["num_sentences"])),
        ("tokens", format_count(summary["num_tokens"])),
        ("time", _time(summary, "of input")),
        ("output", str(summary["output"])),
    ]


def dataset_lines(summary: Mapping[str, Any]) -> Lines:
    """Lines for what a dataset holds."""
    by_split = ", ".join(
        f"{format_count(n)} {split}" for split, n in summary["num_examples_by_split"].items()
    )
    lines = [
        ("examples", f"{format_count(summary['num_examples'])} ({by_split})"),
        ("tokens", format_count(summary["num_tokens"])),
        ("shards", f"{summary['num_shards']}, {_megabytes(summary['size_bytes'])}"),
    ]
    if summary["num_documents_unused"]:
        lines.append(("unused", f"{format_count(summary['num_documents_unused'])} documents"))
    return [*lines, *share_lines(summary)]


def share_lines(summary: Mapping[str, Any]) -> Lines:
    """Lines for what pairing and masking came out with; none where nothing was drawn."""
    lines = []
    if summary["is_next_share"] is not None:
        lines.append((FIRST_LABEL[summary["objective"]], format_share(summary["is_next_share"])))
    if summary["mask_share"] is not None:
        shares = (
            f"{format_share(summary[f'{fate}_share'])} {name}"
            for fate, name in (("mask", "[MASK]"), ("random", "random"), ("kept", "kept"))
        )
        lines.append(("masking", f"{format_share(summary['chosen_share'])} of tokens: {', '.join(shares)}"))
    return lines


def build_lines(summary: Mapping[str, Any]) -> Lines:
    """Lines for a dataset that was built."""
    return [
        *dataset_lines(summary),
        ("time", _time(summary, "of shards")),
        ("output", str(summary["output"])),
    ]


def train_lines(summary: Mapping[str, Any]) -> Lines:
    """Lines for a training run."""
    losses = [
        f"{name} {summary[field]:.3f}"
        for name, field in (("masked LM", "masked_lm_loss"), ("next sentence", "next_sentence_loss"))
        if summary[field] is not None
    ]
    seen = f"{format_count(summary['num_examples'])} examples, {format_count(summary['num_tokens'])} tokens"
    resumed = summary["resumed_from_step"]
    if summary["already_done"]:
        steps = f"{format_count(summary['steps'])}, found done"
    else:
        steps = format_count(summary["steps"]) + (
            f", resumed from {format_count(resumed)}" if resumed else ""
        )
    time = f"{format_seconds(summary['seconds'])}, {format_count(summary['tokens_per_second'])} tokens/s"
    held_out = summary.get("last_evaluation")
    return [
        ("model", f"{format_count(summary['num_parameters'])} parameters, {summary['precision']}"),
        ("steps", steps),
        ("seen", seen),
        ("passes", _passes(summary["data"], summary["passes"])),
        *([("loss", ", ".join(losses))] if losses else []),
        *([("held out", evaluation_lines(held_out)[0][1])] if held_out else []),
        ("time", time),
        ("checkpoint", str(summary["checkpoint"])),
    ]


def evaluation_lines(result: Mapping[str, Any]) -> Lines:
    """Lines for an evaluation."""
    lines = [
        (
            "masked LM",
            f"loss {result['masked_lm_loss']:.3f}, perplexity {result['perplexity']:.1f}, "
            f"accuracy {format_share(result['masked_lm_accuracy'])}",
        )
    ]
    if result["next_sentence_accuracy"] is not None:
        lines.append(
            (
                "next sentence",
                f"loss {result['next_sentence_loss']:.3f}, "
                f"accuracy {format_share(result['next_sentence_accuracy'])}",
            )
        )
    num_examples, num_masked = result["num_examples"], result["num_masked_tokens"]
    return [
        *lines,
        ("on", f"{format_count(num_examples)} examples, {format_count(num_masked)} masked tokens"),
    ]


def command_line(*words: str) -> str:
    """A command to type, quoted as a shell wants it."""
    return shlex.join(["clozeline", *words])


def with_heading(heading: str, lines: Sequence[tuple[str, str]]) -> Lines:
    """The lines of one stage under its name."""
    return [(heading, ""), *lines]


def _passes(data: Sequence[str], passes: Sequence[float]) -> str:
    from trainer.data_passes import format_passes

    numbers = [format_passes(count) for count in passes]
    if len(data) == 1:
        return f"{numbers[0]} over the data"
    return ", ".join(f"{number} over {url}" for url, number in zip(data, numbers, strict=True))


def _time(summary: Mapping[str, Any], rate_of: str | None) -> str:
    if summary.get("already_done"):
        return "found done"
    rate = summary.get("megabytes_per_second")
    tail = f", {rate:.1f} MB/s {rate_of}" if rate_of and rate is not None else ""
    return format_seconds(summary["seconds"]) + tail


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.1f} MB" if num_bytes >= 100_000 else f"{num_bytes / 1e3:,.1f} kB"
