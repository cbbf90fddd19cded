"""One block: the bytes of an Arrow IPC file -> a checked record batch.

In: the content of a shard's member. Out: one record batch of `schemas.examples.example_schema`, every value
of which lies in its range, so that what follows may index without looking. Nothing is decompressed (a block
isn't compressed, and a compressed one could claim any size), nothing is unpickled, and the record batch is a
view on
the bytes that came in: memory is bounded by them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.errors import CorruptDataError
from schemas.examples import MAX_SEQ_LENGTH_LIMIT, example_schema
from schemas.manifests import DatasetManifest
from trainer.data.example_arrays import list_values_and_lengths

# Arrow IPC file format: magic, two bytes of padding, messages, footer, footer length, magic.
_MAGIC = b"ARROW1"
_BYTES_BEFORE_MESSAGES = 8
# Message.header is the third field of the table in Arrow's Message.fbs, RecordBatch.compression the fourth.
_MESSAGE_HEADER, _RECORD_BATCH_COMPRESSION = 2, 3
_SMALLEST_EXAMPLE_TOKENS = 3
_ARROW_OVERHEAD_BYTES = 1 << 16


@dataclass(frozen=True)
class BlockLimits:
    """What a block may hold at most.

    Attributes:
        vocab_size: ids are below it; also decides between uint16 and uint32.
        max_seq_length: tokens in an example.
        max_predictions_per_seq: masked positions in an example.
        max_examples: examples in a block.
    """

    vocab_size: int
    max_seq_length: int
    max_predictions_per_seq: int
    max_examples: int

    @classmethod
    def of(cls, manifest: DatasetManifest) -> BlockLimits:
        """The limits that a dataset's configuration sets."""
        config = manifest.config
        return cls(
            vocab_size=manifest.tokenizer.vocab_size,
            max_seq_length=config.max_seq_length,
            max_predictions_per_seq=min(config.prediction_limit, config.max_seq_length),
            max_examples=config.examples_per_block,
        )

    @property
    def max_bytes(self) -> int:
        """The longest block possible: everything at its limit, 4-byte ids, offsets, labels, some overhead."""
        per_example = self.max_seq_length * 4 + self.max_predictions_per_seq * 6 + 32
        return self.max_examples * per_example + _ARROW_OVERHEAD_BYTES


WIDEST_LIMITS = BlockLimits(
    vocab_size=1 << 24,
    max_seq_length=MAX_SEQ_LENGTH_LIMIT,
    max_predictions_per_seq=MAX_SEQ_LENGTH_LIMIT,
    max_examples=65_536,
)


def decode_block(
    content: bytes, limits: BlockLimits, where: str, num_examples: int | None = None
) -> pa.RecordBatch:
    """Read and check a block.

    Args:
        content: an Arrow IPC file of one uncompressed record batch.
        limits: what is allowed.
        where: the shard and member, for messages.
        num_examples: how many examples are expected, where that is known.

    Raises:
        CorruptDataError: the content is anything else.
    """
    try:
        block = _read_record_batch(content, example_schema(limits.vocab_size))
        _check_counts(block, limits, num_examples)
        _check_values(block, limits)
    except (pa.ArrowException, ValueError, IndexError, struct.error, OSError) as error:
        reason = " ".join(str(error).split())[:300]
        raise CorruptDataError(
            f"{where} is no valid block of examples: {reason}\n"
            f"Copy the shard anew, or build the dataset again."
        ) from error
    return block


def _read_record_batch(content: bytes, expected: pa.Schema) -> pa.RecordBatch:
    if len(content) > (1 << 31) or not (content.startswith(_MAGIC) and content.endswith(_MAGIC)):
        raise ValueError("it is no Arrow IPC file")
    messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(content)[_BYTES_BEFORE_MESSAGES:])
    schema = pa.ipc.read_schema(_next_message(messages, "schema"))
    if not schema.equals(expected):
        raise ValueError(_describe_difference(schema, expected))
    message = _next_message(messages, "record batch")
    if _is_compressed(message.metadata):
        raise ValueError("it is compressed, which blocks aren't")
    block = pa.ipc.read_record_batch(message, schema)
    try:
        messages.read_next_message()
    except StopIteration:
        block.validate(full=True)
        return block
    raise ValueError("it holds more than one record batch")


