"""From what a person types after `--input` to pieces of work: which bytes or row groups one read takes.

In: paths and globs. Out: `ReadDescriptor`s of about equal size, each read by one worker into one corpus file.
Large plain files are cut into byte ranges, Parquet files by row groups; a compressed file is read whole, and
so is CSV (`pipelines.readers.delimited` says why); many small files share one read, so that a million files
don't become a million reads. Deterministic: the reads and their names follow from the listing of the inputs
and the configuration, never from the number of workers or the order in which inputs were named.

A byte range [start, end) owns the documents that begin in it, and is read past its end to finish the last
one; so any way of cutting a file gives the same documents (`pipelines.readers.text` says it exactly).
"""

from __future__ import annotations

import itertools
import typing
from collections.abc import Iterator, Sequence

from pipelines import storage
from pipelines.readers.parquet import read_row_group_sizes
from pipelines.readers.pieces import Compression, DocumentFormat, ReadDescriptor, ReadPiece
from pipelines.storage import FileEntry
from schemas.configs import IngestConfig, VocabConfig
from schemas.errors import UsageError

__all__ = [
    "ReadDescriptor",
    "ReadPiece",
    "check_formats",
    "choose_read_bytes",
    "detect_format",
    "expand_inputs",
    "group_files",
    "split_into_reads",
]

MIN_READ_BYTES = 1 << 20
MAX_READ_BYTES = 1 << 26
MAX_FILES_PER_READ = 4096
"""A read of tiny files is bounded by their number too: opening one in an object store takes some 50 ms."""

_FORMAT_BY_SUFFIX: dict[str, DocumentFormat] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "text",
    ".text": "text",
}
_COMPRESSION_BY_SUFFIX: dict[str, Compression] = {
    ".gz": "gzip",
    ".bz2": "bzip2",
    ".zst": "zstd",
    ".xz": "xz",
}
_RANGED_FORMATS = ("text-lines", "text-sentences", "jsonl")


def expand_inputs(patterns: Sequence[str]) -> list[FileEntry]:
    """The files that paths and globs name, each once, sorted by path.

    Raises:
        UsageError: a pattern matches nothing or names a folder.
    """
    entries: dict[str, FileEntry] = {}
    for pattern in patterns:
        found = storage.match(pattern)
        if not found:
            raise UsageError(_explain_no_match(pattern))
        entries.update((entry.path, entry) for entry in found)
    return sorted(entries.values())


def check_formats(files: Sequence[FileEntry], config: IngestConfig | VocabConfig) -> None:
    """Refuse files whose layout can't be told, before any work starts.

    Raises:
        UsageError: the format is `auto` and a name says nothing, or a Parquet file is compressed as a whole.
    """
    for file in files:
        detect_format(file.path, config)


def detect_format(path: str, config: IngestConfig | VocabConfig) -> tuple[DocumentFormat, Compression | None]:
    """The layout of a file and its compression, by its name; a format of the configuration goes before.

    Raises:
        UsageError: see `check_formats`.
    """
    stem, suffix = _split_suffix(path)
    compression = _COMPRESSION_BY_SUFFIX.get(suffix)
    if compression is not None:
        suffix = _split_suffix(stem)[1]
    document_format = _FORMAT_BY_SUFFIX.get(suffix) if config.format == "auto" else config.format
    if document_format is None:
        known = " ".join(_FORMAT_BY_SUFFIX)
        raise UsageError(
            f"{path}: its name does not tell its format (known: {known}, each also with .gz .bz2 .zst .xz)\n"
            f"Name it with --format {'|'.join(typing.get_args(DocumentFormat))}."
        )
    if document_format == "parquet" and compression is not None:
        raise UsageError(
            f"{path}: a Parquet file compressed as a whole can't be read by row groups\n"
            "Decompress it first: Parquet compresses its columns itself."
        )
    return document_format, compression


