"""Small corpora written straight to disk, so that tests of `build` need no `ingest`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer

from pipelines.pool_tokens import PoolTokens, offsets_of
from pipelines.row_groups import describe_row_group
from pipelines.tokenizer_files import describe_tokenizer
from schemas.configs import IngestConfig
from schemas.documents import tokenized_document_schema
from schemas.manifests import CorpusFile, CorpusManifest, Split, dump_manifest
from schemas.seeding import RandomStream

Document = Sequence[Sequence[int]]
"""The token ids of each sentence."""


def make_documents(
    num_documents: int,
    *,
    ids: Sequence[int],
    max_sentences: int = 12,
    max_tokens: int = 20,
    name: str = "corpus",
) -> list[list[list[int]]]:
    """Documents of 1 to `max_sentences` sentences of 1 to `max_tokens` tokens, the same at every call."""
    stream = RandomStream(0, "test documents", name)
    documents = []
    for num_sentences in (stream.integers(max_sentences, num_documents) + 1).tolist():
        lengths = (stream.integers(max_tokens, num_sentences) + 1).tolist()
        documents.append([[ids[i] for i in stream.integers(len(ids), length)] for length in lengths])
    return documents


def make_pool(documents: Sequence[Document], dtype: type = np.uint16) -> PoolTokens:
    """The pool of these documents, in this order."""
    sentences = [sentence for document in documents for sentence in document]
    return PoolTokens(
        np.array([token for sentence in sentences for token in sentence], dtype),
        offsets_of([np.array([len(sentence) for sentence in sentences], np.int64)]),
        offsets_of([np.array([len(document) for document in documents], np.int64)]),
    )


def to_table(documents: Sequence[Document], vocab_size: int, first_number: int = 0) -> pa.Table:
    """Documents as a table of `tokenized_document_schema`."""
    columns = {
        "document_id": [f"document-{first_number + index}" for index in range(len(documents))],
        "token_ids": [[token for sentence in document for token in sentence] for document in documents],
        "sentence_lengths": [[len(sentence) for sentence in document] for document in documents],
    }
    return pa.table(columns, schema=tokenized_document_schema(vocab_size))


def write_corpus(
    folder: Path,
    tokenizer: Tokenizer,
    files: Mapping[str, Sequence[Sequence[Document]]],
) -> CorpusManifest:
    """Write Parquet files, `tokenizer.json` and `corpus.json`.

    Args:
        folder: made if need be.
        tokenizer: its record goes into the manifest.
        files: for each name, such as `train/a.parquet`, its row groups as lists of documents.
    """
    _, record, tokenizer_json = describe_tokenizer(tokenizer, "the test's tokenizer")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_bytes(tokenizer_json)
    corpus_files = [_write_file(folder, name, groups, record.vocab_size) for name, groups in files.items()]
    row_groups = [group for file in corpus_files for group in file.row_groups]
    manifest = CorpusManifest(
        created_by="clozeline tests",
        config=IngestConfig(inputs=("input.txt",)),
        tokenizer=record,
        num_input_files=1,
        num_input_bytes=1,
        num_documents_read=sum(group.num_documents for group in row_groups),
        num_documents=sum(group.num_documents for group in row_groups),
        num_rejected=0,
        rejected={},
        num_sentences=sum(group.num_sentences for group in row_groups),
        num_tokens=sum(group.num_tokens for group in row_groups),
        num_text_bytes=1,
        files=tuple(corpus_files),
    )
    (folder / "corpus.json").write_bytes(dump_manifest(manifest))
    return manifest


def _write_file(folder: Path, name: str, groups: Sequence[Sequence[Document]], vocab_size: int) -> CorpusFile:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    row_groups = []
    with pq.ParquetWriter(path, tokenized_document_schema(vocab_size)) as writer:
        for documents in groups:
            table = to_table(documents, vocab_size)
            writer.write_table(table, row_group_size=max(1, table.num_rows))
            row_groups.append(describe_row_group(table))
    split: Split = "train" if name.startswith("train") else "validation"
    content = path.read_bytes()
    return CorpusFile(
        name=name,
        split=split,
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        row_groups=tuple(row_groups),
    )
