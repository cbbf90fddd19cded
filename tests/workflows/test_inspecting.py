import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from schemas.errors import UsageError
from trainer.data.dataset import open_dataset
from workflows.cli import main
from workflows.inspecting import MaskedToken, ReadableExample, describe_example, read_examples

WORKED = ReadableExample(
    shard="train-00000-of-00001.tar",
    number=4,
    tokens=["[CLS]", "the", "[MASK]", "sat", "on", "the", "mat", "[SEP]", "it", "purred", "softly", "[SEP]"],
    segment_a_length=8,
    masked=[MaskedToken(2, "[MASK]", "cat"), MaskedToken(9, "purred", "purred")],
    label="IsNext",
)


def _plain(lines: list[str]) -> list[str]:
    import click

    return [click.unstyle(line) for line in lines]


def test_the_worked_example() -> None:
    assert _plain(describe_example(WORKED)) == [
        "train-00000-of-00001.tar example 4  IsNext  12 tokens, 2 chosen",
        "  A  the {[MASK] <- cat} sat on the mat",
        "  B  it {purred kept} softly",
    ]


def test_a_random_replacement_and_one_segment() -> None:
    example = ReadableExample(
        "s.tar", 0, ["[CLS]", "the", "dog", "[SEP]"], 4, [MaskedToken(2, "dog", "cat")], None
    )
    assert _plain(describe_example(example)) == [
        "s.tar example 0  4 tokens, 1 chosen",
        "  A  the {dog <- cat}",
    ]


def test_no_line_is_longer_than_the_terminal() -> None:
    assert _plain(describe_example(WORKED, 30))[1:] == [
        "  A  the {[MASK] <- cat} sat",
        "     on the mat",
        "  B  it {purred kept} softly",
    ]
    wide = ReadableExample("s.tar", 0, ["[CLS]", "日本", "語語", "a", "[SEP]"], 5, [], None)
    assert _plain(describe_example(wide, 14))[1:] == ["  A  日本 語語", "     a"]


def test_colours_on_a_terminal_only() -> None:
    assert "\x1b[" in describe_example(WORKED)[1]
    assert "\x1b[" not in _plain(describe_example(WORKED))[1]


def test_examples_of_a_dataset(made: Path) -> None:
    examples = read_examples(open_dataset(str(made / "dataset")), "train", 20)
    assert [example.number for example in examples] == list(range(20))
    for example in examples:
        assert example.tokens[0] == "[CLS]"
        assert example.tokens[-1] == example.tokens[example.segment_a_length - 1] == "[SEP]"
        assert example.label in ("IsNext", "NotNext")
        assert example.masked
        assert all(example.tokens[token.position] == token.stands for token in example.masked)


def test_first_counts_over_blocks_and_ends_at_the_split_s_end(made: Path) -> None:
    dataset = open_dataset(str(made / "dataset"))
    num_examples = sum(shard.num_examples for shard in dataset.manifest.shards_of("train"))
    everything = read_examples(dataset, "train", num_examples + 5)
    assert len(everything) == num_examples
    assert read_examples(dataset, "train", 3, first=15) == everything[15:18]
    assert read_examples(dataset, "train", 3, first=num_examples - 1) == everything[-1:]
    assert read_examples(dataset, "train", 3, first=num_examples) == []


def test_the_command_shows_examples_and_a_summary(made: Path) -> None:
    result = CliRunner().invoke(main, ["inspect", str(made / "dataset"), "--examples", "2"])
    assert result.exit_code == 0
    assert result.stdout.count("\n  A  ") == 2
    assert "Next: clozeline verify" in result.stdout
    assert "\x1b[" not in result.stdout


def test_a_first_example_after_the_last_is_a_usage_error(made: Path) -> None:
    dataset = made / "dataset"
    held_out = sum(
        shard.num_examples for shard in open_dataset(str(dataset)).manifest.shards_of("validation")
    )
    arguments = ["inspect", str(dataset), "--split", "validation", "--first"]
    assert CliRunner().invoke(main, [*arguments, str(held_out - 1)]).stdout.count("\n  A  ") == 1
    result = CliRunner().invoke(main, [*arguments, str(held_out)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"validation has {held_out} examples" in result.stderr


def test_json(made: Path) -> None:
    result = CliRunner().invoke(main, ["inspect", str(made / "dataset"), "--split", "validation", "--json"])
    summary = json.loads(result.stdout)
    assert len(summary["examples"]) == 3
    assert set(summary["examples"][0]) == {"shard", "number", "label", "tokens", "segment_a_length", "masked"}
    assert summary["examples"][0]["shard"].startswith("validation-")


def test_no_such_dataset(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        open_dataset(str(tmp_path / "nothing"))
    result = CliRunner().invoke(main, ["inspect", str(tmp_path / "nothing")])
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 2)
