"""`clozeline next-sentence`: judge whether one sentence follows another."""

from __future__ import annotations

import click

from workflows import options as shared
from workflows.terminal import Terminal, format_share


@click.command(name="next-sentence", cls=shared.ClozelineCommand)
@click.argument("first")
@click.argument("second")
@shared.checkpoint_option
@shared.device_option
def command(first: str, second: str, checkpoint: str, device: str, as_json: bool) -> None:
    """Judge whether one sentence follows another.

    Prints the probability that SECOND is what comes after FIRST.
    """
    from tokenizers import Tokenizer

    from trainer.checkpoints import load_checkpoint
    from trainer.prediction import next_sentence_probability

    loaded = load_checkpoint(checkpoint, device)
    tokenizer = Tokenizer.from_str(loaded.tokenizer_json)
    probability = next_sentence_probability(
        loaded.model, tokenizer, first, second, max_seq_length=loaded.max_seq_length
    )
    summary = {
        "first": first,
        "second": second,
        "is_next_probability": probability,
        "label": "IsNext" if probability >= 0.5 else "NotNext",
        "checkpoint": loaded.path,
    }
    lines = [
        ("judgement", str(summary["label"])),
        ("probability", f"{format_share(probability)} that it follows"),
    ]
    Terminal(as_json=as_json).finish(summary, lines, "")
