from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.row_groups import describe_row_group
from schemas.sealing import seal_json
from workflows.report.opening import Corpus, open_folder
from workflows.verifying.corpus_checks import CorpusVerification, verify_corpus

Change = Callable[[Path], None]


@pytest.fixture
def corpus(build: Callable[[str], Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(build("corpus"), tmp_path / "corpus"))


def _verify(folder: Path, *, sizes_only: bool = False, workers: int = 1) -> CorpusVerification:
    opened = open_folder(str(folder))
    assert isinstance(opened, Corpus)
    return verify_corpus(opened, lambda done, total: None, workers, sizes_only=sizes_only)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_corpus_as_it_was_written_is_right(corpus: Path, workers: int) -> None:
    outcome = _verify(corpus, workers=workers)
    assert (outcome.faults, outcome.num_files, outcome.num_documents) == ((), 3, 600)
    assert outcome.num_tokens == json.loads((corpus / "corpus.json").read_text())["num_tokens"]
    assert _verify(corpus, sizes_only=True).faults == ()


def _flip(corpus: Path) -> None:
    content = bytearray((corpus / "train/a.parquet").read_bytes())
    content[len(content) // 2] ^= 4
    (corpus / "train/a.parquet").write_bytes(content)


def _cut(corpus: Path) -> None:
    (corpus / "train/a.parquet").write_bytes((corpus / "train/a.parquet").read_bytes()[:-1])


def _lengthen(corpus: Path) -> None:
    with (corpus / "train/a.parquet").open("ab") as stream:
        stream.write(b"\0\0")


@pytest.mark.parametrize(
    ("spoil", "fault", "seen_in_sizes"),
    [
        (_flip, "train/a.parquet was changed: its SHA-256 is", False),
        (_cut, "train/a.parquet is truncated", True),
        (_lengthen, "train/a.parquet was changed: it has more bytes", True),
        (lambda corpus: (corpus / "train/a.parquet").unlink(), "train/a.parquet is missing", True),
        (lambda corpus: (corpus / "tokenizer.json").write_text("{}"), "tokenizer.json is not the", False),
        (lambda corpus: (corpus / "tokenizer.json").unlink(), "tokenizer.json is missing", True),
        (
            lambda corpus: shutil.copy(corpus / "train/a.parquet", corpus / "validation/z.parquet"),
            "validation/z.parquet is no file of the manifest's",
            True,
        ),
    ],
)
def test_each_fault_is_named(corpus: Path, spoil: Change, fault: str, seen_in_sizes: bool) -> None:
    spoil(corpus)
    (found,) = _verify(corpus).faults
    assert fault in found
    assert len(_verify(corpus, sizes_only=True).faults) == seen_in_sizes


@pytest.mark.parametrize(
    ("change", "fault", "seen_in_sizes"),
    [
        (lambda path: path.write_text('{"reason": "EMPTY"}\n'), "a.jsonl was changed: its SHA-256 is", False),
        (lambda path: path.write_text(""), "a.jsonl is truncated", True),
        (lambda path: path.unlink(), "rejects/a.jsonl is missing", True),
        (
            lambda path: path.with_name("b.jsonl").touch(),
            "rejects/b.jsonl is no file of the manifest's",
            True,
        ),
    ],
    ids=["changed", "truncated", "missing", "too many"],
)
def test_what_was_rejected_is_checked_too(
    corpus: Path, change: Change, fault: str, seen_in_sizes: bool
) -> None:
    path = corpus / "rejects" / "a.jsonl"
    path.parent.mkdir()
    path.write_text('{"reason": "empty"}\n')
    manifest = json.loads((corpus / "corpus.json").read_text())
    checksum = sha256(path.read_bytes()).hexdigest()
    manifest["rejects"] = [{"name": "rejects/a.jsonl", "sha256": checksum, "size_bytes": 20}]
    (corpus / "corpus.json").write_bytes(seal_json(manifest))
    assert _verify(corpus).faults == ()
    change(path)
    (found,) = _verify(corpus).faults
    assert fault in found
    assert len(_verify(corpus, sizes_only=True).faults) == seen_in_sizes


def _rewrite(corpus: Path, change: Callable[[list[dict[str, Any]]], None], *, describe: bool) -> None:
    """Change rows of the first file; its checksum is mended, its row groups' records where `describe`."""
    path = corpus / "train/a.parquet"
    file = pq.ParquetFile(path)
    rows = file.read().to_pylist()
    size = file.metadata.row_group(0).num_rows
    change(rows)
    groups = [
        pa.Table.from_pylist(rows[start : start + size], file.schema_arrow)
        for start in range(0, len(rows), size)
    ]
    with pq.ParquetWriter(path, file.schema_arrow) as writer:
        for group in groups:
            writer.write_table(group)
    manifest = json.loads((corpus / "corpus.json").read_text())
    (record,) = [record for record in manifest["files"] if record["name"] == "train/a.parquet"]
    content = path.read_bytes()
    record |= {"sha256": sha256(content).hexdigest(), "size_bytes": len(content)}
    if describe:
        record["row_groups"] = [describe_row_group(group).model_dump() for group in groups]
        for name in ("num_documents", "num_sentences", "num_tokens"):
            manifest[name] = sum(g[name] for file in manifest["files"] for g in file["row_groups"])
        manifest["num_documents_read"] = manifest["num_documents"]
    (corpus / "corpus.json").write_bytes(seal_json(manifest))


def _other_token(rows: list[dict[str, Any]]) -> None:
    rows[0]["token_ids"][0] = 9 if rows[0]["token_ids"][0] != 9 else 10


def _foreign_token(rows: list[dict[str, Any]]) -> None:
    rows[0]["token_ids"][0] = 201


def _empty_sentence(rows: list[dict[str, Any]]) -> None:
    rows[0]["sentence_lengths"].append(0)


def _longer_sentence(rows: list[dict[str, Any]]) -> None:
    rows[0]["sentence_lengths"][0] += 1
    rows[1]["sentence_lengths"][0] -= 1 if rows[1]["sentence_lengths"][0] > 1 else 0


@pytest.mark.parametrize(
    ("change", "describe", "fault"),
    [
        (_other_token, False, "row group 0 is not what the manifest says"),
        (_foreign_token, True, "row group 0: a token id is 201, the vocabulary has 201"),
        (_empty_sentence, True, "row group 0: a sentence has no token"),
        (
            _longer_sentence,
            True,
            "row group 0: the sentences of a document have other tokens than it",
        ),
        (lambda rows: rows.pop(), False, "row group 2 is not what the manifest says"),
    ],
)
def test_content_is_checked_where_the_checksum_agrees(
    corpus: Path, change: Callable[[list[dict[str, Any]]], None], describe: bool, fault: str
) -> None:
    _rewrite(corpus, change, describe=describe)
    (found,) = _verify(corpus).faults
    assert found.endswith(f"train/a.parquet: {fault}")


def test_a_file_that_is_no_parquet_is_named(corpus: Path) -> None:
    manifest = json.loads((corpus / "corpus.json").read_text())
    content = b"PAR1 and so on"
    (corpus / "train/a.parquet").write_bytes(content)
    manifest["files"][0] |= {"sha256": sha256(content).hexdigest(), "size_bytes": len(content)}
    assert manifest["files"][0]["name"] == "train/a.parquet"
    (corpus / "corpus.json").write_bytes(seal_json(manifest))
    (found,) = _verify(corpus).faults
    assert "train/a.parquet can't be read as Parquet" in found
