"""What a sample of a corpus's row groups holds.

In: an opened corpus. Out: a `CorpusSample`: lengths, tokens, a few documents, and how much was read. Memory:
one row group at a time. Every row group read is held to its digest. Beam is not needed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.row_groups import digest_row_group
from schemas.documents import tokenized_document_schema
from schemas.errors import CorruptDataError
from schemas.manifests import CorpusFile
from trainer.data.example_arrays import list_values_and_lengths
from trainer.data.opener import join, size_bytes
from workflows.report.length_tally import LengthTally
from workflows.report.opening import Corpus
from workflows.report.sampling import RowGroupPlan, plan_row_groups
from workflows.report.seekable_file import SeekableFile
from workflows.report.token_tally import TokenTally, Vocabulary

_SENTENCES_SHOWN = 6


@dataclass(frozen=True)
class SampledDocument:
    """The beginning of a document: its first sentences as token ids."""

    document_id: str
    num_tokens: int
    num_sentences: int
    sentences: tuple[tuple[int, ...], ...]


@dataclass
class CorpusSample:
    """What was counted.

    Attributes:
        tokens: of the text.
        sentence_tokens: tokens of each sentence.
        document_tokens: tokens of each document.
        document_sentences: sentences of each document.
        documents: a few, from as many row groups as there are.
        num_row_groups_read: row groups.
        num_row_groups: row groups of the corpus.
        num_documents_read: documents.
    """

    tokens: TokenTally
    sentence_tokens: LengthTally = field(default_factory=LengthTally)
    document_tokens: LengthTally = field(default_factory=LengthTally)
    document_sentences: LengthTally = field(default_factory=LengthTally)
    documents: list[SampledDocument] = field(default_factory=list)
    num_row_groups_read: int = 0
    num_row_groups: int = 0
    num_documents_read: int = 0

    def add(self, documents: pa.RecordBatch) -> None:
        """Count one row group."""
        self.num_row_groups_read += 1
        self.num_documents_read += documents.num_rows
        token_ids, document_tokens = list_values_and_lengths(documents.column("token_ids"))
        sentence_tokens, document_sentences = list_values_and_lengths(documents.column("sentence_lengths"))
        self.tokens.add(token_ids)
        self.sentence_tokens.add(sentence_tokens)
        self.document_tokens.add(document_tokens)
        self.document_sentences.add(document_sentences)


def sample_corpus(
    corpus: Corpus,
    vocabulary: Vocabulary,
    sample_tokens: int,
    num_documents: int,
    progress: Callable[[int, int], None],
) -> CorpusSample:
    """Read and count a sample.

    Args:
        corpus: an opened corpus.
        vocabulary: its tokenizer.
        sample_tokens: about how many tokens to read.
        num_documents: how many documents to keep for showing.
        progress: called with (row groups done, row groups to read).

    Raises:
        CorruptDataError: a row group is missing or damaged.
    """
    plans = plan_row_groups(corpus.manifest, sample_tokens)
    sample = CorpusSample(
        tokens=TokenTally(vocabulary),
        num_row_groups=sum(len(file.row_groups) for file in corpus.manifest.files),
    )
    done = 0
    for file, chosen in _by_file(plans):
        for documents in _read_row_groups(corpus, file, [plan.index for plan in chosen]):
            sample.add(documents)
            left = num_documents - len(sample.documents)
            sample.documents += _take_documents(documents, -(-left // (len(plans) - done)))
            done += 1
            progress(done, len(plans))
    return sample


def _by_file(plans: list[RowGroupPlan]) -> Iterator[tuple[CorpusFile, list[RowGroupPlan]]]:
    of_file: dict[str, list[RowGroupPlan]] = defaultdict(list)
    for plan in plans:
        of_file[plan.file.name].append(plan)
    for chosen in of_file.values():
        yield chosen[0].file, sorted(chosen, key=lambda plan: plan.index)


def _read_row_groups(corpus: Corpus, file: CorpusFile, indexes: list[int]) -> Iterator[pa.RecordBatch]:
    where = join(corpus.url, file.name)
    schema = tokenized_document_schema(corpus.manifest.tokenizer.vocab_size)
    try:
        with pq.ParquetFile(SeekableFile(where, _known_size(where, file))) as parquet:
            for index in indexes:
                table = parquet.read_row_group(index, columns=schema.names).cast(schema).combine_chunks()
                if digest_row_group(table) != file.row_groups[index].digest:
                    raise CorruptDataError(
                        f"{where}: row group {index:,} is not what the manifest says; make the corpus anew."
                    )
                yield table.to_batches()[0]
    except FileNotFoundError:
        raise CorruptDataError(f"{where} is missing, though the manifest lists it.") from None
    except (pa.ArrowException, OSError, IndexError) as error:
        reason = " ".join(str(error).split())[:200]
        raise CorruptDataError(f"{where} can't be read as Parquet: {reason}") from error


def _known_size(where: str, file: CorpusFile) -> int:
    found = size_bytes(where)
    if found is not None and found != file.size_bytes:
        raise CorruptDataError(f"{where} has {found:,} bytes, the manifest says {file.size_bytes:,}.")
    return file.size_bytes


def _take_documents(documents: pa.RecordBatch, wanted: int) -> list[SampledDocument]:
    taken = []
    for row in range(min(wanted, documents.num_rows)):
        lengths = documents.column("sentence_lengths")[row].values
        token_ids = documents.column("token_ids")[row].values
        sentences, start = [], 0
        for length in lengths[:_SENTENCES_SHOWN].to_pylist():
            sentences.append(tuple(token_ids[start : start + length].to_pylist()))
            start += length
        name = documents.column("document_id")[row].as_py()
        taken.append(SampledDocument(name, len(token_ids), len(lengths), tuple(sentences)))
    return taken
