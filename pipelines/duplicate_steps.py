"""The steps of `ingest` that find repeated documents, before any of them is tokenized.

In: the plan. Out: files in the work folder that say which rows of which read repeat an earlier text.
Deterministic: `pipelines.duplicates` says why; the order of the reads is that of their paths and offsets.

Documents are read twice, once to be hashed. Reading is some thirty times as fast as tokenizing, and only
names and counts cross from one worker to another.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from hashlib import blake2b
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipelines import storage
from pipelines.duplicates import (
    HASH_RECORD,
    divide_buckets,
    find_repeats,
    hash_texts,
    read_hashes,
    read_repeats,
    write_hashes,
    write_repeats,
)
from pipelines.hashing_writer import describe
from pipelines.ingest_plan import load_plan
from pipelines.readers import read_documents
from pipelines.reads import ReadDescriptor
from pipelines.work_folder import WORK_FOLDER_NAME, WorkFolder
from schemas.configs import IngestConfig
from schemas.errors import ClozelineError

_FINGERPRINT_BYTES = 16


class ReadOrder:
    """The reads of a job in the order of paths and offsets, and what is known of repeats in each.

    Args:
        work: of the job.
        plan_path: lists its reads.
    """

    def __init__(self, work: WorkFolder, plan_path: str) -> None:
        self._work = work
        self._plan_path = plan_path

    @cached_property
    def names(self) -> list[str]:
        """The names of all reads."""
        reads = sorted(load_plan(self._plan_path), key=lambda read: (read.path, read.pieces[0].start))
        return [read.name for read in reads]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def load_repeats(self, read: ReadDescriptor, pieces: list[str]) -> NDArray[np.uint32]:
        """The rows of a read that repeat an earlier text: uint32, ascending.

        Args:
            read: which read.
            pieces: names of what `FindRepeatsFn` wrote.
        """
        paths = [storage.join(self._work.path, piece) for piece in pieces]
        return read_repeats(paths, self._places[read.name], len(self.names))

    def check_texts(self, read: ReadDescriptor, fingerprint: str) -> None:
        """See that a read gave the texts that were compared with those of the other reads.

        Args:
            read: which read.
            fingerprint: of what it gave now.

        Raises:
            ClozelineError: it gave others, so what is known of repeats is wrong, for other reads too.
        """
        (record,) = self._work.read_records([_hash_piece(read.name)])
        if record["fingerprint"] != fingerprint:
            others = f" or one of {len(read.pieces) - 1} files after it" if len(read.pieces) > 1 else ""
            raise ClozelineError(
                f"{read.path}{others} was changed after it was first read\n"
                "Begin anew with --overwrite: repeated documents were looked for in what stood there before."
            )


class TextsFingerprint:
    """Tells the texts of a read, in their order, from any others, however they are cut into batches."""

    def __init__(self) -> None:
        self._digest = blake2b(digest_size=_FINGERPRINT_BYTES)
        self.num_documents = 0

    def add(self, texts: pa.Array) -> NDArray[np.void]:
        """Take the next texts in; returns their hashes."""
        hashes = hash_texts(texts, self.num_documents)
        self.num_documents += len(texts)
        self._digest.update(hashes.tobytes())
        return hashes

    @property
    def value(self) -> str:
        """Of the texts so far, in hexadecimal."""
        return self._digest.hexdigest()


class FindDuplicates(beam.PTransform):
    """From reads to the names of the pieces of work that list repeats: few, for a side input."""

    def __init__(self, work: WorkFolder, config: IngestConfig, order: ReadOrder) -> None:
        super().__init__()
        self._work = work
        self._config = config
        self._order = order

    def expand(self, reads: beam.PCollection) -> beam.PCollection:
        """Repeats are looked for when all reads are hashed, which the sum of their documents waits for.

        There is a read at least, so no sum needs to be made of nothing: that would take as many steps again.
        """
        return (
            reads
            | "HashDocuments" >> beam.ParDo(HashDocumentsFn(self._work, self._config))
            | "CountDocuments" >> beam.CombineGlobally(sum).without_defaults()
            | "DivideBuckets" >> beam.FlatMap(divide_buckets).with_output_types(tuple[int, int])
            | "Spread" >> beam.Reshuffle()
            | "FindRepeats" >> beam.ParDo(FindRepeatsFn(self._work, self._order))
        )


@beam.typehints.with_output_types(int)
class HashDocumentsFn(beam.DoFn):
    """Writes the hashes of a read's documents; yields how many there are."""

    def __init__(self, work: WorkFolder, config: IngestConfig) -> None:
        self._work = work
        self._config = config

    def process(self, read: ReadDescriptor) -> Iterator[int]:
        """Hash a read, unless an earlier run did."""
        piece = _hash_piece(read.name)
        record = self._work.load_finished(piece)
        if record is None:
            record = self._write(read, piece)
        yield record["num_documents"]

    def _write(self, read: ReadDescriptor, piece: str) -> dict[str, Any]:
        fingerprint = TextsFingerprint()
        batches = read_documents(read, self._config)
        parts = [fingerprint.add(batch.table["text"].combine_chunks()) for batch in batches]
        name = f"{WORK_FOLDER_NAME}/{piece}"
        with self._work.write_file(name) as stream:
            write_hashes(stream, np.concatenate([*parts, np.empty(0, HASH_RECORD)]))
        record = {"num_documents": fingerprint.num_documents, "fingerprint": fingerprint.value}
        self._work.finish(piece, [describe(name, stream)], record)
        return record


@beam.typehints.with_output_types(str)
class FindRepeatsFn(beam.DoFn):
    """Compares a range of buckets of all reads; yields the name of the piece that lists the repeats."""

    def __init__(self, work: WorkFolder, order: ReadOrder) -> None:
        self._work = work
        self._order = order

    def process(self, buckets: tuple[int, int]) -> Iterator[str]:
        """Find the repeats of a range, unless an earlier run did."""
        first, end = buckets
        piece = f"{first:03d}-{end:03d}.repeats"
        if self._work.load_finished(piece) is None:
            paths = [storage.join(self._work.path, _hash_piece(name)) for name in self._order.names]
            repeats = find_repeats([read_hashes(path, first, end) for path in paths])
            name = f"{WORK_FOLDER_NAME}/{piece}"
            with self._work.write_file(name) as stream:
                write_repeats(stream, repeats)
            self._work.finish(piece, [describe(name, stream)], {})
        yield piece


def split_repeats(
    documents: pa.Table, first_row: int, repeats: NDArray[np.uint32]
) -> tuple[pa.Table, pa.Table]:
    """Part a batch into the documents to keep and those that repeat an earlier one.

    Args:
        documents: of `DOCUMENT_SCHEMA`.
        first_row: the place of the first one among the documents of its read.
        repeats: uint32, ascending: the rows of the read that repeat an earlier text.
    """
    start, end = np.searchsorted(repeats, [first_row, first_row + documents.num_rows])
    if start == end:
        return documents, documents.slice(0, 0)
    is_repeat = np.zeros(documents.num_rows, np.bool_)
    is_repeat[repeats[start:end] - first_row] = True
    return documents.filter(pa.array(~is_repeat)), documents.filter(pa.array(is_repeat))


def _hash_piece(read_name: str) -> str:
    return f"{read_name}.hashes"
