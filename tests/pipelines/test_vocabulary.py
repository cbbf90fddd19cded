import gzip
import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from pipelines.tokenizer_files import load_tokenizer
from pipelines.vocabulary import VocabSummary, run_vocab
from pipelines.work_folder import WorkFolder
from schemas.configs import VocabConfig
from schemas.errors import ClozelineError, UsageError

NAMES = ["tokenizer.json", "tokenizer_config.json", "vocab.txt"]
SENTENCES = [
    "The cat sat on the mat, and it purred softly.",
    "A [MASK] in a document is text; so are [SEP] and [CLS].",
    "Na\u00efve caf\u00e9s serve \u201cquoted\u201d cr\u00e8me br\u00fbl\u00e9e \u2014 often.",
    "\u4e2d\u6587 characters and 1,000.5 numbers\u2026",
]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    documents = [{"text": f"{SENTENCES[index % 4]} Number{index}."} for index in range(400)]
    for part in range(4):
        lines = "".join(json.dumps(document) + "\n" for document in documents[part::4])
        if part == 3:
            (folder / f"{part}.jsonl.gz").write_bytes(gzip.compress((lines + '{"no": "text"}\n').encode()))
        else:
            (folder / f"{part}.jsonl").write_text(lines)
    return folder


def make_config(corpus: Path, **changes: object) -> VocabConfig:
    return VocabConfig.model_validate({"inputs": (f"{corpus}/*",), "vocab_size": 180, **changes})


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def run(config: VocabConfig, output: Path, **options: object) -> VocabSummary:
    return run_vocab(config, str(output), **{"workers": 1, **options})  # type: ignore[arg-type]


