from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tokenizers import Tokenizer, models, normalizers

from pipelines.tokenizer_files import bert_tokenizer, load_tokenizer
from pipelines.vocabulary import run_vocab
from pipelines.vocabulary_extension import extend_tokenizer, open_base
from schemas.configs import VocabConfig
from schemas.errors import UsageError
from workflows.cli import main

TOKENS = [
    *("[PAD]", "[unused0]", "[unused1]", "[unused2]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("the", "gene", "kin", "ase", "##s", "##ase", "p", "5", "##3"),
]


def write_base(folder: Path, tokens: list[str] = TOKENS, **rules: Any) -> Path:
    folder.mkdir()
    tokenizer = bert_tokenizer({token: index for index, token in enumerate(tokens)}, **rules)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_base(tmp_path / "base")


def tokens_of(tokenizer: Tokenizer) -> list[str]:
    ids = tokenizer.get_vocab()
    return sorted(ids, key=ids.__getitem__)


def test_the_most_frequent_words_that_are_cut_fill_the_slots_in_their_order(base: Path) -> None:
    """`gene` is whole, `the` too; `kinase` is kin + ##ase, `genes` gene + ##s, `tumor` unknown."""
    counts = {"the": 99, "gene": 50, "kinase": 7, "Kinase": 3, "genes": 12, "tumor": 12, "p53": 9, "rare": 1}
    tokenizer, num_new_words = extend_tokenizer(counts, open_base(str(base)))
    # genes and tumor 12 times each, by code point; kinase 7 + 3 times, before p53.
    assert tokens_of(tokenizer) == ["[PAD]", "genes", "tumor", "kinase", *TOKENS[4:]]
    assert num_new_words == 3
    encoding = tokenizer.encode("The kinase genes p53", add_special_tokens=False)
    assert encoding.tokens == ["the", "kinase", "genes", "[UNK]"]


def test_fewer_words_leave_slots_free(base: Path) -> None:
    counts = {"kinase": 7, "genes": 3, "tumor": 2}
    for options, words in (
        ({"max_new_words": 1}, ["kinase", "[unused1]", "[unused2]"]),
        ({"min_frequency": 3}, ["kinase", "genes", "[unused2]"]),
        ({"min_frequency": 8}, ["[unused0]", "[unused1]", "[unused2]"]),
    ):
        tokenizer, num_new_words = extend_tokenizer(counts, open_base(str(base)), **options)
        assert tokens_of(tokenizer)[1:4] == words
        assert num_new_words == sum(not word.startswith("[") for word in words)


def test_slots_that_are_added_tokens_become_words_like_any_other(tmp_path: Path, base: Path) -> None:
    tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
    tokenizer.add_special_tokens(["[unused0]", "[unused1]"])
    tokenizer.save(str(base / "tokenizer.json"))
    extended, _ = extend_tokenizer({"kinase": 2}, open_base(str(base)))
    assert extended.encode("kinases kinase", add_special_tokens=False).tokens == ["kinase", "##s", "kinase"]
    assert [token["content"] for token in json.loads(extended.to_str())["added_tokens"]] == [
        *("[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    ]


def test_the_rules_of_the_base_are_kept(tmp_path: Path) -> None:
    cased = write_base(tmp_path / "cased", lowercase=False)
    tokenizer, _ = extend_tokenizer({"Kinase": 3, "kinase": 2}, open_base(str(cased)))
    assert tokens_of(tokenizer)[1:4] == ["Kinase", "kinase", "[unused2]"]


@pytest.mark.parametrize("kind", ["no slot", "no WordPiece", "other rules", "a gap"])
def test_what_can_not_be_extended_is_refused(kind: str, tmp_path: Path, base: Path) -> None:
    tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
    message = "is no BERT tokenizer"
    if kind == "no slot":
        tokenizer = bert_tokenizer({token: index for index, token in enumerate(TOKENS[4:] + TOKENS[:1])})
        message = r"has no \[unused…\] entries left"
    if kind == "no WordPiece":
        tokenizer.model = models.WordLevel({token: i for i, token in enumerate(TOKENS)}, unk_token="[UNK]")
    if kind == "other rules":
        tokenizer.normalizer = normalizers.Lowercase()
    if kind == "a gap":
        tokenizer = bert_tokenizer({token: 2 * index for index, token in enumerate(TOKENS)})
    tokenizer.save(str(base / "tokenizer.json"))
    with pytest.raises(UsageError, match=message) as failure:
        open_base(str(base))
    assert len(str(failure.value).splitlines()) == 2


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    texts = ["The kinase genes, the gene.", "Kinase; kinase (p53)", "tumor genes"]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts * 5))
    return path


def test_the_job_writes_a_tokenizer_that_is_found_done_again(
    corpus: Path, base: Path, tmp_path: Path
) -> None:
    output = tmp_path / "extended"
    config = VocabConfig(inputs=(str(corpus),), extend=str(base), min_frequency=6)
    summary = run_vocab(config, str(output), workers=1)
    assert (summary.num_new_words, summary.vocab_size) == (2, len(TOKENS))
    tokenizer, record, content = load_tokenizer(str(output))
    assert tokens_of(tokenizer) == ["[PAD]", "kinase", "genes", *TOKENS[3:]]
    assert (output / "vocab.txt").read_text().split() == tokens_of(tokenizer)
    assert (output / "tokenizer.json").read_bytes() == content
    assert summary.sha256 == record.sha256
    by_lines, _, _ = load_tokenizer(str(output / "vocab.txt"))
    assert by_lines.to_str() == tokenizer.to_str()
    assert run_vocab(config, str(output), workers=1) == summary
    write_base(tmp_path / "other", [*TOKENS, "##z"]).joinpath("tokenizer.json").replace(
        base / "tokenizer.json"
    )
    with pytest.raises(UsageError, match="extended_sha256 was"):
        run_vocab(config, str(output), workers=1)


def test_transformers_opens_it_with_the_same_ids(corpus: Path, base: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    output = tmp_path / "extended"
    run_vocab(VocabConfig(inputs=(str(corpus),), extend=str(base)), str(output), workers=1)
    ours = Tokenizer.from_file(str(output / "tokenizer.json"))
    theirs = AutoTokenizer.from_pretrained(str(output))
    for text in ("The kinases, kinase.", "p53 genes [unused2]"):
        assert theirs(text)["input_ids"] == ours.encode(text).ids


def test_a_number_of_new_words_without_a_base_is_refused(corpus: Path, tmp_path: Path) -> None:
    arguments = ["vocab", "--input", str(corpus), "--output", str(tmp_path / "out"), "--max-new-words", "5"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "--max-new-words belongs to --extend" in result.stderr


def test_sizes_typed_beside_extend_are_refused(corpus: Path, base: Path, tmp_path: Path) -> None:
    arguments = ["vocab", "--input", str(corpus), "--output", str(tmp_path / "out"), "--extend", str(base)]
    result = CliRunner().invoke(main, [*arguments, "--vocab-size", "100", "--cased"])
    assert result.exit_code == 2
    assert (
        f"--extend keeps the size and the rules of {base}; leave out --vocab-size, --lowercase"
        in result.stderr
    )
