"""The steps of the `build` job as Beam transforms around pure functions.

In: pool descriptors. Out: shards, their records in the work folder, and the manifest. Deterministic: every
random stream is keyed by the seed, the step and the name of the pool, so the bytes of a shard depend on
neither the runner nor the worker, nor on other pools.

The steps of a pool are fused: its arrays pass from one to the next by reference, as the tables of a
`TableBatch`. Only descriptors and names of finished pools cross from one worker to another.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, cast

import apache_beam as beam
import pyarrow as pa

from pipelines.examples import make_blocks, masking_vocabulary
from pipelines.hashing_writer import HashingWriter, describe
from pipelines.masking import MaskingVocabulary
from pipelines.pairing import Pairs, sample_pairs
from pipelines.pool_reader import read_pool
from pipelines.pool_tokens import PoolTokens
from pipelines.pools import PoolDescriptor
from pipelines.shard_record import DatasetDraft, ShardCounts
from pipelines.shard_writer import ShardWriter
from pipelines.table_batch import TableBatch
from pipelines.tokenizer_files import load_tokenizer
from pipelines.work_folder import WorkFolder
from schemas.configs import BuildConfig
from schemas.manifests import DATASET_MANIFEST_NAME, dump_manifest
from schemas.seeding import RandomStream


@beam.typehints.with_output_types(TableBatch)
class ReadPoolFn(beam.DoFn):
    """Reads the tokens of a pool."""

    def __init__(self, corpus: str, vocab_size: int) -> None:
        self._corpus = corpus
        self._vocab_size = vocab_size

    def process(self, pool: PoolDescriptor) -> Iterator[TableBatch]:
        """The tables of `PoolTokens.to_flat_tables`."""
        yield TableBatch(work=pool, tables=read_pool(self._corpus, pool, self._vocab_size).to_flat_tables())


@beam.typehints.with_output_types(TableBatch)
class SamplePairsFn(beam.DoFn):
    """Adds the table `pairs`."""

    def __init__(self, config: BuildConfig) -> None:
        self._config = config

    def process(self, batch: TableBatch) -> Iterator[TableBatch]:
        """The pool with its pairs in the order of its documents."""
        stream = RandomStream(self._config.seed, "pairs", batch.work.name)
        pairs = sample_pairs(PoolTokens.from_flat_tables(batch.tables), self._config, stream)
        notes = {
            "num_documents_unused": pairs.num_documents_unused,
            "expected_not_next": pairs.expected_not_next,
        }
        yield TableBatch(work=batch.work, tables={**batch.tables, "pairs": pairs.to_table()}, notes=notes)


@beam.typehints.with_output_types(TableBatch)
class ShuffleExamplesFn(beam.DoFn):
    """Puts the pairs into their final order. Before masking, so that tokens need not be moved twice."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def process(self, batch: TableBatch) -> Iterator[TableBatch]:
        """The pool with its pairs shuffled."""
        pairs = batch.tables["pairs"]
        order = RandomStream(self._seed, "order", batch.work.name).permutation(pairs.num_rows)
        shuffled = pairs.take(pa.array(order))
        yield TableBatch(work=batch.work, tables={**batch.tables, "pairs": shuffled}, notes=batch.notes)


