"""The steps of `ingest` without a pipeline around them, over whatever bytes a file may hold."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.ingest_steps import ReadDocumentsFn, SegmentSentencesFn, TokenizeSentencesFn, WriteCorpusFn
from pipelines.reads import ReadDescriptor, ReadPiece
from pipelines.table_batch import TableBatch
from pipelines.tokenizer_files import load_tokenizer
from pipelines.work_folder import WorkFolder
from schemas.configs import IngestConfig, InputFormat
from schemas.errors import CorruptDataError

LINES = st.lists(
    st.one_of(
        st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"")),
        st.sampled_from(
            [
                *(b"", b" ", b"\r", b"\x00", b"\xff", b"The cat sat. It purred.", b"{", b"[1]", b"7"),
                *(b'{"text": "the cat"}', b'{"text": " "}', b'{"text": 3}', b'{"text": "\\u0000"}', b"{}"),
                *(b'{"text": "\xc3"}', b"x" * 60, b'{"text": "%s"}' % (b"x" * 60)),
            ]
        ),
    ),
    max_size=12,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("steps")


def _read(folder: Path, content: bytes, document_format: InputFormat) -> tuple[ReadDescriptor, IngestConfig]:
    path = folder / "in.x"
    path.write_bytes(content)
    assert document_format in ("jsonl", "text-lines")
    piece = ReadPiece(str(path), document_format, None, 0, None, len(content))
    config = IngestConfig(
        inputs=(str(path),), format=document_format, validation_fraction=0.3, max_document_bytes=50
    )
    return ReadDescriptor((piece,), len(content)), config


def _tokenizing(tokenizer_path: Path, folder: Path) -> TokenizeSentencesFn:
    _, record, content = load_tokenizer(str(tokenizer_path))
    (folder / "tokenizer.json").write_bytes(content)
    step = TokenizeSentencesFn(str(folder / "tokenizer.json"), record, 0.3)
    step.setup()
    return step


def _run(read: ReadDescriptor, config: IngestConfig, tokenizing: TokenizeSentencesFn) -> Iterator[TableBatch]:
    segmenting = SegmentSentencesFn(config)
    for batch in ReadDocumentsFn(config).process(read):
        for segmented in segmenting.process(batch):
            yield from tokenizing.process(segmented)


@pytest.mark.parametrize("document_format", ["jsonl", "text-lines"])
@settings(deadline=None, max_examples=150)
@given(lines=LINES)
@example(lines=[b'{"text": "the cat"}', b"", b"\xff", b"{", b"{}", b'{"text": " "}', b'{"text": "\\u0000"}'])
def test_documents_in_are_documents_kept_and_rejected(
    folder: Path, tiny_tokenizer_path: Path, document_format: InputFormat, lines: list[bytes]
) -> None:
    read, config = _read(folder, b"".join(line + b"\n" for line in lines), document_format)
    kept, rejected = 0, []
    for batch in _run(read, config, _tokenizing(tiny_tokenizer_path, folder)):
        kept += batch.tables["train"].num_rows + batch.tables["validation"].num_rows
        rejected += batch.notes["rejected"]
    # A line is a document; in JSONL one of white space alone is none.
    num_in = len(lines) if document_format == "text-lines" else sum(bool(line.strip()) for line in lines)
    assert kept + len(rejected) == num_in
    assert all(document.reason and document.document_id for document in rejected)


def test_batches_of_a_read_are_numbered_and_the_last_is_marked(
    folder: Path, tiny_tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.readers.batches.MAX_BATCH_DOCUMENTS", 2)
    read, config = _read(folder, b"the cat\n" * 5, "text-lines")
    batches = list(_run(read, config, _tokenizing(tiny_tokenizer_path, folder)))
    assert [batch.sequence for batch in batches] == list(range(len(batches)))
    assert [batch.is_last for batch in batches] == [False] * (len(batches) - 1) + [True]
    assert len(batches) > 1
    assert {batch.work for batch in batches} == {read.name}


def test_a_read_without_documents_is_one_empty_batch(folder: Path, tiny_tokenizer_path: Path) -> None:
    read, config = _read(folder, b"", "text-lines")
    (batch,) = _run(read, config, _tokenizing(tiny_tokenizer_path, folder))
    assert (batch.sequence, batch.is_last, batch.notes["rejected"]) == (0, True, ())
    assert batch.tables["train"].num_rows == batch.tables["validation"].num_rows == 0


def test_a_batch_out_of_order_is_refused_and_leaves_no_file(
    tmp_path: Path, folder: Path, tiny_tokenizer_path: Path
) -> None:
    read, config = _read(folder, b"the cat\n", "text-lines")
    (batch,) = _run(read, config, _tokenizing(tiny_tokenizer_path, folder))
    work = WorkFolder(str(tmp_path))
    late = TableBatch(**{**batch.__dict__, "sequence": 1})
    with work.hold():
        writing = WriteCorpusFn(work, vocab_size=201, row_group_tokens=10)
        with pytest.raises(RuntimeError, match=f"batch 1 of read {read.name} came where batch 0"):
            list(writing.process(late))
        assert not [path for path in tmp_path.rglob("*") if path.suffix in (".parquet", ".tmp")]


def test_a_tokenizer_changed_meanwhile_is_named(tmp_path: Path, tiny_tokenizer_path: Path) -> None:
    _, record, content = load_tokenizer(str(tiny_tokenizer_path))
    (tmp_path / "tokenizer.json").write_bytes(content + b" ")
    assert hashlib.sha256(content).hexdigest() == record.sha256
    with pytest.raises(CorruptDataError, match=r"tokenizer\.json was changed while the work was going on"):
        TokenizeSentencesFn(str(tmp_path / "tokenizer.json"), record, 0.0).setup()