def choose_read_bytes(files: Sequence[FileEntry]) -> int:
    """About how many stored bytes one read takes: a 64th of all, from 1 MiB to 64 MiB.

    It goes by the inputs alone, so that the same inputs make the same corpus files on any machine.
    """
    total = sum(file.size_bytes for file in files)
    return max(MIN_READ_BYTES, min(total // 64, MAX_READ_BYTES))


def group_files(files: Sequence[FileEntry], read_bytes: int) -> list[tuple[FileEntry, ...]]:
    """Put neighbouring small files together until they make up a read; a large file stays alone.

    Args:
        files: sorted by path.
        read_bytes: stored bytes in a read, about.
    """
    groups: list[tuple[FileEntry, ...]] = []
    group: list[FileEntry] = []
    group_bytes = 0
    for file in files:
        full = len(group) >= MAX_FILES_PER_READ or group_bytes + file.size_bytes > read_bytes
        if group and full:
            groups.append(tuple(group))
            group, group_bytes = [], 0
        group.append(file)
        group_bytes += file.size_bytes
    if group:
        groups.append(tuple(group))
    return groups


def split_into_reads(
    files: Sequence[FileEntry], config: IngestConfig | VocabConfig, read_bytes: int
) -> list[ReadDescriptor]:
    """Cut one group of files into reads: a single file into ranges, several small ones into one read.

    Args:
        files: a group as `group_files` makes them.
        config: says the format.
        read_bytes: stored bytes in a read, about.

    Raises:
        UsageError: the format of a file is unknown.
        ClozelineError: a Parquet file can't be opened.
    """
    if len(files) > 1:
        pieces = tuple(_whole_piece(file, config) for file in files)
        return [ReadDescriptor(pieces, sum(file.size_bytes for file in files))]
    (file,) = files
    piece = _whole_piece(file, config)
    if piece.format == "parquet":
        return list(_split_row_groups(piece, read_bytes))
    if piece.format in _RANGED_FORMATS and piece.compression is None:
        return list(_split_bytes(piece, read_bytes))
    return [ReadDescriptor((piece,), file.size_bytes)]


def _whole_piece(file: FileEntry, config: IngestConfig | VocabConfig) -> ReadPiece:
    document_format, compression = detect_format(file.path, config)
    return ReadPiece(file.path, document_format, compression, 0, None, file.size_bytes)


def _split_bytes(piece: ReadPiece, read_bytes: int) -> Iterator[ReadDescriptor]:
    # Equal ranges rather than full ones and a rest: the last read would be a straggler's opposite.
    num_reads = max(1, round(piece.file_size / read_bytes))
    bounds = [piece.file_size * i // num_reads for i in range(num_reads + 1)]
    for start, end in itertools.pairwise(bounds):
        yield ReadDescriptor((_part(piece, start, end),), end - start)


def _split_row_groups(piece: ReadPiece, read_bytes: int) -> Iterator[ReadDescriptor]:
    sizes = read_row_group_sizes(piece.path)
    start = 0
    size = 0
    for index, row_group_bytes in enumerate(sizes):
        if index > start and size + row_group_bytes > read_bytes:
            yield ReadDescriptor((_part(piece, start, index),), size)
            start, size = index, 0
        size += row_group_bytes
    if sizes:
        yield ReadDescriptor((_part(piece, start, len(sizes)),), size)


def _part(piece: ReadPiece, start: int, end: int) -> ReadPiece:
    return ReadPiece(piece.path, piece.format, piece.compression, start, end, piece.file_size)


def _split_suffix(path: str) -> tuple[str, str]:
    name = storage.base_name(path)
    stem, dot, suffix = name.rpartition(".")
    return (stem, f".{suffix.lower()}") if dot else (name, "")


def _explain_no_match(pattern: str) -> str:
    if storage.is_folder(pattern):
        return (
            f"--input {pattern} is a folder; expected a file or a glob\n"
            f"Name its files: --input '{pattern.rstrip('/')}/*'"
        )
    if any(character in pattern for character in "*?["):
        return f"--input {pattern} matches no file\nCheck the path, and quote the glob against the shell."
    if storage.exists(pattern):
        return (
            f"--input {pattern} is a pipe or a device; expected a file, which several workers can read\n"
            "Write what comes out of it to a file first."
        )
    return f"--input {pattern}: no such file"
