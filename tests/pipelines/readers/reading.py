"""Reading a file, or a part of one, as the tests of readers look at it: texts and rejections by name."""

import itertools

from pipelines.readers import read_documents
from pipelines.reads import ReadDescriptor, ReadPiece, detect_format
from schemas.configs import IngestConfig
from schemas.documents import DOCUMENT_SCHEMA

BOM = b"\xef\xbb\xbf"


def read_range(path, config, start=0, end=None):
    """Texts and rejections (reason, id, detail) of a range of a file, ids without the folder."""
    document_format, compression = detect_format(str(path), config)
    piece = ReadPiece(str(path), document_format, compression, start, end, path.stat().st_size)
    return read_pieces(config, piece, folder=str(path.parent) + "/")


def read_pieces(config, *pieces, folder=""):
    kept, rejected = [], []
    for batch in read_documents(ReadDescriptor(pieces, 0), config):
        assert batch.table.schema == DOCUMENT_SCHEMA
        assert batch.table.num_rows + len(batch.rejected) > 0
        assert all(column.num_chunks <= 1 for column in batch.table.columns)
        batch.table.validate(full=True)
        ids = [name.removeprefix(folder) for name in batch.table["document_id"].to_pylist()]
        kept += zip(ids, batch.table["text"].to_pylist(), strict=True)
        rejected += [(r.document_id.removeprefix(folder), r.reason, r.detail) for r in batch.rejected]
    return kept, rejected


def read_content(tmp_path, content, document_format, name="a.x", **fields):
    path = tmp_path / name
    path.write_bytes(content)
    return read_range(path, IngestConfig(inputs=(str(path),), format=document_format, **fields))


def reasons(rejected):
    return [(name, reason) for name, reason, _ in rejected]


def read_cut(path, content, cuts, config):
    path.write_bytes(content)
    kept, rejected = [], []
    for start, end in itertools.pairwise(cuts):
        some_kept, some_rejected = read_range(path, config, start, end)
        kept += some_kept
        rejected += some_rejected
    return kept, rejected
