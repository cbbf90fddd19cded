from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.build import run_build
from pipelines.ingest import run_ingest
from pipelines.preview import SENTENCES_SHOWN, Preview, preview_documents
from schemas.configs import BuildConfig, IngestConfig
from schemas.errors import ClozelineError, UsageError

CAT = "The cat sat on the mat. It purred softly."
DOG = "The dog ran over the hill. She sang a song. It was good. No rain."


def _write(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"id": f"d{n}", "text": t}) + "\n" for n, t in enumerate(texts)))
    return path


def _preview(
    path: Path,
    tokenizer: Path,
    *,
    num_documents: int = 20,
    build: BuildConfig | None = None,
    **ingest: object,
) -> Preview:
    config = IngestConfig(inputs=(str(path),), **{"validation_fraction": 0.0, **ingest})
    return preview_documents(config, build or BuildConfig(), str(tokenizer), num_documents=num_documents)


def test_a_document_with_its_sentences_and_tokens(tmp_path: Path, tiny_tokenizer_path: Path) -> None:
    preview = _preview(_write(tmp_path / "a.jsonl", [CAT, DOG]), tiny_tokenizer_path)
    cat, dog = preview.documents
    assert (cat.document_id, cat.split, cat.num_sentences) == ("d0", "train", 2)
    assert (cat.num_tokens, cat.num_unknown) == (11, 0)
    assert [sentence.text for sentence in cat.sentences] == ["The cat sat on the mat.", "It purred softly."]
    assert cat.sentences[0].tokens == ("the", "cat", "sat", "on", "the", "mat", ".")
    assert cat.sentences[1].tokens == ("it", "purred", "softly", ".")
    assert (dog.num_sentences, len(dog.sentences)) == (4, SENTENCES_SHOWN)
    assert preview.num_input_files == 1
    assert preview.num_input_bytes == (tmp_path / "a.jsonl").stat().st_size


def test_counts_are_those_of_ingest_and_build(tmp_path: Path, tiny_tokenizer_path: Path) -> None:
    path = _write(tmp_path / "a.jsonl", [CAT, DOG, CAT + " One.", DOG + " Two.", "", CAT])
    build = BuildConfig(objective="mlm", short_seq_prob=0.0, max_seq_length=16)
    preview = _preview(path, tiny_tokenizer_path, build=build)
    ingest = IngestConfig(inputs=(str(path),), validation_fraction=0.0)
    corpus = run_ingest(ingest, str(tiny_tokenizer_path), str(tmp_path / "corpus"), workers=1)
    dataset = run_build(build, str(tmp_path / "corpus"), str(tmp_path / "dataset"), workers=1).manifest
    assert len(preview.documents) == corpus.num_documents == 4
    assert sum(document.num_sentences for document in preview.documents) == corpus.num_sentences
    assert sum(document.num_tokens for document in preview.documents) == corpus.num_tokens
    assert sorted(document.reason for document in preview.rejected) == ["duplicate", "empty"]
    assert (preview.counts.num_examples, preview.counts.num_tokens) == (
        dataset.num_examples,
        dataset.num_tokens,
    )


def test_pairs_are_labelled_and_masked(tmp_path: Path, tiny_tokenizer_path: Path) -> None:
    preview = _preview(
        _write(tmp_path / "a.jsonl", [CAT, DOG] * 8), tiny_tokenizer_path, keep_duplicates=True
    )
    assert preview.objective == "next-sentence"
    assert preview.notes == ()
    assert preview.counts.num_is_next + preview.counts.num_not_next == preview.counts.num_examples > 8
    (block,) = preview.examples
    assert block.num_rows == preview.counts.num_examples
    assert all(count >= 1 for count in block.column("masked_lm_ids").value_lengths().to_pylist())


