from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from workflows.cli import main
from workflows.following import train_command, train_prepared
from workflows.recipe import RECIPE_META


@pytest.mark.parametrize(
    ("num_examples", "num_tokens", "expected"),
    [
        (79_086, 9_570_219, "--model mini --steps 10000"),
        (0, 0, "--model mini --steps 1000"),
        (912, 110_475, "--model mini --steps 1000"),
        (2_000_000, 250_000_000, "--model small --steps 300000"),
        (5_000_000, 600_000_000, "--model medium --steps 800000"),
        (90_000_000, 9_000_000_000, "--model base --steps 1000000"),
    ],
)
def test_a_first_training_fits_the_data(num_examples: int, num_tokens: int, expected: str) -> None:
    command = train_command("my data/", "run/", num_examples, num_tokens)
    assert command == f"clozeline train --data 'my data/' {expected} --output run/"


def test_vocab_hands_on_how_the_text_is_read(tmp_path: Path) -> None:
    text = tmp_path / "a.jsonl"
    text.write_text('{"body": "the cat sat on the mat"}\n{"body": "the cat purred"}\n')
    output = str(tmp_path / "tokenizer")
    source = ["--input", str(text), "--text-field", "body", "--format", "jsonl"]
    options = ["--vocab-size", "60", "--workers", "1", "--debug", "--output", output]
    result = CliRunner().invoke(main, ["vocab", *source, *options])
    assert result.exit_code == 0, result.output
    following = result.stdout.splitlines()[-1]
    assert following == (
        f"Next: clozeline ingest --input {text} --format jsonl --text-field body "
        f"--tokenizer {output} --output corpus/"
    )


def test_preview_hands_on_with_debug(made: Path) -> None:
    source = ["--input", str(made / "texts.jsonl"), "--tokenizer", str(made / "tokenizer")]
    result = CliRunner().invoke(main, ["preview", *source, "--debug"])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == (f"Next: clozeline ingest {' '.join(source)} --output corpus/")


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ("bert-base-phase1", "clozeline train --recipe bert-base-phase1 --data a/dataset --output a/run"),
        ("quickstart", "clozeline train --data a/dataset --model mini --steps 1000 --output a/run"),
        (None, "clozeline train --data a/dataset --model mini --steps 1000 --output a/run"),
    ],
)
def test_a_recipe_that_says_how_long_to_train_is_followed(recipe: str | None, expected: str) -> None:
    with click.Context(click.Command("prepare")) as ctx:
        if recipe is not None:
            ctx.meta[RECIPE_META] = recipe
        assert train_prepared(ctx, "a", 912, 110_475) == expected
