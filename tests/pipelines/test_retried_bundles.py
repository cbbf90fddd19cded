"""A bundle that is done again, as a cluster does after a worker was lost: the same bytes, once."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from tokenizers import Tokenizer

from pipelines import build_steps, ingest_steps, storage
from pipelines.build import run_build
from pipelines.duplicate_steps import HashDocumentsFn
from pipelines.ingest_plan import plan_ingest
from pipelines.pool_assignment import assign_pools
from pipelines.pool_reader import read_corpus_manifest
from pipelines.reads import ReadDescriptor, ReadPiece
from pipelines.tokenizer_files import load_tokenizer
from pipelines.work_folder import WorkFolder
from schemas.configs import BuildConfig, IngestConfig
from tests.pipelines.corpora import make_documents, write_corpus

CONFIG = BuildConfig(seed=7, max_seq_length=48, examples_per_block=40)


class LostError(BaseException):
    """The end of a worker: nothing behind it is done."""


Writer = Callable[[WorkFolder], beam.DoFn]


class Work:
    """One piece of work: the batches that reach the step which writes, and that step."""

    def __init__(self, batches: list[Any], make_writer: Writer) -> None:
        self.batches = batches
        self.make_writer = make_writer
        self.lost: beam.DoFn | None = None

    def do(self, work: WorkFolder, *, num_batches: int | None = None) -> list[Any]:
        """Run the step in a worker of its own, which is lost after some batches where a number is given."""
        writer = self.make_writer(work)
        results = [r for batch in self.batches[:num_batches] for r in writer.process(batch)]
        if num_batches is None:
            writer.teardown()
        else:
            self.lost = writer
        return results


@pytest.fixture(params=["ingest", "build"])
def piece(request: pytest.FixtureRequest, tmp_path: Path, tiny_tokenizer: Tokenizer) -> Work:
    return (
        _ingest_work(tmp_path, tiny_tokenizer)
        if request.param == "ingest"
        else _build_work(tmp_path, tiny_tokenizer)
    )


def _ingest_work(folder: Path, tokenizer: Tokenizer) -> Work:
    lines = [json.dumps({"text": f"The cat {n} sat on mat {n % 7}. " * 300}) for n in range(700)]
    (folder / "in.jsonl").write_text("\n".join([*lines, '{"text": 1}', '{"text": ""}']))
    (folder / "tokenizer.json").write_text(tokenizer.to_str())
    config = IngestConfig(inputs=(str(folder / "in.jsonl"),), validation_fraction=0.2)
    _, record, content = load_tokenizer(str(folder / "tokenizer.json"))
    (folder / "tokenizer.json").write_bytes(content)
    tokenize = ingest_steps.TokenizeSentencesFn(str(folder / "tokenizer.json"), record, 0.2)
    tokenize.setup()
    segment = ingest_steps.SegmentSentencesFn(config)
    path = folder / "in.jsonl"
    piece = ReadPiece(str(path), "jsonl", None, 0, None, path.stat().st_size)  # more than one batch
    batches = [
        tokenized
        for batch in ingest_steps.ReadDocumentsFn(config).process(ReadDescriptor((piece,), piece.file_size))
        for segmented in segment.process(batch)
        for tokenized in tokenize.process(segmented)
    ]
    return Work(
        batches,
        lambda work: ingest_steps.WriteCorpusFn(work, vocab_size=record.vocab_size, row_group_tokens=10_000),
    )


def _build_work(folder: Path, tokenizer: Tokenizer) -> Work:
    corpus = folder / "corpus"
    documents = make_documents(60, ids=range(60, 180))
    write_corpus(corpus, tokenizer, {"train/a.parquet": [documents]})
    (pool,), _ = assign_pools(read_corpus_manifest(str(corpus)), CONFIG)
    mask = build_steps.MaskTokensFn(CONFIG, str(corpus))
    mask.setup()
    steps = (
        build_steps.ReadPoolFn(str(corpus), read_corpus_manifest(str(corpus)).tokenizer.vocab_size),
        build_steps.SamplePairsFn(CONFIG),
        build_steps.ShuffleExamplesFn(CONFIG.seed),
        mask,
    )
    values: Iterator[Any] = iter([pool])
    for step in steps:
        values = itertools.chain.from_iterable(map(step.process, values))
    return Work(list(values), build_steps.WriteShardFn)


def open_folder(path: Path) -> WorkFolder:
    work = WorkFolder(str(path))
    storage.make_folder(work.path)
    return work


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_done_twice(piece: Work, tmp_path: Path) -> None:
    assert len(piece.batches) > 1
    work = open_folder(tmp_path / "out")
    first = piece.do(work)
    before = read_files(tmp_path / "out")
    assert len(before) >= 2
    assert piece.do(work) == first
    assert read_files(tmp_path / "out") == before


def test_lost_while_it_wrote(piece: Work, tmp_path: Path) -> None:
    expected = piece.do(open_folder(tmp_path / "expected"))
    work = open_folder(tmp_path / "out")
    assert piece.do(work, num_batches=len(piece.batches) - 1) == []
    assert piece.do(work) == expected
    whole = read_files(tmp_path / "expected")
    assert {n: c for n, c in read_files(tmp_path / "out").items() if not n.endswith(".tmp")} == whole
    piece.lost.teardown()  # where Beam gets to it; where not, the next run removes what is left
    assert read_files(tmp_path / "out") == whole


@pytest.mark.parametrize("when", ["before", "after"])
def test_lost_between_its_files_and_its_record(
    piece: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    expected = piece.do(open_folder(tmp_path / "expected"))
    work = open_folder(tmp_path / "out")
    finish = WorkFolder.finish

    def lose(self: WorkFolder, *arguments: Any) -> None:
        if when == "after":
            finish(self, *arguments)
        raise LostError

    with monkeypatch.context() as patched:
        patched.setattr(WorkFolder, "finish", lose)
        with pytest.raises(LostError):
            piece.do(work)
    left = read_files(tmp_path / "out")
    assert any(not name.startswith("_work/") for name in left)
    assert (len(work.finished_names()) == 1) == (when == "after")
    assert piece.do(work) == expected
    assert read_files(tmp_path / "out") == read_files(tmp_path / "expected")


def test_done_by_two_workers_at_the_same_time(piece: Work, tmp_path: Path) -> None:
    """One was thought lost, and was only slow."""
    expected = piece.do(open_folder(tmp_path / "expected"))
    work = open_folder(tmp_path / "out")
    slow, fast = (piece.make_writer(work) for _ in range(2))
    results: dict[str, list[Any]] = {"slow": [], "fast": []}
    for batch in piece.batches[:-1]:
        results["slow"] += slow.process(batch)
        results["fast"] += fast.process(batch)
    results["fast"] += fast.process(piece.batches[-1])
    assert read_files(tmp_path / "out").keys() > read_files(tmp_path / "expected").keys()  # one more half-way
    results["slow"] += slow.process(piece.batches[-1])
    assert results == {"slow": expected, "fast": expected}
    assert read_files(tmp_path / "out") == read_files(tmp_path / "expected")


def test_hashes_done_twice(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "a cat"}\n{"text": "a dog"}\n')
    config = IngestConfig(inputs=(str(tmp_path / "in.jsonl"),))
    work = open_folder(tmp_path / "out")
    (read,) = plan_ingest(config).reads
    assert list(HashDocumentsFn(work, config).process(read)) == [2]
    before = read_files(tmp_path / "out")
    (tmp_path / "out" / "_work" / f"{read.name}.hashes.json").unlink()  # lost before the record
    assert list(HashDocumentsFn(work, config).process(read)) == [2]
    assert list(HashDocumentsFn(work, config).process(read)) == [2]
    assert read_files(tmp_path / "out") == before


def test_a_commit_done_twice_through_the_runner(
    tmp_path: Path, tiny_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step of `build` that writes runs twice in one pipeline."""
    write_corpus(tmp_path / "corpus", tiny_tokenizer, {
        "train/a.parquet": [make_documents(60, ids=range(60, 180))],
    })  # fmt: skip
    run_build(CONFIG, str(tmp_path / "corpus"), str(tmp_path / "once"), workers=1)
    write, commit = build_steps.WriteShardFn.process, build_steps.CommitDatasetFn.process
    held: list[Any] = []

    def write_twice(self: build_steps.WriteShardFn, batch: Any) -> Iterator[str]:
        held.append(batch)
        names = list(write(self, batch))
        if batch.is_last:
            assert [name for again in held for name in write(self, again)] == names
            held.clear()
        yield from names

    def commit_twice(self: build_steps.CommitDatasetFn, num_finished: int) -> Iterator[bool]:
        list(commit(self, num_finished))
        yield from commit(self, num_finished)

    monkeypatch.setattr(build_steps.WriteShardFn, "process", write_twice)
    monkeypatch.setattr(build_steps.CommitDatasetFn, "process", commit_twice)
    run_build(CONFIG, str(tmp_path / "corpus"), str(tmp_path / "twice"), workers=1)
    assert read_files(tmp_path / "twice") == read_files(tmp_path / "once")
