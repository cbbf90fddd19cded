"""The quantities of an `ingest` and a `build` on paper: `python -m tests.benchmarks.scale` prints the table.

In: bytes of input, lying in equal JSONL files. Out: reads, files, row groups, pools, requests, sizes,
computed from the constants of the code and from the shares in `Shares`. Deterministic. docs/scale.md shows
the table and explains the formulas; a test holds the two together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from pipelines.duplicates import HASH_RECORD, MAX_COMPARED_DOCUMENTS, NUM_BUCKETS
from pipelines.pools import choose_num_pools
from pipelines.reads import MAX_READ_BYTES, MIN_READ_BYTES
from pipelines.row_groups import choose_row_group_tokens
from pipelines.work_folder import READING_THREADS
from schemas.configs import IngestConfig

SIZES = (10**11, 10**12, 10**13)
READ_BUFFER_BYTES = 1 << 24
"""What Beam's gs:// and s3:// streams ask for at a time (read in Beam 2.77's gcsio.py and s3io.py)."""
REQUEST_SECONDS = 0.03
"""Assumed: one request to an object store, of which one thread makes one after another."""


@dataclass(frozen=True, kw_only=True)
class Shares:
    """What the text is like: measured on the first 40 MB of the benchmark corpus, rounded."""

    file_bytes: int = 10**9
    document_bytes: float = 8500.0
    tokens_a_byte: float = 0.233
    corpus_bytes_a_token: float = 1.01
    dataset_bytes_a_token: float = 2.7
    bytes_a_second: float = 6e6
    manifest_bytes_a_file: int = 205
    manifest_bytes_a_rejects_file: int = 159
    manifest_bytes_a_row_group: int = 127
    manifest_bytes_a_shard: int = 600
    plan_bytes_a_row_group: int = 161


@dataclass(frozen=True)
class Scale:
    """The quantities for one size of input."""

    num_input_bytes: int
    shares: Shares = Shares()

    @property
    def num_documents(self) -> float:
        return self.num_input_bytes / self.shares.document_bytes

    @property
    def num_tokens(self) -> float:
        return self.num_input_bytes * self.shares.tokens_a_byte

    @property
    def num_reads(self) -> int:
        read_bytes = max(MIN_READ_BYTES, min(self.num_input_bytes // 64, MAX_READ_BYTES))
        num_files = self.num_input_bytes // self.shares.file_bytes
        return num_files * max(1, round(self.shares.file_bytes / read_bytes))

    @property
    def num_ingest_requests(self) -> int:
        """Every read is read twice, once to be hashed for duplicates."""
        return 2 * self.num_reads * math.ceil(self.num_input_bytes / self.num_reads / READ_BUFFER_BYTES)

    @property
    def num_corpus_files(self) -> int:
        """A file of `train`, one of `validation` and one of rejected documents a read."""
        return 3 * self.num_reads

    @property
    def num_row_groups(self) -> int:
        held_out = IngestConfig.model_fields["validation_fraction"].default
        tokens_a_read = self.num_tokens / self.num_reads
        wanted = choose_row_group_tokens(self.num_input_bytes)
        return self.num_reads * sum(
            math.ceil(tokens_a_read * share / wanted) for share in (1 - held_out, held_out)
        )

    @property
    def corpus_manifest_bytes(self) -> int:
        shares = self.shares
        files = self.num_reads * (2 * shares.manifest_bytes_a_file + shares.manifest_bytes_a_rejects_file)
        return files + self.num_row_groups * self.shares.manifest_bytes_a_row_group

    @property
    def num_duplicate_ranges(self) -> int:
        return min(NUM_BUCKETS, math.ceil(self.num_documents / MAX_COMPARED_DOCUMENTS))

    @property
    def hash_bytes(self) -> float:
        return self.num_documents * HASH_RECORD.itemsize

    @property
    def num_duplicate_requests(self) -> int:
        """Each range opens the hashes of each read twice; each read opens the repeats of each range twice."""
        return 4 * self.num_reads * self.num_duplicate_ranges

    @property
    def duplicate_seconds_a_read(self) -> float:
        return 2 * self.num_duplicate_ranges * REQUEST_SECONDS

    @property
    def duplicate_seconds_a_range(self) -> float:
        return 2 * self.num_reads * REQUEST_SECONDS

    @property
    def num_pools(self) -> int:
        held_out = IngestConfig.model_fields["validation_fraction"].default
        return sum(choose_num_pools(int(self.num_tokens * share)) for share in (1 - held_out, held_out))

    @property
    def row_groups_a_pool(self) -> float:
        return self.num_row_groups / self.num_pools

    @property
    def num_build_requests(self) -> int:
        """For each row group, which seldom shares a file with others of its pool: footer and columns."""
        return 2 * self.num_row_groups

    @property
    def build_input_bytes(self) -> float:
        """A request goes from the row group to the end of its buffer or its file: half a file on average."""
        held_out = IngestConfig.model_fields["validation_fraction"].default
        tokens = (1 - held_out) * self.num_tokens / self.num_reads
        file_bytes = tokens * self.shares.corpus_bytes_a_token
        return self.num_row_groups * min(READ_BUFFER_BYTES, file_bytes / 2)

    @property
    def shard_bytes(self) -> float:
        return self.num_tokens / self.num_pools * self.shares.dataset_bytes_a_token

    @property
    def dataset_manifest_bytes(self) -> int:
        return self.num_pools * self.shares.manifest_bytes_a_shard

    @property
    def build_plan_bytes(self) -> int:
        return self.num_row_groups * self.shares.plan_bytes_a_row_group

    @property
    def commit_seconds(self) -> float:
        """`build`'s last step looks for the record of each pool and reads it, some at a time."""
        return 2 * self.num_pools * REQUEST_SECONDS / READING_THREADS

    @property
    def core_hours(self) -> float:
        return self.num_input_bytes / self.shares.bytes_a_second / 3600


