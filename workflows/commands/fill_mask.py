"""`clozeline fill-mask`: let a trained model fill each [MASK] of a text."""

from __future__ import annotations

from typing import Any

import click

from workflows import options as shared
from workflows.terminal import Terminal


@click.command(name="fill-mask", cls=shared.ClozelineCommand)
@click.argument("texts", metavar="TEXT...", nargs=-1, required=True)
@shared.checkpoint_option
@click.option(
    "--top-k", type=click.IntRange(min=1), default=5, show_default=True, help="Candidates of each [MASK]."
)
@shared.device_option
def command(texts: tuple[str, ...], checkpoint: str, top_k: int, device: str, as_json: bool) -> None:
    """Let a trained model fill each [MASK] of a text."""
    from tokenizers import Tokenizer

    from trainer.checkpoints import load_checkpoint
    from trainer.prediction import fill_mask

    loaded = load_checkpoint(checkpoint, device)
    tokenizer = Tokenizer.from_str(loaded.tokenizer_json)
    filled = [
        fill_mask(loaded.model, tokenizer, text, top_k, max_seq_length=loaded.max_seq_length)
        for text in texts
    ]
    summary = {
        "checkpoint": loaded.path,
        "texts": [
            {
                "text": text,
                "filled": result.text,
                "gaps": [[vars(word) for word in gap] for gap in result.gaps],
            }
            for text, result in zip(texts, filled, strict=True)
        ],
    }
    lines: list[tuple[str, Any]] = []
    for result in filled:
        lines.append((result.text, ""))
        lines += [
            (f"[MASK] {number}", "  ".join(f"{word.word} {word.probability:.1%}" for word in gap))
            for number, gap in enumerate(result.gaps, start=1)
        ]
    Terminal(as_json=as_json).finish(summary, lines, "")