def test_writes_a_tokenizer_folder(corpus: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    output = tmp_path / "tokenizer"
    summary = run(make_config(corpus, num_unused=3), output, progress=lambda *at: seen.append(at))
    assert sorted(content_of(output)) == NAMES
    assert (summary.num_documents, summary.num_rejected, summary.output) == (400, 1, str(output))
    assert summary.vocab_size == 180
    assert summary.sampled_share == 1.0
    tokenizer, record, content = load_tokenizer(str(output))
    assert (output / "tokenizer.json").read_bytes() == content
    assert summary.sha256 == record.sha256
    assert record.vocab_size == 180
    assert record.special_ids == (0, 4, 5, 6, 7)
    tokens = (output / "vocab.txt").read_text().splitlines()
    assert [tokenizer.id_to_token(index) for index in range(180)] == tokens
    assert tokens[:8] == ["[PAD]", "[unused0]", "[unused1]", "[unused2]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert {"cat", "mask", "cafes", "\u4e2d", "\u2014"} <= set(tokens)
    assert seen[-1][0] == seen[-1][1] > 0


def test_special_tokens_in_documents_are_text(corpus: Path, tmp_path: Path) -> None:
    run(make_config(corpus), tmp_path / "tokenizer")
    tokenizer, _, _ = load_tokenizer(str(tmp_path / "tokenizer"))
    tokenizer.encode_special_tokens = True
    assert tokenizer.encode("A [MASK]", add_special_tokens=False).tokens == ["a", "[", "mask", "]"]


def test_workers_and_order_of_inputs_change_no_byte(corpus: Path, tmp_path: Path) -> None:
    names = [str(corpus / f"{part}.jsonl") for part in range(3)]
    first, second = tmp_path / "first", tmp_path / "second"
    run(make_config(corpus, inputs=tuple(names)), first)
    run(make_config(corpus, inputs=tuple(names[::-1])), second, workers=2)
    assert content_of(first) == content_of(second)


def test_the_settings_are_those_asked_for(corpus: Path, tmp_path: Path) -> None:
    run(make_config(corpus, lowercase=False, strip_accents=False), tmp_path / "cased")
    tokenizer, _, _ = load_tokenizer(str(tmp_path / "cased"))
    assert tokenizer.encode("The caf\u00e9s", add_special_tokens=False).tokens == ["The", "caf\u00e9s"]
    by_vocabulary, _, _ = load_tokenizer(str(tmp_path / "cased" / "vocab.txt"))
    assert by_vocabulary.to_str() == tokenizer.to_str()


@pytest.mark.parametrize("settings", [{}, {"lowercase": False}, {"strip_accents": False}], ids=str)
def test_transformers_opens_it_with_the_same_ids(
    corpus: Path, tmp_path: Path, settings: dict[str, bool]
) -> None:
    from transformers import AutoTokenizer

    run(make_config(corpus, **settings), tmp_path / "tokenizer")
    ours = Tokenizer.from_file(str(tmp_path / "tokenizer" / "tokenizer.json"))
    theirs = AutoTokenizer.from_pretrained(str(tmp_path / "tokenizer"))
    for sentence in SENTENCES:
        encoding = ours.encode(sentence, "It purred.")
        found = theirs(sentence, "It purred.")
        assert found["input_ids"] == encoding.ids
        assert found["token_type_ids"] == encoding.type_ids
    assert (theirs.mask_token, theirs.mask_token_id) == ("[MASK]", ours.token_to_id("[MASK]"))
    assert len(theirs) == 180


def test_a_second_run_finds_it_done(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "tokenizer"
    summary = run(make_config(corpus), output)
    times = {path: path.stat().st_mtime_ns for path in output.iterdir()}
    assert run(make_config(corpus), output) == summary
    assert {path: path.stat().st_mtime_ns for path in output.iterdir()} == times


def test_a_run_that_ended_before_its_commit_is_gone_on_with(corpus: Path, tmp_path: Path) -> None:
    whole, output = tmp_path / "whole", tmp_path / "tokenizer"
    run(make_config(corpus), whole)
    work = WorkFolder(str(output))

    def stop(done: int, total: int) -> None:
        if done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(make_config(corpus), output, progress=stop)
    assert not (output / "tokenizer.json").exists()
    finished = work.finished_names()
    sidecars = {name: (output / "_work" / f"{name}.json").stat().st_mtime_ns for name in finished}
    assert sidecars
    with pytest.raises(UsageError, match="unfinished work with another configuration"):
        run(make_config(corpus, vocab_size=100), output)
    seen: list[dict[str, int]] = []
    run(
        make_config(corpus),
        output,
        progress=lambda *_: seen.append(
            {name: (output / "_work" / f"{name}.json").stat().st_mtime_ns for name in finished}
        ),
    )
    assert seen[-1] == sidecars
    assert content_of(output) == content_of(whole)


def test_what_was_left_after_the_commit_is_removed(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "tokenizer"
    run(make_config(corpus), output)
    (output / "_work").mkdir()
    run(make_config(corpus), output)
    assert sorted(content_of(output)) == NAMES


def test_a_vocabulary_full_of_reserved_entries_is_refused(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no room for words: 105 entries are reserved"):
        run(make_config(corpus, vocab_size=100, num_unused=100), tmp_path / "tokenizer")


def test_another_configuration_is_refused_unless_overwritten(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "tokenizer"
    run(make_config(corpus), output)
    with pytest.raises(UsageError, match=r"config\.vocab_size was 180, is now 100\n.*--overwrite"):
        run(make_config(corpus, vocab_size=100), output)
    assert run(make_config(corpus, vocab_size=100), output, overwrite=True).vocab_size == 100
    assert sorted(content_of(output)) == NAMES


def test_another_seed_in_a_prepared_folder_is_told_to_take_the_corpus(corpus: Path, tmp_path: Path) -> None:
    config, tokenizer = make_config(corpus), tmp_path / "all" / "tokenizer"
    run(config, tokenizer)
    (tmp_path / "all" / "corpus").mkdir()
    with pytest.raises(UsageError, match=r"prepare --corpus \S+/all/corpus --seed 8 --output NEW`\. Choose"):
        run(config.model_copy(update={"seed": 8}), tokenizer)
    other = config.model_copy(update={"seed": 8, "min_frequency": config.min_frequency + 1})
    with pytest.raises(UsageError, match=r"\nChoose another --output"):
        run(other, tokenizer)


def test_a_foreign_tokenizer_is_not_replaced(corpus: Path, tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    (tmp_path / "tokenizer").mkdir()
    tiny_tokenizer.save(str(tmp_path / "tokenizer" / "tokenizer.json"))
    with pytest.raises(UsageError, match="did not make"):
        run(make_config(corpus), tmp_path / "tokenizer")


def test_a_sample_is_smaller_and_depends_on_the_seed(corpus: Path, tmp_path: Path) -> None:
    size = sum(path.stat().st_size for path in corpus.glob("*.jsonl"))
    inputs = (f"{corpus}/*.jsonl",)
    config = make_config(corpus, inputs=inputs, sample_bytes=size // 4, seed=1)
    first = run(config, tmp_path / "first")
    run(config, tmp_path / "again")
    run(config.model_copy(update={"seed": 2}), tmp_path / "other")
    # 300 documents, a quarter of them: 7.5 is a standard deviation.
    assert abs(first.num_documents - 75) < 5 * 7.5
    assert first.num_text_bytes < size // 2
    all_bytes = sum(
        len(json.loads(line)["text"].encode())
        for path in corpus.glob("*.jsonl")
        for line in path.read_text().splitlines()
    )
    assert first.sampled_share == first.num_text_bytes / all_bytes
    assert content_of(tmp_path / "first") == content_of(tmp_path / "again")
    assert content_of(tmp_path / "first") != content_of(tmp_path / "other")


def test_no_words_is_an_error_that_says_why(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"body": "the cat"}\n{"text": ""}\n')
    with pytest.raises(ClozelineError, match=r"no words to learn from: .* 2 rejected") as failure:
        run(VocabConfig(inputs=(str(tmp_path / "in.jsonl"),)), tmp_path / "tokenizer")
    assert len(str(failure.value).splitlines()) == 2
    assert not (tmp_path / "tokenizer" / "tokenizer.json").exists()


def test_a_missing_input_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="matches no file"):
        run(VocabConfig(inputs=(str(tmp_path / "*.jsonl"),)), tmp_path / "tokenizer")
    assert not (tmp_path / "tokenizer").exists()