def _next_message(messages: pa.ipc.MessageReader, kind: str) -> pa.ipc.Message:
    try:
        message = messages.read_next_message()
    except StopIteration:
        raise ValueError(f"it ends before its {kind}") from None
    if message.type != kind:
        raise ValueError(f"it has a {message.type} where its {kind} is expected")
    return message


def _is_compressed(metadata: pa.Buffer) -> bool:
    # pyarrow doesn't tell, and decompressing allocates whatever size the block claims; so look into the
    # flatbuffer, which Arrow has verified by now.
    raw = memoryview(metadata)
    message = struct.unpack_from("<I", raw, 0)[0]
    field = _flatbuffer_field(raw, message, _MESSAGE_HEADER)
    if field is None:
        raise ValueError("its record batch has no header")
    record_batch = field + struct.unpack_from("<I", raw, field)[0]
    return _flatbuffer_field(raw, record_batch, _RECORD_BATCH_COMPRESSION) is not None


def _flatbuffer_field(raw: memoryview, table: int, number: int) -> int | None:
    vtable = table - struct.unpack_from("<i", raw, table)[0]
    if vtable < 0:
        raise ValueError("its metadata is damaged")
    vtable_bytes = struct.unpack_from("<H", raw, vtable)[0]
    slot = 4 + 2 * number
    offset = struct.unpack_from("<H", raw, vtable + slot)[0] if slot < vtable_bytes else 0
    return table + offset if offset else None


def _check_counts(block: pa.RecordBatch, limits: BlockLimits, num_examples: int | None) -> None:
    found = block.num_rows
    if num_examples is not None and found != num_examples:
        raise ValueError(f"it holds {found:,} examples, expected {num_examples:,}")
    if not 1 <= found <= limits.max_examples:
        raise ValueError(f"it holds {found:,} examples, expected 1 to {limits.max_examples:,}")
    for field in block.schema:
        column = block.column(field.name)
        if not field.nullable and column.null_count:
            raise ValueError(f"{field.name} has nulls")
        if pa.types.is_list(field.type) and column.values.null_count:
            raise ValueError(f"{field.name} has nulls within its lists")


def _check_values(block: pa.RecordBatch, limits: BlockLimits) -> None:
    ids, lengths = list_values_and_lengths(block.column("input_ids"))
    positions, masked_counts = list_values_and_lengths(block.column("masked_lm_positions"))
    masked_ids, masked_id_counts = list_values_and_lengths(block.column("masked_lm_ids"))
    segment_a_lengths = block.column("segment_a_length").to_numpy(zero_copy_only=False)
    labels = block.column("next_sentence_label")

    _require_range("lengths of input_ids", lengths, _SMALLEST_EXAMPLE_TOKENS, limits.max_seq_length)
    _require_range("numbers of masked positions", masked_counts, 0, limits.max_predictions_per_seq)
    _require_range("input_ids", ids, 0, limits.vocab_size - 1)
    _require_range("masked_lm_ids", masked_ids, 0, limits.vocab_size - 1)
    _require_range("next_sentence_label", labels.drop_null().to_numpy(zero_copy_only=False), 0, 1)
    _require(bool((masked_counts == masked_id_counts).all()), "masked_lm_positions and _ids differ in number")
    _require(
        bool(((segment_a_lengths >= 2) & (segment_a_lengths <= lengths)).all()),
        "a segment_a_length lies outside its example",
    )
    rows = np.repeat(np.arange(len(lengths)), masked_counts)
    _require(bool((positions < lengths[rows]).all()), "a masked position lies outside its example")
    ascending = (np.diff(positions.astype(np.int64)) > 0) | (np.diff(rows) > 0)
    _require(bool(ascending.all()), "masked positions don't ascend within their example")


def _require_range(name: str, values: NDArray[Any], low: int, high: int) -> None:
    if len(values) and not (low <= values.min() and values.max() <= high):
        raise ValueError(f"{name} range from {values.min()} to {values.max()}, expected {low} to {high}")


def _require(holds: bool, complaint: str) -> None:
    if not holds:
        raise ValueError(complaint)


def _describe_difference(found: pa.Schema, expected: pa.Schema) -> str:
    if found.names != expected.names:
        return f"its columns are {', '.join(found.names)}, expected {', '.join(expected.names)}"
    pairs = zip(found, expected, strict=True)
    return "; ".join(f"column {one} is expected as {other}" for one, other in pairs if not one.equals(other))
