"""What an `ingest` has to do, known before any worker starts.

In: a configuration. Out: the list of reads. Deterministic: it follows from the configuration and the
listing of the inputs (paths and sizes).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

from pipelines import storage
from pipelines.reads import (
    ReadDescriptor,
    ReadPiece,
    check_formats,
    choose_read_bytes,
    expand_inputs,
    group_files,
    split_into_reads,
)
from schemas.configs import IngestConfig

_PLANNING_THREADS = 16


@dataclass(frozen=True, kw_only=True)
class IngestPlan:
    """What is to be done, known before any worker starts.

    Attributes:
        reads: the pieces of work, largest first.
        num_input_files: files that the inputs name.
        num_input_bytes: their stored bytes.
    """

    reads: tuple[ReadDescriptor, ...]
    num_input_files: int
    num_input_bytes: int


def plan_ingest(config: IngestConfig) -> IngestPlan:
    """List the inputs and cut them into reads.

    Raises:
        UsageError: an input is missing, a folder, or of an unknown format.
        ClozelineError: a Parquet file can't be opened.
    """
    files = expand_inputs(config.inputs)
    check_formats(files, config)
    read_bytes = choose_read_bytes(files)
    # Cutting a Parquet file means reading its footer: the only slow thing here, and all of it waiting.
    with ThreadPoolExecutor(_PLANNING_THREADS) as executor:
        groups = executor.map(
            lambda group: split_into_reads(group, config, read_bytes), group_files(files, read_bytes)
        )
        reads = [read for group in groups for read in group]
    return IngestPlan(
        reads=tuple(sorted(reads, key=lambda read: (-read.size_bytes, read.name))),
        num_input_files=len(files),
        num_input_bytes=sum(file.size_bytes for file in files),
    )


def dump_plan(reads: Iterable[ReadDescriptor]) -> bytes:
    """One JSON object a line for each read."""
    return b"".join(json.dumps(asdict(read), sort_keys=True).encode() + b"\n" for read in reads)


def load_plan(path: str) -> Iterator[ReadDescriptor]:
    """The reads that `dump_plan` wrote, in their order."""
    for line in storage.read_bytes(path).splitlines():
        fields = json.loads(line)
        pieces = tuple(ReadPiece(**piece) for piece in fields.pop("pieces"))
        yield ReadDescriptor(pieces=pieces, **fields)