ROWS: tuple[tuple[str, Callable[[Scale], float]], ...] = (
    ("documents", lambda scale: scale.num_documents),
    ("tokens", lambda scale: scale.num_tokens),
    ("reads: work items of `ingest`", lambda scale: scale.num_reads),
    ("range requests of `ingest`", lambda scale: scale.num_ingest_requests),
    ("files of the corpus", lambda scale: scale.num_corpus_files),
    ("bytes of the corpus", lambda scale: scale.num_tokens * scale.shares.corpus_bytes_a_token),
    ("row groups", lambda scale: scale.num_row_groups),
    ("bytes of `corpus.json`", lambda scale: scale.corpus_manifest_bytes),
    ("bytes of hashes, for duplicates", lambda scale: scale.hash_bytes),
    ("ranges of hashes", lambda scale: scale.num_duplicate_ranges),
    ("requests for duplicates", lambda scale: scale.num_duplicate_requests),
    ("… seconds a read waits for them", lambda scale: scale.duplicate_seconds_a_read),
    ("… seconds a range waits for them", lambda scale: scale.duplicate_seconds_a_range),
    ("pools: work items of `build`, and shards", lambda scale: scale.num_pools),
    ("row groups in a pool", lambda scale: scale.row_groups_a_pool),
    ("range requests of `build`", lambda scale: scale.num_build_requests),
    ("bytes that they move", lambda scale: scale.build_input_bytes),
    ("bytes of the plan of `build`", lambda scale: scale.build_plan_bytes),
    ("bytes of a shard", lambda scale: scale.shard_bytes),
    ("bytes of the dataset", lambda scale: scale.shard_bytes * scale.num_pools),
    ("bytes of `dataset.json`", lambda scale: scale.dataset_manifest_bytes),
    ("seconds of the last step of `build`", lambda scale: scale.commit_seconds),
    ("core hours in all", lambda scale: scale.core_hours),
)


def format_table() -> str:
    """The quantities for `SIZES` as a Markdown table."""
    titles = [f"{size / 1e12:g} TB" for size in SIZES]
    lines = ["| quantity | " + " | ".join(titles) + " |", "| --- |" + " ---: |" * len(titles)]
    for name, quantity in ROWS:
        lines.append(f"| {name} | " + " | ".join(_shorten(quantity(Scale(size))) for size in SIZES) + " |")
    return "\n".join(lines)


def _shorten(number: float) -> str:
    for divisor, suffix in ((1e12, " T"), (1e9, " G"), (1e6, " M")):
        if number >= divisor:
            return f"{number / divisor:.3g}{suffix}"
    return f"{round(number):,}" if number >= 100 else f"{number:.3g}"


if __name__ == "__main__":
    print(format_table())
