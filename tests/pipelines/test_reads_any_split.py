"""However files are cut and put together into reads, and in whatever portions they come, documents stay."""

import csv
import gzip
import io
import json
from typing import get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.readers import read_documents
from pipelines.readers.batches import BATCH_BYTES
from pipelines.readers.pieces import DocumentFormat
from pipelines.reads import expand_inputs, group_files, split_into_reads
from schemas.configs import IngestConfig

FORMATS = get_args(DocumentFormat)
LINES = st.text(alphabet='ab é字".,\t\u2028{}', max_size=8).map(lambda text: f"x{text}.")
DOCUMENTS = st.lists(st.lists(LINES, min_size=1, max_size=3), min_size=1, max_size=6)


def write_csv(documents, delimiter):
    file = io.StringIO()
    csv.writer(file, delimiter=delimiter).writerows([("n", "text"), *((1, text) for text in documents)])
    return file.getvalue().encode()


def write_parquet(documents):
    file = io.BytesIO()
    pq.write_table(pa.table({"text": documents}), file, row_group_size=2)
    return file.getvalue()


def encode(document_format, documents):
    """The content of a file, and the texts of its documents."""
    texts = ["\n".join(lines) for lines in documents]
    match document_format:
        case "text":
            return "\n\n".join(texts).encode(), ["\n\n".join(texts)]
        case "text-lines":
            texts = [" ".join(lines) for lines in documents]
            return "\n".join(texts).encode(), texts
        case "text-sentences":
            return "\n \n\n".join(texts).encode(), texts
        case "jsonl":
            return b"".join(json.dumps({"text": text}).encode() + b"\r\n" for text in texts), texts
        case "csv":
            return write_csv(texts, ","), texts
        case "tsv":
            return write_csv(texts, "\t"), texts
        case "parquet":
            return write_parquet(texts), texts


def read_all(files, config, read_bytes):
    """The documents of all reads, with their identifiers, in the order of the files."""
    found = []
    names = set()
    for group in group_files(files, read_bytes):
        for read in split_into_reads(group, config, read_bytes):
            assert read.name not in names
            names.add(read.name)
            for batch in read_documents(read, config):
                assert batch.rejected == ()
                found += zip(
                    *(batch.table[name].to_pylist() for name in batch.table.schema.names), strict=True
                )
    return found


@pytest.mark.parametrize("is_packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("document_format", FORMATS)
@settings(deadline=None, max_examples=60)
@given(
    contents=st.lists(DOCUMENTS, min_size=1, max_size=3),
    read_bytes=st.integers(1, 200),
    portion_bytes=st.sampled_from([3, 10, BATCH_BYTES]),
)
def test_any_split_gives_the_same_documents(
    tmp_path_factory, document_format, is_packed, contents, read_bytes, portion_bytes
):
    if is_packed and document_format == "parquet":
        return  # refused, for Parquet compresses inside
    folder = tmp_path_factory.mktemp("split")
    expected = []
    for index, documents in enumerate(contents):
        content, texts = encode(document_format, documents)
        name = folder / f"{index}.x{'.gz' if is_packed else ''}"
        name.write_bytes(gzip.compress(content, 1) if is_packed else content)
        expected += texts
    config = IngestConfig(inputs=("x",), format=document_format)
    files = expand_inputs([f"{folder}/*"])
    whole = read_all(files, config, 1 << 30)
    assert [text for _, text in whole] == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.readers.lines.BATCH_BYTES", portion_bytes)
        patch.setattr("pipelines.readers.delimited_rows.BATCH_BYTES", portion_bytes)
        assert read_all(files, config, read_bytes) == whole