def test_it_takes_as_many_documents_as_asked_for_and_no_file_further(
    tmp_path: Path, tiny_tokenizer_path: Path
) -> None:
    _write(tmp_path / "a.jsonl", [CAT, DOG])
    _write(tmp_path / "b.jsonl", [CAT + " One.", DOG + " Two."])
    (tmp_path / "c.jsonl.gz").write_bytes(b"no gzip")
    preview = _preview(tmp_path / "*", tiny_tokenizer_path, num_documents=3)
    assert [document.document_id for document in preview.documents] == ["d0", "d1", "d0"]
    assert preview.num_input_files == 3
    with pytest.raises(ClozelineError, match=r"c\.jsonl\.gz"):
        _preview(tmp_path / "*", tiny_tokenizer_path, num_documents=5)


def test_the_same_twice(tmp_path: Path, tiny_tokenizer_path: Path) -> None:
    path = _write(tmp_path / "a.jsonl", [CAT, DOG, CAT + " One."])
    first, second = (_preview(path, tiny_tokenizer_path) for _ in range(2))
    assert first.documents == second.documents
    assert first.examples[0].equals(second.examples[0])
    other = _preview(path, tiny_tokenizer_path, build=BuildConfig(seed=1))
    assert not first.examples[0].equals(other.examples[0])


@pytest.mark.parametrize(
    ("texts", "objective", "note"),
    [
        ([CAT], "next-sentence", "one document only"),
        (["The cat sat.", "The dog ran."], "sentence-order", "each document has one sentence only"),
    ],
    ids=["one document", "one sentence each"],
)
def test_what_can_not_be_made_is_said(
    texts: list[str], objective: str, note: str, tmp_path: Path, tiny_tokenizer_path: Path
) -> None:
    build = BuildConfig.model_validate({"objective": objective})
    preview = _preview(_write(tmp_path / "a.jsonl", texts), tiny_tokenizer_path, build=build)
    assert len(preview.documents) == len(texts)
    assert preview.objective == "mlm"
    assert preview.counts.num_examples == len(texts)
    assert preview.examples[0].column("next_sentence_label").null_count == len(texts)
    (said,) = preview.notes
    assert f"--objective {objective}" in said
    assert note in said


def test_oddities_are_said(tmp_path: Path, tiny_tokenizer_path: Path) -> None:
    path = _write(tmp_path / "a.jsonl", ["кот сидел", "the dog ran"])
    unknown, alone = _preview(path, tiny_tokenizer_path).notes
    assert unknown.startswith("40.0% of the tokens are [UNK]")
    assert "every label is NotNext" in alone


def test_a_sentence_without_a_token_keeps_its_line(tmp_path: Path, tiny_tokenizer_path: Path) -> None:
    path = _write(tmp_path / "a.jsonl", ["The cat sat.\n\u200b\u200b\nIt purred."])
    (document,) = _preview(path, tiny_tokenizer_path, segmenter="newline").documents
    assert [sentence.tokens for sentence in document.sentences] == [
        ("the", "cat", "sat", "."),
        (),
        ("it", "purred", "."),
    ]
    assert document.num_sentences == 2


def test_held_out_documents_are_marked(tmp_path: Path, tiny_tokenizer_path: Path) -> None:
    path = _write(tmp_path / "a.jsonl", [f"{CAT} {n}" for n in range(20)])
    preview = _preview(path, tiny_tokenizer_path, validation_fraction=0.5)
    assert {document.split for document in preview.documents} == {"train", "validation"}


@pytest.mark.parametrize(
    ("texts", "message"),
    [([], "no document in the input, "), (["", "\u200b"], "1 empty, 1 no_tokens")],
    ids=["nothing", "nothing kept"],
)
def test_no_document_is_an_error(
    texts: list[str], message: str, tmp_path: Path, tiny_tokenizer_path: Path
) -> None:
    with pytest.raises(ClozelineError, match=message):
        _preview(_write(tmp_path / "a.jsonl", texts), tiny_tokenizer_path)


def test_a_missing_input_is_a_usage_error(tmp_path: Path, tiny_tokenizer_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        _preview(tmp_path / "absent.jsonl", tiny_tokenizer_path)
