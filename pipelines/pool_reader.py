"""Read a corpus: its manifest, its tokenizer, and the row groups of a pool.

In: a corpus folder and the descriptor of a pool. Out: the manifest, `PoolTokens`. Deterministic: documents
come in the order of the descriptor. Every row group is checked against its digest, so a corpus that was
changed or cut short is found out here and never trained on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import storage
from pipelines.corpus_manifest import load_corpus_manifest
from pipelines.pool_tokens import PoolTokens
from pipelines.pools import PoolDescriptor, PoolRowGroup
from pipelines.row_groups import digest_row_group
from pipelines.work_folder import WORK_FOLDER_NAME
from schemas.documents import token_id_type
from schemas.errors import CorruptDataError, UsageError
from schemas.manifests import CORPUS_MANIFEST_NAME, TOKENIZER_NAME, CorpusManifest

_COLUMNS = ["token_ids", "sentence_lengths"]


def read_corpus_manifest(corpus: str) -> CorpusManifest:
    """The manifest of a corpus.

    Raises:
        UsageError: there is none, or the corpus isn't finished.
        CorruptDataError: there is one, but it doesn't hold together.
    """
    manifest = load_corpus_manifest(corpus)
    if manifest is not None:
        return manifest
    if storage.is_folder(storage.join(corpus, WORK_FOLDER_NAME)):
        raise UsageError(
            f"the corpus at {corpus} isn't finished: it has no {CORPUS_MANIFEST_NAME} yet\n"
            "Run the same `clozeline ingest` again: it goes on where it stopped."
        )
    raise UsageError(
        f"there is no corpus at {corpus}: {CORPUS_MANIFEST_NAME} is missing\n"
        "Make one by `clozeline ingest`, and give its --output as --corpus."
    )


def read_corpus_tokenizer(corpus: str, manifest: CorpusManifest) -> bytes:
    """The bytes of the `tokenizer.json` that a corpus was made with.

    Raises:
        CorruptDataError: the file is another tokenizer.
        ClozelineError: it can't be read.
    """
    path = storage.join(corpus, TOKENIZER_NAME)
    content = storage.read_bytes(path)
    found = hashlib.sha256(content).hexdigest()
    if found != manifest.tokenizer.sha256:
        raise CorruptDataError(
            f"{path} isn't the tokenizer of the corpus: its SHA-256 begins with {found[:12]}, "
            f"but {CORPUS_MANIFEST_NAME} says {manifest.tokenizer.sha256[:12]}\n"
            "Put the corpus's own tokenizer back, or make the corpus anew by `clozeline ingest`."
        )
    return content


def read_pool(corpus: str, pool: PoolDescriptor, vocab_size: int) -> PoolTokens:
    """Read the documents of a pool.

    Args:
        corpus: the corpus folder.
        pool: which row groups, and in which order.
        vocab_size: entries in the vocabulary; decides the type of the ids.

    Raises:
        CorruptDataError: a row group isn't what the manifest says; the message names the file.
        ClozelineError: a file can't be opened.
    """
    id_type = token_id_type(vocab_size)
    room = [group.num_tokens for group in pool.row_groups]
    return PoolTokens.gather(_read_files(corpus, pool, id_type), room, np.dtype(str(id_type)))


def _read_files(corpus: str, pool: PoolDescriptor, id_type: pa.DataType) -> Iterator[tuple[int, pa.Table]]:
    """The documents of each row group with its place in the pool; each file is opened once."""
    list_type = pa.list_(pa.field("item", id_type, nullable=False))
    by_file = sorted(enumerate(pool.row_groups), key=lambda placed: (placed[1].file_name, placed[1].index))
    for file_name, placed in groupby(by_file, key=lambda placed: placed[1].file_name):
        places, groups = zip(*placed, strict=True)
        path = storage.join(corpus, *file_name.split("/"))
        with storage.open_read(path) as stream:
            for place, table in zip(places, _read_row_groups(stream, path, groups), strict=True):
                yield place, _cast_ids(table, list_type)


def _read_row_groups(stream: BinaryIO, path: str, groups: Sequence[PoolRowGroup]) -> Iterator[pa.Table]:
    try:
        parquet = pq.ParquetFile(stream)
        for index, same in groupby(groups, key=lambda group: group.index):
            parts = list(same)
            # A pool is the work of one core; the others have pools of their own.
            table = parquet.read_row_group(index, columns=_COLUMNS, use_threads=False)
            _check_digest(table, path, parts[0])
            yield from (_take_part(table, part) for part in parts)
    except (pa.ArrowException, OSError, IndexError, KeyError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CorruptDataError(f"{path} can't be read: {reason}\n{_remedy(groups[0])}") from error


def _take_part(table: pa.Table, group: PoolRowGroup) -> pa.Table:
    if group.num_parts == 1:
        return table
    return table.take(pa.array(range(group.part, table.num_rows, group.num_parts), pa.int64()))


def _check_digest(table: pa.Table, path: str, group: PoolRowGroup) -> None:
    found = digest_row_group(table) if table.column_names == _COLUMNS else "without its columns"
    if found != group.digest:
        raise CorruptDataError(
            f"{path}: row group {group.index} has digest {found}, but corpus.json says {group.digest}\n"
            f"{_remedy(group)}"
        )


def _remedy(group: PoolRowGroup) -> str:
    return f"{group.file_name} was changed or cut short since it was written: run `clozeline ingest` anew."


def _cast_ids(table: pa.Table, id_type: pa.DataType) -> pa.Table:
    column = table.column("token_ids")
    return table if column.type == id_type else table.set_column(0, "token_ids", column.cast(id_type))
