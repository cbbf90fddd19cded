"""Whether a corpus is what its manifest says.

In: an opened corpus. Out: a `CorpusVerification`: what was counted, and the faults found, each naming the
file. Every file is read once: its checksum, and of a Parquet file the schema, and of each row group the
digest, the counts and the ranges of its values. Memory: one row group, and a copy of a small file.
Deterministic: the same for any number of processes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from tempfile import SpooledTemporaryFile
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.row_groups import describe_row_group
from schemas.documents import tokenized_document_schema
from schemas.errors import ClozelineError, CorruptDataError
from schemas.manifests import TOKENIZER_NAME, CorpusFile, StoredFile
from trainer.data.example_arrays import list_values_and_lengths
from trainer.data.opener import ByteStream, join
from workflows.report.opening import Corpus, read_vocabulary
from workflows.verifying.dataset_checks import one_line
from workflows.verifying.folder_files import Progress, find_wrong_sizes, list_files
from workflows.verifying.processes import spread

_FILE_NAME = re.compile(r"(train|validation)/.+\.parquet|rejects/.+\.jsonl")
_READ_BYTES = 8 << 20
# A larger file is kept on disk while it is checked.
_MOST_BYTES_IN_MEMORY = 64 << 20


@dataclass(frozen=True)
class CorpusVerification:
    """The outcome.

    Attributes:
        num_files: Parquet files looked at; those of rejected documents come on top.
        num_documents: documents in those that are sound.
        num_tokens: their tokens.
        faults: one line each; none means that everything holds.
        listed: whether the folder could be listed, so that files too many were found.
    """

    num_files: int
    num_documents: int
    num_tokens: int
    faults: tuple[str, ...]
    listed: bool


def verify_corpus(
    corpus: Corpus, progress: Progress, workers: int = 1, *, sizes_only: bool = False
) -> CorpusVerification:
    """Check every file and every document.

    Args:
        corpus: an opened corpus.
        progress: called with (files done, files in all).
        workers: processes to spread the files over.
        sizes_only: look at names and sizes and read nothing.

    Raises:
        ClozelineError: a process died.
    """
    parquet_files = corpus.manifest.files
    files: tuple[StoredFile, ...] = (*parquet_files, *corpus.manifest.rejects)
    expected: dict[str, int | None] = {TOKENIZER_NAME: None, **{file.name: file.size_bytes for file in files}}
    found = list_files(corpus.url, expected)
    faults = list(found.find_strays(expected, _FILE_NAME)) if found is not None else []
    sound: set[int] = set()
    if sizes_only:
        faults += find_wrong_sizes(corpus.url, expected, found, progress)
    else:
        faults += _check_tokenizer(corpus)
        order = sorted(range(len(files)), key=lambda number: -files[number].size_bytes)
        work = partial(check_file, corpus.url, corpus.manifest.tokenizer.vocab_size)
        fault_of: dict[int, str | None] = {}
        for number, fault in spread(work, [files[number] for number in order], workers):
            fault_of[order[number]] = fault
            progress(len(fault_of), len(files))
        sound = {number for number, fault in fault_of.items() if fault is None}
        faults += [fault for _, fault in sorted(fault_of.items()) if fault is not None]
    groups = [
        group for number, file in enumerate(parquet_files) if number in sound for group in file.row_groups
    ]
    return CorpusVerification(
        num_files=len(parquet_files),
        num_documents=sum(group.num_documents for group in groups),
        num_tokens=sum(group.num_tokens for group in groups),
        faults=tuple(faults),
        listed=found is not None,
    )


def check_file(url: str, vocab_size: int, file: StoredFile) -> str | None:
    """The first fault of one file; None where it is sound."""
    where = join(url, file.name)
    try:
        with SpooledTemporaryFile(_MOST_BYTES_IN_MEMORY) as copy:
            _copy_checked(where, file, copy)
            copy.seek(0)
            if not isinstance(file, CorpusFile):
                return None
            for fault in _find_faults(copy, vocab_size, file):
                return f"{where}: {fault}"
    except FileNotFoundError:
        return f"{where} is missing, though the manifest lists it."
    except ClozelineError as error:
        return one_line(error)
    except (pa.ArrowException, ValueError, OSError) as error:
        return f"{where} can't be read as Parquet: {' '.join(str(error).split())[:200]}"
    return None


def _copy_checked(where: str, file: StoredFile, copy: IO[bytes]) -> None:
    digest, size = hashlib.sha256(), 0
    with ByteStream(where) as stream:
        # One byte more than expected tells a file that is longer.
        while piece := stream.read(min(_READ_BYTES, file.size_bytes + 1 - size)):
            size += len(piece)
            digest.update(piece)
            copy.write(piece)
    if size != file.size_bytes:
        state = "is truncated" if size < file.size_bytes else "was changed"
        found = f"{size:,}" if size < file.size_bytes else "more"
        raise CorruptDataError(
            f"{where} {state}: it has {found} bytes, the manifest says {file.size_bytes:,}.\n"
            f"Copy it anew, or make the corpus again."
        )
    if digest.hexdigest() != file.sha256:
        raise CorruptDataError(
            f"{where} was changed: its SHA-256 is {digest.hexdigest()[:12]}…, the manifest says "
            f"{file.sha256[:12]}….\nCopy it anew, or make the corpus again."
        )


def _find_faults(content: IO[bytes], vocab_size: int, file: CorpusFile) -> Iterator[str]:
    expected = tokenized_document_schema(vocab_size)
    with pq.ParquetFile(content) as parquet:
        if not parquet.schema_arrow.equals(expected):
            yield f"its columns are {parquet.schema_arrow}, expected {expected}"
            return
        if parquet.num_row_groups != len(file.row_groups):
            number = len(file.row_groups)
            yield f"it has {parquet.num_row_groups:,} row groups, the manifest says {number:,}"
            return
        for index, record in enumerate(file.row_groups):
            documents = parquet.read_row_group(index, use_threads=False).combine_chunks()
            if describe_row_group(documents) != record:
                yield f"row group {index:,} is not what the manifest says"
            for fault in _find_value_faults(documents, vocab_size):
                yield f"row group {index:,}: {fault}"


def _find_value_faults(documents: pa.Table, vocab_size: int) -> Iterator[str]:
    for batch in documents.to_batches():
        token_ids, num_tokens = list_values_and_lengths(batch.column("token_ids"))
        lengths, num_sentences = list_values_and_lengths(batch.column("sentence_lengths"))
        if token_ids.max(initial=0) >= vocab_size:
            yield f"a token id is {token_ids.max():,}, the vocabulary has {vocab_size:,}"
        if lengths.min(initial=1) < 1:
            yield "a sentence has no token"
        rows = np.repeat(np.arange(batch.num_rows), num_sentences)
        if (np.bincount(rows, weights=lengths, minlength=batch.num_rows) != num_tokens).any():
            yield "the sentences of a document have other tokens than it"


def _check_tokenizer(corpus: Corpus) -> Iterator[str]:
    try:
        read_vocabulary(corpus)
    except ClozelineError as error:
        yield one_line(error)
