from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.corpus_writer import CorpusWriter
from pipelines.rejections import EMPTY, INVALID_JSON, RejectedDocument
from pipelines.row_groups import digest_row_group
from pipelines.storage import make_folder
from pipelines.work_folder import WorkFolder
from schemas.documents import tokenized_document_schema


def make_documents(first: int, last: int, vocab_size: int = 1_000) -> pa.Table:
    numbers = range(first, last)
    return pa.Table.from_pydict(
        {
            "document_id": [f"doc-{number}" for number in numbers],
            "token_ids": [[number % 1_000] * (number % 7 + 2) for number in numbers],
            "sentence_lengths": [[1, number % 7 + 1] for number in numbers],
        },
        schema=tokenized_document_schema(vocab_size),
    )


def start(folder: Path, **arguments: int) -> CorpusWriter:
    work = WorkFolder(str(folder))
    make_folder(work.path)
    return CorpusWriter(work, "read", **{"vocab_size": 1_000, "row_group_tokens": 100, **arguments})


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_read_becomes_files_and_a_record(tmp_path: Path) -> None:
    with start(tmp_path) as writer:
        writer.write("train", make_documents(0, 50))
        writer.reject([RejectedDocument("x", EMPTY, "é"), RejectedDocument("y", INVALID_JSON, "line 2")])
        writer.write("validation", make_documents(50, 53))
        writer.write("validation", make_documents(0, 0))
        writer.reject([RejectedDocument("z", EMPTY, "")])
        writer.count_text(30)
        writer.count_text(12)
        record = writer.finish()

    files = read_files(tmp_path)
    assert sorted(files) == [
        "_work/read.json", "rejects/read.jsonl", "train/read.parquet", "validation/read.parquet",
    ]  # fmt: skip
    assert WorkFolder(str(tmp_path)).load_finished("read") == record
    assert (record["read"], record["rejected"], record["num_text_bytes"]) == (
        "read",
        {"empty": 2, "invalid_json": 1},
        42,
    )
    assert [json.loads(line) for line in files["rejects/read.jsonl"].splitlines()] == [
        {"document_id": "x", "reason": "empty", "detail": "é"},
        {"document_id": "y", "reason": "invalid_json", "detail": "line 2"},
        {"document_id": "z", "reason": "empty", "detail": ""},
    ]
    assert [file["name"] for file in record["rejects"]] == ["rejects/read.jsonl"]
    for file in record["files"] + record["rejects"]:
        content = files[file["name"]]
        assert (file["sha256"], file["size_bytes"]) == (hashlib.sha256(content).hexdigest(), len(content))
    for file in record["files"]:
        content = files[file["name"]]
        parquet = pq.ParquetFile(pa.BufferReader(content))
        groups = [parquet.read_row_group(index) for index in range(parquet.num_row_groups)]
        assert [digest_row_group(group) for group in groups] == [
            group["digest"] for group in file["row_groups"]
        ]
        assert [group.num_rows for group in groups] == [
            group["num_documents"] for group in file["row_groups"]
        ]
    assert pq.read_table(pa.BufferReader(files["train/read.parquet"])) == make_documents(0, 50)
    assert [file["split"] for file in record["files"]] == ["train", "validation"]
    assert len(record["files"][0]["row_groups"]) == 3  # of 100 tokens or a few more; 241 in all


@given(st.lists(st.integers(0, 60), max_size=5))
def test_the_bytes_do_not_depend_on_the_batches(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("corpus")
    bounds = [0, *sorted(cuts), 60]
    with start(folder) as writer:
        for first, last in itertools.pairwise(bounds):
            writer.write("train", make_documents(first, last))
        writer.finish()
    with start(folder / "whole") as writer:
        writer.write("train", make_documents(0, 60))
        writer.finish()
    assert (folder / "train" / "read.parquet").read_bytes() == (
        folder / "whole" / "train" / "read.parquet"
    ).read_bytes()


def test_nothing_kept_makes_no_file(tmp_path: Path) -> None:
    with start(tmp_path) as writer:
        record = writer.finish()
    assert record == {"read": "read", "files": [], "rejects": [], "rejected": {}, "num_text_bytes": 0}
    assert sorted(read_files(tmp_path)) == ["_work/read.json"]


def test_an_exception_leaves_nothing_behind(tmp_path: Path) -> None:
    writer = start(tmp_path, row_group_tokens=10)
    writer.write("train", make_documents(0, 50))
    writer.reject([RejectedDocument("x", EMPTY, "")])
    assert list(tmp_path.rglob("*.tmp"))
    error = ValueError("something")
    with pytest.raises(ValueError, match="something"), writer:
        raise error
    assert not read_files(tmp_path)


def test_a_large_vocabulary_is_written_as_uint32(tmp_path: Path) -> None:
    with start(tmp_path, vocab_size=70_000) as writer:
        writer.write("train", make_documents(0, 3, vocab_size=70_000))
        writer.finish()
    schema = pq.read_schema(tmp_path / "train" / "read.parquet")
    assert schema.field("token_ids").type.value_type == pa.uint32()
    assert schema.remove_metadata() == tokenized_document_schema(70_000).remove_metadata()
