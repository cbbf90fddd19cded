"""What a person may choose about a corpus and a dataset.

Frozen, validated once at the edge, stored in the manifest. A configuration holds only what changes the bytes
that are written: never a path of an output, a number of workers or a runner.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from schemas.examples import MAX_SEQ_LENGTH_LIMIT
from schemas.languages import normalise_language

InputFormat = Literal["auto", "text", "text-lines", "text-sentences", "jsonl", "parquet", "csv", "tsv"]
Segmenter = Literal["sentencex", "newline"]
Objective = Literal["next-sentence", "sentence-order", "mlm"]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]


class FrozenModel(BaseModel):
    """A pydantic model that can't be changed and takes no field that it does not know.

    A float in it is a number: JSON, as which all of them are stored, knows neither infinity nor NaN.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _require_unicode(text: str) -> str:
    """Refuse bytes that are no UTF-8, which Python carries as lone surrogates and no manifest can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("holds bytes that are no UTF-8; write ? for each, or rename it") from None
    return text


UnicodeText = Annotated[str, AfterValidator(_require_unicode)]

Inputs = Annotated[
    tuple[UnicodeText, ...], Field(min_length=1), AfterValidator(lambda paths: tuple(sorted(set(paths))))
]
"""Paths or globs, sorted and each once: their order on the command line must not matter."""


class IngestConfig(FrozenModel):
    """How documents are read, split into sentences and dealt to train and validation.

    Attributes:
        inputs: what to read.
        format: `auto` goes by the file name; `text` is a document a file, `text-lines` a document a line,
            `text-sentences` a sentence a line with blank lines between documents.
        text_field: column or key that holds the text (JSONL, Parquet, CSV, TSV).
        id_field: column or key that holds the identifier; where it is missing, `<file>:<byte offset or row>`.
        segmenter: `sentencex` finds sentence boundaries, `newline` takes each line as a sentence.
        language: ISO 639 code for the segmenter; a region or script behind it is dropped.
        validation_fraction: expected share of documents held out, by a hash of their text.
        max_document_bytes: a longer document is rejected under `too_long`. A document takes about ten times
            its size in memory, thirty times where each byte is a token: up to the default, a worker stays
            under 1.2 GB whatever the text is.
        keep_duplicates: keep documents whose text occurred before; otherwise they are rejected under
            `duplicate`.
    """

    inputs: Inputs
    format: InputFormat = "auto"
    text_field: UnicodeText = "text"
    id_field: UnicodeText = "id"
    segmenter: Segmenter = "sentencex"
    language: Annotated[str, AfterValidator(normalise_language)] = "en"
    validation_fraction: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.01
    max_document_bytes: Annotated[int, Field(ge=1)] = 20_000_000
    keep_duplicates: bool = False


class VocabConfig(FrozenModel):
    """How a WordPiece vocabulary is learned.

    Attributes:
        vocab_size: entries in all, special tokens and reserved slots included.
        min_frequency: a piece must occur this often in the sample.
        lowercase: lower-case the text before splitting it (an "uncased" vocabulary).
        strip_accents: drop combining accents; None follows `lowercase`, as in Google's BERT.
        num_unused: reserved `[unused0]` … entries, for words to be added later.
        sample_bytes: about how many bytes of text are learned from, drawn over all inputs.
        extend: a tokenizer whose `[unused…]` entries become frequent words of the text; all else of it stays,
            so that `vocab_size`, `lowercase`, `strip_accents` and `num_unused` say nothing. None learns anew.
        max_new_words: with `extend`, words that come in at most; None fills every slot.
        seed: decides which documents are sampled.
    """

    inputs: Inputs
    format: InputFormat = "auto"
    text_field: UnicodeText = "text"
    vocab_size: Annotated[int, Field(ge=16, le=1 << 24)] = 30_522
    min_frequency: Annotated[int, Field(ge=1)] = 2
    lowercase: bool = True
    strip_accents: bool | None = None
    num_unused: Annotated[int, Field(ge=0)] = 0
    sample_bytes: Annotated[int, Field(ge=1)] = 1_000_000_000
    extend: UnicodeText | None = None
    max_new_words: Annotated[int, Field(ge=1)] | None = None
    seed: int = 0


class BuildConfig(FrozenModel):
    """How a corpus becomes masked examples.

    Attributes:
        seed: decides pairs, masks and order.
        max_seq_length: tokens in an example at most, `[CLS]` and `[SEP]` included.
        masked_lm_prob: share of the maskable tokens that are chosen for prediction.
        max_predictions_per_seq: chosen tokens in an example at most; None means
            `ceil(max_seq_length * masked_lm_prob)`: 20 at 128 and 77 at 512, Google's figures.
        short_seq_prob: share of examples aimed at a random shorter length.
        duplicate_factor: how often each document is used, with other pairs and masks each time.
        whole_word_mask: choose whole words (a piece and its `##` continuations) rather than pieces.
        objective: what the second segment is for.
        next_sentence_balance: True makes half of all labels NotNext; False keeps the rule of Google's script,
            under which more than half come out NotNext.
        examples_per_block: examples in one WebDataset sample.
        num_shards: shards of `train`; `validation` has as many for its tokens, at least one. None leaves it
            to the size of the corpus.
        examples_per_shard: about how many examples a shard holds, instead of `num_shards`.
    """

    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = 0
    max_seq_length: Annotated[int, Field(ge=8, le=MAX_SEQ_LENGTH_LIMIT)] = 128
    masked_lm_prob: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.15
    max_predictions_per_seq: Annotated[int, Field(ge=1)] | None = None
    short_seq_prob: Probability = 0.1
    duplicate_factor: Annotated[int, Field(ge=1)] = 1
    whole_word_mask: bool = False
    objective: Objective = "next-sentence"
    next_sentence_balance: bool = True
    examples_per_block: Annotated[int, Field(ge=1, le=65_536)] = 1000
    num_shards: Annotated[int, Field(ge=1)] | None = None
    examples_per_shard: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _shards_are_chosen_once(self) -> BuildConfig:
        if self.num_shards is not None and self.examples_per_shard is not None:
            raise ValueError("--num-shards and --examples-per-shard both decide how many shards; give one")
        return self

    @property
    def prediction_limit(self) -> int:
        """Chosen tokens in an example at most, with the default filled in."""
        if self.max_predictions_per_seq is not None:
            return self.max_predictions_per_seq
        return math.ceil(round(self.max_seq_length * self.masked_lm_prob, 9))
