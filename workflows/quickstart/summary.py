"""What the quickstart ends with: what was read, made and learned, as a person reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workflows import summaries
from workflows.terminal import format_count, format_seconds, format_share


def quickstart_lines(results: Mapping[str, Any]) -> summaries.Lines:
    """The lines of the closing summary.

    Args:
        results: what `journey.travel` returned.
    """
    return [
        ("Text", ""),
        *_text_lines(results),
        ("Examples", ""),
        *summaries.build_lines(results["build"])[:-1],
        ("Learned", ""),
        *_learning_lines(results),
        ("Filled masks", ""),
        *[
            (
                entry["text"],
                ", ".join(f"{word['word']} {word['probability']:.0%}" for word in entry["words"][:4]),
            )
            for entry in results["fill_mask"]
        ],
        (f'After "{results["next_sentence"][0]["first"]}"', ""),
        *[
            (entry["second"], f"follows with {format_share(entry['is_next_probability'])}")
            for entry in results["next_sentence"]
        ],
        ("Where it lies", ""),
        *[(name, str(results[name]["output"])) for name in ("collect", "vocab", "ingest", "build", "train")],
        ("in all", format_seconds(results["seconds"])),
    ]


def next_command(folder: str) -> str:
    """What to type next, on text of one's own."""
    own_text = summaries.command_line("prepare", "--input", "my-texts/*.txt", "--output", "mine/")
    question = summaries.command_line("fill-mask", "--checkpoint", f"{folder}/run", "returns a new [MASK].")
    return f"{own_text}\n      {question}"


def _text_lines(results: Mapping[str, Any]) -> summaries.Lines:
    collected = results["collect"]
    left_out = ("input", "output", "time")
    ingest = [line for line in summaries.ingest_lines(results["ingest"]) if line[0] not in left_out]
    return [
        (
            "collected",
            f"{format_count(collected['num_documents'])} documents, "
            f"{collected['num_text_bytes'] / 1e6:.1f} MB "
            f"from {format_count(collected['num_files'])} Python files, "
            f"in {format_seconds(collected['seconds'])}",
        ),
        (
            "vocabulary",
            f"{format_count(results['vocab']['vocab_size'])} entries, in "
            f"{format_seconds(results['vocab']['seconds'])}",
        ),
        *ingest,
        ("ingest", _rate(results["ingest"])),
    ]


def _learning_lines(results: Mapping[str, Any]) -> summaries.Lines:
    train, after = results["train"], results["evaluate"]
    before, unigram = after["before"], after["unigram"]
    lines = [
        ("training", f"{format_count(train['steps'])} steps in {format_seconds(train['seconds'])}"),
        (
            "masked LM loss",
            f"{before['masked_lm_loss']:.3f} -> {after['masked_lm_loss']:.3f}   "
            f"(token frequencies alone: {unigram['masked_lm_loss']:.3f})",
        ),
        (
            "masked LM accuracy",
            f"{format_share(before['masked_lm_accuracy'])} -> {format_share(after['masked_lm_accuracy'])}   "
            f"(always the most frequent token: {format_share(unigram['masked_lm_accuracy'])})",
        ),
    ]
    if after["next_sentence_accuracy"] is not None:
        lines.append(
            (
                "next sentence",
                f"{format_share(before['next_sentence_accuracy'])} -> "
                f"{format_share(after['next_sentence_accuracy'])}   (guessing: 50.0%)",
            )
        )
    held_out = f"{format_count(after['num_examples'])} examples of documents never trained on"
    return [*lines, ("held out", held_out)]


def _rate(summary: Mapping[str, Any]) -> str:
    rate = summary["megabytes_per_second"]
    return format_seconds(summary["seconds"]) + (f", {rate:.1f} MB/s" if rate is not None else "")
