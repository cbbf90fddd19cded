"""The step of the `vocab` job that counts words, and what it leaves for the launching process.

In: reads. Out: for each of them a table of counts in the work folder, and a record of what was read.
Deterministic: the counts follow from the read and the configuration.
"""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam
import pyarrow as pa
import pyarrow.compute as pc

from pipelines import storage
from pipelines.hashing_writer import describe
from pipelines.readers import read_documents
from pipelines.reads import ReadDescriptor
from pipelines.vocabulary_sample import sample_texts
from pipelines.word_counts import WordCounter
from pipelines.work_folder import WORK_FOLDER_NAME, WorkFolder
from schemas.configs import VocabConfig


class CountWords(beam.PTransform):
    """Reads -> names of the reads whose words are counted, in `_work/`.

    Args:
        work: the output folder.
        config: the seed, and how to read.
        fraction: share of the documents in the sample.
    """

    def __init__(self, work: WorkFolder, config: VocabConfig, fraction: float) -> None:
        super().__init__()
        self._fn = CountWordsFn(work, config, fraction)

    def expand(self, reads: beam.PCollection) -> beam.PCollection:
        """ReadDescriptor -> str."""
        return reads | "BreakFusion" >> beam.Reshuffle() | "CountRead" >> beam.ParDo(self._fn)


@beam.typehints.with_input_types(ReadDescriptor)
@beam.typehints.with_output_types(str)
class CountWordsFn(beam.DoFn):
    """Counts the words of a read, unless that was done before."""

    def __init__(self, work: WorkFolder, config: VocabConfig, fraction: float) -> None:
        self._work = work
        self._config = config
        self._fraction = fraction

    def process(self, read: ReadDescriptor) -> Iterator[str]:
        """Write the counts of one read and its sidecar."""
        if self._work.load_finished(read.name) is None:
            self._count(read)
        yield read.name

    def _count(self, read: ReadDescriptor) -> None:
        counter = WordCounter()
        num_documents = num_text_bytes = num_rejected = num_bytes_read = 0
        for batch in read_documents(read, self._config):
            found = batch.table["text"].combine_chunks()
            texts = sample_texts(found, self._config.seed, self._fraction)
            counter.add_texts(texts)
            num_documents += len(texts)
            num_text_bytes += _count_bytes(texts)
            num_bytes_read += _count_bytes(found)
            num_rejected += len(batch.rejected)
        name = _counts_name(read.name)
        with self._work.write_file(name) as stream:
            table = counter.to_table()
            with pa.ipc.new_stream(stream, table.schema) as writer:
                writer.write_table(table)
        record = {
            "num_documents": num_documents,
            "num_text_bytes": num_text_bytes,
            "num_rejected": num_rejected,
            "num_bytes_read": num_bytes_read,
        }
        self._work.finish(read.name, [describe(name, stream)], record)


def load_counts(work: WorkFolder, read_name: str) -> pa.Table:
    """The counts of a read: a table of `word_counts.WORD_COUNT_SCHEMA`."""
    path = storage.join(work.output, *_counts_name(read_name).split("/"))
    return pa.ipc.open_stream(storage.read_bytes(path)).read_all()


def _counts_name(read_name: str) -> str:
    return f"{WORK_FOLDER_NAME}/{read_name}.arrow"


def _count_bytes(texts: pa.Array) -> int:
    return int(pc.sum(pc.binary_length(texts)).as_py() or 0)
