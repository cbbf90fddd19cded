"""The first documents on the whole way from text to masked examples, in this process and in seconds.

In: the configurations of `ingest` and `build`, a tokenizer, and a number of documents. Out: a `Preview`: the
documents with their sentences and tokens, examples made from them, and notes on what could not be made or
looks wrong. Nothing is written. Deterministic: the same inputs, configurations and number give the same.

The functions are those that the two jobs run, in the same order; no Beam pipeline is started. The examples
show the rules, not the very draws of a later `build`: there pairs are drawn among all documents of a pool, a
pool is of one split, and duplicates are looked for in all of the input. Files are read from their start and
no further than needed.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from pipelines.examples import make_blocks, masking_vocabulary
from pipelines.pairing import Pairs, sample_pairs
from pipelines.pool_tokens import PoolTokens
from pipelines.readers import DocumentBatch, read_documents
from pipelines.reads import check_formats, expand_inputs, split_into_reads
from pipelines.rejections import DUPLICATE, NO_TOKENS, RejectedDocument
from pipelines.segmentation import choose_segmenter, segment_documents
from pipelines.shard_record import ShardCounts
from pipelines.splits import mark_validation
from pipelines.storage import FileEntry
from pipelines.tokenization import SentenceTokenizer, TokenizedSentences
from pipelines.tokenizer_files import UNK_TOKEN, load_tokenizer
from schemas.configs import BuildConfig, IngestConfig, Objective
from schemas.documents import DOCUMENT_SCHEMA
from schemas.errors import ClozelineError
from schemas.manifests import Split, TokenizerRecord
from schemas.seeding import RandomStream

SENTENCES_SHOWN = 3
"""Sentences of a document that are kept with their tokens."""

_POOL_NAME = "preview"
_LARGEST_FAIR_UNKNOWN_SHARE = 0.02
_WHY_NO_EXAMPLE: dict[Objective, str] = {
    "next-sentence": "every segment of another document has the text of what truly follows",
    "sentence-order": "each document has one sentence only",
    "mlm": "",
}


@dataclass(frozen=True)
class PreviewedSentence:
    """A sentence as it was found, and its tokens; there may be none."""

    text: str
    tokens: tuple[str, ...]


@dataclass(frozen=True)
class PreviewedDocument:
    """A document that is kept.

    Attributes:
        document_id: its identifier.
        split: where it goes.
        num_sentences: with a token.
        num_tokens: without special tokens.
        num_unknown: tokens that are `[UNK]`.
        sentences: the first of them, at most `SENTENCES_SHOWN`.
    """

    document_id: str
    split: Split
    num_sentences: int
    num_tokens: int
    num_unknown: int
    sentences: tuple[PreviewedSentence, ...]


@dataclass(frozen=True)
class Preview:
    """What the first documents become.

    Attributes:
        num_input_files: that the inputs name.
        num_input_bytes: stored bytes of all of them.
        rejected: documents left out among those looked at.
        documents: the kept ones, in the order of the files.
        tokenizer: of the tokens.
        objective: of the examples; `mlm` where the objective asked for gives none.
        examples: the first ones, in the order of the documents: of `schemas.examples.example_schema`.
        counts: over all examples of the documents.
        notes: what could not be made or looks wrong, a sentence or two each.
    """

    num_input_files: int
    num_input_bytes: int
    rejected: tuple[RejectedDocument, ...]
    documents: tuple[PreviewedDocument, ...]
    tokenizer: Tokenizer
    objective: Objective
    examples: tuple[pa.RecordBatch, ...]
    counts: ShardCounts
    notes: tuple[str, ...]


def preview_documents(
    ingest: IngestConfig, build: BuildConfig, tokenizer_path: str, *, num_documents: int = 20
) -> Preview:
    """Take the first documents the whole way.

    Args:
        ingest: what is read and how it becomes sentences.
        build: how sentences become examples.
        tokenizer_path: as for `load_tokenizer`.
        num_documents: documents to keep at most.

    Raises:
        UsageError: an input or the tokenizer is missing or no such thing.
        ClozelineError: a file can't be read, or no document can be kept.
    """
    tokenizer, record, content = load_tokenizer(tokenizer_path)
    files = expand_inputs(ingest.inputs)
    check_formats(files, ingest)
    found, rejected = _read_first(files, ingest, num_documents)
    sentences = segment_documents(found["text"], choose_segmenter(ingest), ingest.language)
    encoder = SentenceTokenizer(content)
    tokens = encoder.tokenize(sentences)
    kept = tokens.token_ids.value_lengths().to_numpy(zero_copy_only=False) > 0
    rejected += [
        RejectedDocument(document_id, NO_TOKENS, "the tokenizer finds no token in the text")
        for document_id in found["document_id"].filter(pa.array(~kept)).to_pylist()
    ]
    if not kept.any():
        raise _explain_empty(files, rejected)
    mask = pa.array(kept)
    tokens = TokenizedSentences(tokens.token_ids.filter(mask), tokens.sentence_lengths.filter(mask))
    shown = sentences.filter(mask)
    documents = _describe_documents(found.filter(mask), shown, tokens, ingest, encoder, tokenizer, record)
    objective, examples, counts, notes = _make_examples(tokens, build, tokenizer, record)
    return Preview(
        num_input_files=len(files),
        num_input_bytes=sum(file.size_bytes for file in files),
        rejected=tuple(rejected),
        documents=documents,
        tokenizer=tokenizer,
        objective=objective,
        examples=examples,
        counts=counts,
        notes=(*notes, *_find_oddities(documents, objective)),
    )


def _read_first(
    files: list[FileEntry], config: IngestConfig, num_documents: int
) -> tuple[pa.Table, list[RejectedDocument]]:
    """The first readable documents, and the rejected ones in the batches that they came in."""
    tables: list[pa.Table] = [DOCUMENT_SCHEMA.empty_table()]
    rejected: list[RejectedDocument] = []
    seen: set[bytes] = set()
    left = num_documents
    for batch in _read_batches(files, config):
        rows, repeats = _pick_rows(batch.table, left, None if config.keep_duplicates else seen)
        tables.append(batch.table.take(pa.array(rows, pa.int64())))
        rejected += [*batch.rejected, *repeats]
        left -= len(rows)
        if left <= 0:
            break
    return pa.concat_tables(tables).combine_chunks(), rejected


def _pick_rows(
    table: pa.Table, num_documents: int, seen: set[bytes] | None
) -> tuple[list[int], list[RejectedDocument]]:
    """The first rows, without those whose text was seen before; `seen` grows, and None keeps all."""
    rows: list[int] = []
    repeats: list[RejectedDocument] = []
    for row, (document_id, text) in enumerate(zip(table["document_id"], table["text"], strict=True)):
        if len(rows) == num_documents:
            break
        digest = hashlib.blake2b(text.as_py().encode(), digest_size=16).digest()
        if seen is not None and digest in seen:
            detail = "its text is that of an earlier document"
            repeats.append(RejectedDocument(document_id.as_py(), DUPLICATE, detail))
            continue
        if seen is not None:
            seen.add(digest)
        rows.append(row)
    return rows, repeats


def _read_batches(files: list[FileEntry], config: IngestConfig) -> Iterator[DocumentBatch]:
    for file in files:
        # A read of twice the file's size takes all of it.
        for read in split_into_reads([file], config, max(1, 2 * file.size_bytes)):
            yield from read_documents(read, config)


def _describe_documents(
    found: pa.Table,
    sentences: pa.ListArray,
    tokens: TokenizedSentences,
    config: IngestConfig,
    encoder: SentenceTokenizer,
    tokenizer: Tokenizer,
    record: TokenizerRecord,
) -> tuple[PreviewedDocument, ...]:
    held_out = mark_validation(found["text"].combine_chunks(), config.validation_fraction)
    documents = []
    for index, document_id in enumerate(found["document_id"].to_pylist()):
        ids = tokens.token_ids[index].values.to_numpy()
        documents.append(
            PreviewedDocument(
                document_id=document_id,
                split="validation" if held_out[index] else "train",
                num_sentences=len(tokens.sentence_lengths[index]),
                num_tokens=len(ids),
                num_unknown=int(np.count_nonzero(ids == record.unk_id)),
                sentences=_show_sentences(sentences[index].values, encoder, tokenizer),
            )
        )
    return tuple(documents)


def _show_sentences(
    sentences: pa.Array, encoder: SentenceTokenizer, tokenizer: Tokenizer
) -> tuple[PreviewedSentence, ...]:
    # Each as a document of its own: a sentence without a token would vanish among others.
    texts = sentences.slice(0, SENTENCES_SHOWN).to_pylist()
    tokens = encoder.tokenize(pa.array([[text] for text in texts], pa.list_(pa.string())))
    return tuple(
        PreviewedSentence(text, tuple(tokenizer.id_to_token(token_id) or UNK_TOKEN for token_id in ids))
        for text, ids in zip(texts, tokens.token_ids.to_pylist(), strict=True)
    )


def _make_examples(
    tokens: TokenizedSentences, config: BuildConfig, tokenizer: Tokenizer, record: TokenizerRecord
) -> tuple[Objective, tuple[pa.RecordBatch, ...], ShardCounts, list[str]]:
    """The objective that examples could be made for, the first block of them, counts over all, notes."""
    table = pa.table({"token_ids": tokens.token_ids, "sentence_lengths": tokens.sentence_lengths})
    pool = PoolTokens.from_tables([table])
    notes: list[str] = []
    pairs = _sample(pool, config)
    if pairs is None:
        notes.append(_explain_no_pairs(pool, config.objective))
        config = config.model_copy(update={"objective": "mlm"})
        pairs = _sample(pool, config)
    counts = ShardCounts()
    first: tuple[pa.RecordBatch, ...] = ()
    vocabulary = masking_vocabulary(tokenizer, record)
    stream = RandomStream(config.seed, "masks", _POOL_NAME)
    for block in make_blocks(pool, pairs, config, vocabulary, stream) if pairs is not None else ():
        counts.add(block.examples, block.masking)
        first = first or (block.examples,)
    return config.objective, first, counts, notes


def _sample(pool: PoolTokens, config: BuildConfig) -> Pairs | None:
    if config.objective == "next-sentence" and pool.num_documents < 2:
        return None
    pairs = sample_pairs(pool, config, RandomStream(config.seed, "pairs", _POOL_NAME))
    return pairs if len(pairs) else None


def _explain_no_pairs(pool: PoolTokens, objective: Objective) -> str:
    if objective == "next-sentence" and pool.num_documents < 2:
        why = "there is one document only, and a NotNext segment must come from another"
        remedy = " Where each line is a document, give --format text-lines."
    else:
        why, remedy = _WHY_NO_EXAMPLE[objective], ""
    return (
        f"No pair can be made under --objective {objective}: {why}.{remedy} The examples below are as of "
        f"--objective mlm, without pairs."
    )


def _find_oddities(documents: tuple[PreviewedDocument, ...], objective: Objective) -> Iterator[str]:
    num_tokens = sum(document.num_tokens for document in documents)
    unknown_share = sum(document.num_unknown for document in documents) / num_tokens
    if unknown_share > _LARGEST_FAIR_UNKNOWN_SHARE:
        yield (
            f"{unknown_share:.1%} of the tokens are [UNK]: the vocabulary may be of another language or "
            f"script. `clozeline vocab` learns one from the text."
        )
    if objective == "next-sentence" and all(document.num_sentences == 1 for document in documents):
        yield (
            "Each document has one sentence, so no segment has a true next one and every label is NotNext. "
            "Check --format and --segmenter."
        )


def _explain_empty(files: list[FileEntry], rejected: list[RejectedDocument]) -> ClozelineError:
    num_bytes = sum(file.size_bytes for file in files)
    if not rejected:
        return ClozelineError(
            f"no document in the input, {num_bytes} bytes in all\nCheck --input and --format."
        )
    reasons = Counter(document.reason for document in rejected)
    counts = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    first = rejected[0]
    return ClozelineError(
        f"none of the {len(rejected)} documents looked at could be kept: {counts}\n"
        f"The first: {first.document_id}: {first.reason}: {first.detail}"
    )
