"""Read the row groups of a pool from the files of a corpus.

In: a corpus folder and the descriptor of a pool. Out: `PoolTokens`. Deterministic: documents come in the
order of the descriptor. Every row group is checked against its digest, so a corpus that was changed or cut
short is found out here and never trained on.
"""

from __future__ import annotations

from itertools import groupby

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import storage
from pipelines.pool_tokens import PoolTokens
from pipelines.pools import PoolDescriptor, PoolRowGroup
from pipelines.row_groups import digest_row_group
from schemas.documents import token_id_type
from schemas.errors import CorruptDataError

_COLUMNS = ["token_ids", "sentence_lengths"]


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
    tables: dict[PoolRowGroup, pa.Table] = {}
    by_file = sorted(pool.row_groups, key=lambda group: (group.file_name, group.index))
    for file_name, groups in groupby(by_file, key=lambda group: group.file_name):
        path = storage.join(corpus, *file_name.split("/"))
        with storage.open_read(path) as stream:
            for group in groups:
                tables[group] = _read_row_group(stream, path, group)
    id_type = pa.list_(pa.field("item", token_id_type(vocab_size), nullable=False))
    ordered = [tables.pop(group) for group in pool.row_groups]
    return PoolTokens.from_tables([_cast_ids(table, id_type) for table in ordered])


def _read_row_group(stream: object, path: str, group: PoolRowGroup) -> pa.Table:
    try:
        # A pool is the work of one core; the others have pools of their own.
        table = pq.ParquetFile(stream).read_row_group(group.index, columns=_COLUMNS, use_threads=False)
    except (pa.ArrowException, OSError, IndexError, KeyError, ValueError) as error:
        raise CorruptDataError(
            f"{path} can't be read: {str(error).splitlines()[0]}\n{_remedy(group)}"
        ) from error
    found = digest_row_group(table) if table.column_names == _COLUMNS else "without its columns"
    if found != group.digest:
        raise CorruptDataError(
            f"{path}: row group {group.index} has digest {found}, but corpus.json says {group.digest}\n"
            f"{_remedy(group)}"
        )
    return table


def _remedy(group: PoolRowGroup) -> str:
    return f"{group.file_name} was changed or cut short since it was written: run `clozeline ingest` anew."


def _cast_ids(table: pa.Table, id_type: pa.DataType) -> pa.Table:
    column = table.column("token_ids")
    return table if column.type == id_type else table.set_column(0, "token_ids", column.cast(id_type))
