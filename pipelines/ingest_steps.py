"""The steps of `ingest` inside a worker: read, segment, tokenize, write.

In: reads. Out: a record of what each read wrote. Deterministic: each step follows from its input alone.
Between the steps flow `TableBatch`es of a few MB, by reference; all batches of a read come in order, and
before those of the next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines import storage
from pipelines.corpus_manifest import Record
from pipelines.corpus_writer import CorpusWriter
from pipelines.duplicate_steps import ReadOrder, TextsFingerprint, split_repeats
from pipelines.readers import read_documents
from pipelines.reads import ReadDescriptor
from pipelines.rejections import DUPLICATE, NO_TOKENS, RejectedDocument
from pipelines.segmentation import choose_segmenter, segment_documents
from pipelines.splits import mark_validation
from pipelines.table_batch import TableBatch
from pipelines.tokenization import SentenceTokenizer
from pipelines.work_folder import WorkFolder
from schemas.configs import IngestConfig
from schemas.documents import DOCUMENT_SCHEMA, tokenized_document_schema
from schemas.errors import CorruptDataError
from schemas.manifests import TokenizerRecord


@beam.typehints.with_output_types(TableBatch)
class ReadDocumentsFn(beam.DoFn):
    """Reads documents: tables `documents` (`DOCUMENT_SCHEMA`), notes `rejected`."""

    def __init__(self, config: IngestConfig, order: ReadOrder | None = None) -> None:
        self._config = config
        self._order = order

    def process(self, read: ReadDescriptor, repeat_pieces: list[str] | None = None) -> Iterator[TableBatch]:
        """Yield the documents of a read, the last batch marked as such; at least one batch.

        Args:
            read: what to read.
            repeat_pieces: what lists the documents that repeat an earlier one; None keeps them.
        """
        repeats = np.empty(0, np.uint32)
        if self._order is not None and repeat_pieces is not None:
            repeats = self._order.load_repeats(read, repeat_pieces)
        texts = TextsFingerprint()
        waiting = TableBatch(
            work=read.name, tables={"documents": DOCUMENT_SCHEMA.empty_table()}, notes={"rejected": ()}
        )
        for sequence, batch in enumerate(read_documents(read, self._config)):
            if sequence:
                yield waiting
            documents, repeated = split_repeats(batch.table, texts.num_documents, repeats)
            if self._order is not None:
                texts.add(batch.table["text"].combine_chunks())
            duplicates = [
                RejectedDocument(document_id, DUPLICATE, "its text is that of an earlier document")
                for document_id in repeated["document_id"].to_pylist()
            ]
            waiting = TableBatch(
                work=read.name,
                tables={"documents": documents},
                sequence=sequence,
                is_last=False,
                notes={"rejected": (*batch.rejected, *duplicates)},
            )
        if self._order is not None:
            self._order.check_texts(read, texts.value)
        yield _replace(waiting, is_last=True)


@beam.typehints.with_output_types(TableBatch)
class SegmentSentencesFn(beam.DoFn):
    """Adds the table `sentences`: one column of that name, a list of strings a document."""

    def __init__(self, config: IngestConfig) -> None:
        self._segmenter = choose_segmenter(config)
        self._language = config.language

    def process(self, batch: TableBatch) -> Iterator[TableBatch]:
        """Yield the batch with its sentences."""
        documents = batch.tables["documents"]
        sentences = segment_documents(documents["text"], self._segmenter, self._language)
        table = pa.table({"sentences": sentences})
        yield _replace(batch, tables={"documents": documents, "sentences": table})


@beam.typehints.with_output_types(TableBatch)
class TokenizeSentencesFn(beam.DoFn):
    """Turns sentences into token ids: tables `train` and `validation`, notes `rejected`, `num_text_bytes`."""

    def __init__(self, tokenizer_path: str, tokenizer: TokenizerRecord, validation_fraction: float) -> None:
        self._tokenizer_path = tokenizer_path
        self._record = tokenizer
        self._validation_fraction = validation_fraction

    def setup(self) -> None:
        """Load the tokenizer, once a worker."""
        content = storage.read_bytes(self._tokenizer_path)
        if hashlib.sha256(content).hexdigest() != self._record.sha256:
            raise CorruptDataError(
                f"{self._tokenizer_path} was changed while the work was going on\n"
                "Run the same command again; it writes the file anew."
            )
        self._tokenizer = SentenceTokenizer(content)
        self._tokenizer.set_up()
        self._schema = tokenized_document_schema(self._record.vocab_size)

    def process(self, batch: TableBatch) -> Iterator[TableBatch]:
        """Yield the tokenized documents by split; those without a token are rejected."""
        documents = batch.tables["documents"]
        tokens = self._tokenizer.tokenize(batch.tables["sentences"]["sentences"].combine_chunks())
        tokenized = pa.Table.from_arrays(
            [documents["document_id"].combine_chunks(), tokens.token_ids, tokens.sentence_lengths],
            schema=self._schema,
        )
        kept = tokens.token_ids.value_lengths().to_numpy(zero_copy_only=False) > 0
        held_out = mark_validation(documents["text"].combine_chunks(), self._validation_fraction)
        text_bytes = pc.binary_length(documents["text"]).to_numpy()
        rejected = [
            RejectedDocument(document_id, NO_TOKENS, "the tokenizer finds no token in the text")
            for document_id in documents["document_id"].filter(pa.array(~kept)).to_pylist()
        ]
        yield _replace(
            batch,
            tables={
                "train": tokenized.filter(pa.array(kept & ~held_out)),
                "validation": tokenized.filter(pa.array(kept & held_out)),
            },
            notes={
                "rejected": (*batch.notes["rejected"], *rejected),
                "num_text_bytes": int(np.sum(text_bytes[kept])),
            },
        )


@beam.typehints.with_output_types(dict)
class WriteCorpusFn(beam.DoFn):
    """Writes the files of each read and yields its record when its last batch has come."""

    def __init__(self, work: WorkFolder, *, vocab_size: int, row_group_tokens: int) -> None:
        self._work = work
        self._vocab_size = vocab_size
        self._row_group_tokens = row_group_tokens
        self._writer: CorpusWriter | None = None
        self._next: tuple[str, int] = ("", 0)

    def process(self, batch: TableBatch) -> Iterator[Record]:
        """Write a batch; yield the record of the read after its last one."""
        try:
            record = self._write(batch)
        except BaseException as error:
            self._abandon(error)
            raise
        if record is not None:
            yield record

    def teardown(self) -> None:
        """Remove the files of a read that another step broke off."""
        self._abandon(RuntimeError("broken off"))

    def _write(self, batch: TableBatch) -> Record | None:
        if self._writer is None:
            self._next = (batch.work, 0)
            self._writer = CorpusWriter(
                self._work, batch.work, vocab_size=self._vocab_size, row_group_tokens=self._row_group_tokens
            )
        if (batch.work, batch.sequence) != self._next:
            found = f"batch {batch.sequence} of read {batch.work}"
            raise RuntimeError(f"{found} came where batch {self._next[1]} of {self._next[0]} was expected")
        self._next = (batch.work, batch.sequence + 1)
        writer = self._writer
        writer.write("train", batch.tables["train"])
        writer.write("validation", batch.tables["validation"])
        writer.reject(batch.notes["rejected"])
        writer.count_text(batch.notes["num_text_bytes"])
        if not batch.is_last:
            return None
        self._writer = None
        with writer:
            return writer.finish()

    def _abandon(self, error: BaseException) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.__exit__(type(error), error, error.__traceback__)


def _replace(batch: TableBatch, **changes: Any) -> TableBatch:
    return TableBatch(**{**batch.__dict__, **changes})