@beam.typehints.with_output_types(TableBatch)
class MaskTokensFn(beam.DoFn):
    """Gathers and masks the tokens of the pairs, a block at a time."""

    def __init__(self, config: BuildConfig, tokenizer: str) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._vocabulary: MaskingVocabulary | None = None

    def setup(self) -> None:
        """Read the vocabulary once a worker."""
        tokenizer, record, _ = load_tokenizer(self._tokenizer)
        self._vocabulary = masking_vocabulary(tokenizer, record)

    def process(self, batch: TableBatch) -> Iterator[TableBatch]:
        """A batch a block, with the table `examples` and its counts; one without tables for no pairs."""
        tokens = PoolTokens.from_flat_tables(batch.tables)
        pairs = Pairs.from_table(batch.tables["pairs"], batch.notes["num_documents_unused"])
        if len(pairs) == 0:
            yield TableBatch(work=batch.work, tables={}, notes=batch.notes)
            return
        stream = RandomStream(self._config.seed, "masks", batch.work.name)
        vocabulary = cast("MaskingVocabulary", self._vocabulary)
        num_blocks = -(-len(pairs) // self._config.examples_per_block)
        for index, block in enumerate(make_blocks(tokens, pairs, self._config, vocabulary, stream)):
            yield TableBatch(
                work=batch.work,
                tables={"examples": pa.Table.from_batches([block.examples])},
                sequence=index,
                is_last=index == num_blocks - 1,
                notes={**batch.notes, "masking": block.masking},
            )


@beam.typehints.with_output_types(str)
class WriteShardFn(beam.DoFn):
    """Writes the blocks of a pool, which come one after another, into its shard."""

    def __init__(self, work: WorkFolder) -> None:
        self._work = work
        self._open: _OpenShard | None = None

    def process(self, batch: TableBatch) -> Iterator[str]:
        """The name of the pool, once its shard is whole."""
        pool: PoolDescriptor = batch.work
        if batch.sequence == 0:
            self._discard()
            self._open = _OpenShard(self._work, pool)
        shard = self._open
        if shard is None or not shard.expects(pool, batch.sequence):
            raise RuntimeError(
                f"block {batch.sequence} of {pool.name} came out of order: its steps must stay fused"
            )
        shard.write(batch)
        if batch.is_last:
            shard.finish(batch.notes["num_documents_unused"], batch.notes["expected_not_next"])
            self._open = None
            yield pool.name

    def finish_bundle(self) -> None:
        """Remove a shard that was begun and not finished."""
        self._discard()

    def teardown(self) -> None:
        """As after a bundle; also after one that failed."""
        self._discard()

    def _discard(self) -> None:
        if self._open is not None:
            self._open.discard()
            self._open = None


class _OpenShard:
    """A shard that is being written, and what was counted so far."""

    def __init__(self, work: WorkFolder, pool: PoolDescriptor) -> None:
        self._work = work
        self._pool = pool
        self._counts = ShardCounts()
        self._next = 0
        self._files = contextlib.ExitStack()
        self._stream: HashingWriter | None = None
        self._writer: ShardWriter | None = None

    def expects(self, pool: PoolDescriptor, sequence: int) -> bool:
        return (pool.name, sequence) == (self._pool.name, self._next)

    def write(self, batch: TableBatch) -> None:
        self._next += 1
        for block in batch.tables["examples"].to_batches() if batch.tables else ():
            if self._writer is None:
                self._stream = self._files.enter_context(self._work.write_file(self._pool.shard_name))
                self._writer = ShardWriter(cast("Any", self._stream), self._pool.name)
            self._writer.write_block(block)
            self._counts.add(block, batch.notes["masking"])

    def finish(self, num_documents_unused: int, expected_not_next: float | None) -> None:
        written = []
        record: dict[str, Any] = {"shard": None, "num_documents_unused": num_documents_unused}
        if self._writer is not None and self._stream is not None:
            self._writer.close()
            file = describe(self._pool.shard_name, self._stream)
            shard = self._counts.to_record(
                self._pool, file, self._writer.num_blocks, num_documents_unused, expected_not_next
            )
            record["shard"] = shard.model_dump(mode="json")
            written.append(file)
        self._files.close()
        self._work.finish(self._pool.name, written, record)

    def discard(self) -> None:
        with contextlib.suppress(_DiscardedError), self._files:
            raise _DiscardedError


class _DiscardedError(Exception):
    """Leaves the block that writes a file, so that the file is removed."""


@beam.typehints.with_output_types(bool)
class CommitDatasetFn(beam.DoFn):
    """Reads the records of all pools and writes `dataset.json`."""

    def __init__(self, work: WorkFolder, draft: DatasetDraft) -> None:
        self._work = work
        self._draft = draft

    def process(self, num_finished: int) -> Iterator[bool]:
        """True when the manifest is there; False, and nothing written, where `train` has no example."""
        if num_finished != len(self._draft.pool_names):
            raise RuntimeError(
                f"{num_finished} pools are finished, but there are {len(self._draft.pool_names)}"
            )
        manifest = self._draft.complete(self._work.read_records(self._draft.pool_names))
        if manifest is not None:
            self._work.commit(DATASET_MANIFEST_NAME, dump_manifest(manifest))
        yield manifest is not None
