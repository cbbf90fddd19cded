"""Turn pairs into blocks of masked examples.

In: the tokens of a pool, its pairs in their final order, and a random stream. Out: Arrow record batches of
`schemas.examples.example_schema`, one a block. Deterministic: the same pairs, settings and stream give the
same blocks. Tokens are gathered a block at a time, so only the pairs, of 17 bytes each, grow with the
duplicate factor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tokenizers import Tokenizer

from pipelines.masking import MaskedTokens, MaskingVocabulary, UnmaskedExamples, mask_tokens
from pipelines.pairing import Pairs
from pipelines.pool_tokens import PoolTokens, offsets_of
from schemas.configs import BuildConfig
from schemas.examples import example_schema
from schemas.manifests import MaskingCounts, TokenizerRecord
from schemas.seeding import RandomStream

_UNUSED = re.compile(r"\[unused\d+\]")


@dataclass(frozen=True)
class ExampleBlock:
    """One block of masked examples, and what was done to its tokens."""

    examples: pa.RecordBatch
    masking: MaskingCounts


def masking_vocabulary(tokenizer: Tokenizer, record: TokenizerRecord) -> MaskingVocabulary:
    """What masking must know about a tokenizer's vocabulary: special, reserved and `##` ids."""
    special = set(record.special_ids)
    special |= {token_id for token_id, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    is_allowed = np.zeros(record.vocab_size, np.bool_)
    is_continuation = np.zeros(record.vocab_size, np.bool_)
    for token, token_id in tokenizer.get_vocab(with_added_tokens=True).items():
        is_allowed[token_id] = token_id not in special and not _UNUSED.fullmatch(token)
        is_continuation[token_id] = token.startswith("##") and len(token) > 2
    return MaskingVocabulary(
        cls_id=record.cls_id,
        sep_id=record.sep_id,
        mask_id=record.mask_id,
        random_ids=np.flatnonzero(is_allowed).astype(np.uint32),
        is_continuation=is_continuation,
    )


def make_blocks(
    pool: PoolTokens, pairs: Pairs, config: BuildConfig, vocabulary: MaskingVocabulary, stream: RandomStream
) -> Iterator[ExampleBlock]:
    """Gather and mask the tokens of pairs, `examples_per_block` at a time.

    Args:
        pool: the tokens that the pairs point into.
        pairs: in the order in which they are to be stored.
        config: lengths, shares and the size of a block.
        vocabulary: of the tokenizer that made the tokens.
        stream: the draws of this pool's masks.
    """
    for start in range(0, len(pairs), config.examples_per_block):
        block = pairs.take(slice(start, start + config.examples_per_block))
        unmasked = assemble_examples(pool.token_ids, block, vocabulary.cls_id, vocabulary.sep_id)
        masked = mask_tokens(
            unmasked,
            vocabulary,
            stream,
            masked_lm_prob=config.masked_lm_prob,
            max_predictions=config.prediction_limit,
            whole_words=config.whole_word_mask,
        )
        examples = to_record_batch(unmasked, masked, block, len(vocabulary.is_continuation))
        yield ExampleBlock(examples, masked.counts)


def assemble_examples(
    token_ids: NDArray[np.unsignedinteger], pairs: Pairs, cls_id: int, sep_id: int
) -> UnmaskedExamples:
    """Lay out `[CLS] A [SEP] B [SEP]`, or `[CLS] A [SEP]` where the pairs have no labels.

    Args:
        token_ids: the tokens of the pool: uint16 or uint32 [T].
        pairs: slices of them.
        cls_id: id of `[CLS]`.
        sep_id: id of `[SEP]`.
    """
    one = np.ones(len(pairs), np.int64)
    # Where a special token stands, the first token of the pool is gathered and then replaced.
    none = np.zeros(len(pairs), np.int64)
    starts: list[NDArray[np.signedinteger]] = [none, pairs.a_start, none]
    lengths: list[NDArray[np.signedinteger]] = [one, pairs.a_end - pairs.a_start, one]
    if pairs.labels is not None:
        starts += [pairs.b_start, none]
        lengths += [pairs.b_end - pairs.b_start, one]
    slice_starts = np.stack(starts, axis=1).ravel()
    slice_lengths = np.stack(lengths, axis=1).ravel()
    places = np.cumsum(slice_lengths) - slice_lengths
    index = np.repeat(slice_starts - places, slice_lengths) + np.arange(int(slice_lengths.sum()))
    places = places.reshape(len(pairs), len(starts))
    special = places[:, ::2]
    input_ids = token_ids[index]
    input_ids[special] = sep_id
    input_ids[places[:, 0]] = cls_id
    maskable = np.ones(len(index), np.bool_)
    maskable[special] = False
    return UnmaskedExamples(input_ids, offsets_of([sum(lengths, np.zeros_like(one))]), maskable)


def to_record_batch(
    unmasked: UnmaskedExamples, masked: MaskedTokens, pairs: Pairs, vocab_size: int
) -> pa.RecordBatch:
    """Examples as an Arrow record batch of `example_schema(vocab_size)`."""
    schema = example_schema(vocab_size)
    segment_a_length = (pairs.a_end - pairs.a_start + 2).astype(np.uint16)
    labels = pa.nulls(len(pairs), pa.uint8()) if pairs.labels is None else pa.array(pairs.labels)
    columns = [
        _list_array(unmasked.offsets, masked.input_ids, schema.field("input_ids").type),
        pa.array(segment_a_length),
        _list_array(masked.position_offsets, masked.positions, schema.field("masked_lm_positions").type),
        _list_array(masked.position_offsets, masked.original_ids, schema.field("masked_lm_ids").type),
        labels,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _list_array(
    offsets: NDArray[np.int64], values: NDArray[np.unsignedinteger], list_type: pa.DataType
) -> pa.Array:
    return pa.ListArray.from_arrays(
        pa.array(offsets.astype(np.int32)), pa.array(values, list_type.value_type), type=list_type
    )
