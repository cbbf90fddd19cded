from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from schemas.configs import BuildConfig
from schemas.errors import CorruptDataError
from schemas.examples import example_schema
from trainer.data.block_format import WIDEST_LIMITS, BlockLimits, decode_block

LIMITS = BlockLimits(vocab_size=1000, max_seq_length=16, max_predictions_per_seq=3, max_examples=4)
GOOD: dict[str, Any] = {
    "input_ids": [6, 20, 8, 30, 7, 40, 7],
    "segment_a_length": 5,
    "masked_lm_positions": [2, 5],
    "masked_lm_ids": [25, 40],
    "next_sentence_label": 1,
}
Encode = Callable[..., bytes]


@pytest.fixture
def encode(encode_block: Encode) -> Encode:
    return lambda examples: encode_block(examples, vocab_size=LIMITS.vocab_size)


def write(batches: list[pa.RecordBatch], schema: pa.Schema, **options: Any) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def record_batch(vocab_size: int = LIMITS.vocab_size) -> pa.RecordBatch:
    schema = example_schema(vocab_size)
    return pa.record_batch([pa.array([GOOD[field.name]], field.type) for field in schema], schema=schema)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({}, id="a pair"),
        pytest.param({"next_sentence_label": None}, id="no label"),
        pytest.param({"segment_a_length": 7}, id="no segment B"),
        pytest.param({"masked_lm_positions": [], "masked_lm_ids": []}, id="nothing masked"),
    ],
)
def test_a_good_block_comes_out_as_it_went_in(encode: Encode, change: dict[str, Any]) -> None:
    examples = [GOOD, {**GOOD, **change}]
    assert decode_block(encode(examples), LIMITS, "x", num_examples=2).to_pylist() == examples


def test_a_vocabulary_of_70_000_has_ids_of_four_bytes(encode_block: Encode) -> None:
    limits = BlockLimits(vocab_size=70_000, max_seq_length=16, max_predictions_per_seq=3, max_examples=4)
    example = {**GOOD, "input_ids": [6, 69_999, 7], "segment_a_length": 3, "masked_lm_positions": [1]}
    example["masked_lm_ids"] = [69_998]
    block = decode_block(encode_block([example], vocab_size=70_000), limits, "x")
    assert block.column("input_ids").type.value_type == pa.uint32()
    assert block.to_pylist() == [example]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"input_ids": [6, 20, 8, 30, 7, 1000, 7]}, r"input_ids range from 6 to 1000, expected 0 to 999"),
        ({"input_ids": [6] * 17}, r"lengths of input_ids range from 17 to 17, expected 3 to 16"),
        ({"input_ids": [6, 7]}, r"lengths of input_ids range from 2 to 2, expected 3 to 16"),
        ({"masked_lm_ids": [25, 1000]}, r"masked_lm_ids range from 25 to 1000, expected 0 to 999"),
        ({"masked_lm_ids": [25]}, r"masked_lm_positions and _ids differ in number"),
        ({"masked_lm_positions": [2, 7]}, r"a masked position lies outside its example"),
        ({"masked_lm_positions": [5, 2]}, r"masked positions don't ascend"),
        ({"masked_lm_positions": [2, 2]}, r"masked positions don't ascend"),
        (
            {"masked_lm_positions": [1, 2, 3, 4]},
            r"numbers of masked positions range from 4 to 4, expected 0 to 3",
        ),
        ({"segment_a_length": 8}, r"a segment_a_length lies outside"),
        ({"segment_a_length": 0}, r"a segment_a_length lies outside"),
        ({"next_sentence_label": 2}, r"next_sentence_label range from 2 to 2, expected 0 to 1"),
    ],
)
def test_a_value_out_of_its_range_is_named(encode: Encode, change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(
        CorruptDataError, match=f"shard-7: block 3 is no valid block of examples: {complaint}"
    ):
        decode_block(encode([{**GOOD, **change}]), LIMITS, "shard-7: block 3")


def test_positions_ascend_within_an_example_not_over_them(encode: Encode) -> None:
    assert decode_block(encode([GOOD, GOOD, GOOD]), LIMITS, "x").num_rows == 3


@pytest.mark.parametrize(
    ("num_written", "num_expected", "complaint"),
    [(2, 3, "holds 2 examples, expected 3"), (5, None, "holds 5 examples"), (0, None, "holds 0 examples")],
)
def test_the_number_of_examples(
    encode: Encode, num_written: int, num_expected: int | None, complaint: str
) -> None:
    with pytest.raises(CorruptDataError, match=complaint):
        decode_block(encode([GOOD] * num_written), LIMITS, "x", num_examples=num_expected)


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_compressed_block_is_refused_unread(compression: str) -> None:
    content = write([record_batch()], example_schema(LIMITS.vocab_size), compression=compression)
    with pytest.raises(CorruptDataError, match="it is compressed"):
        decode_block(content, LIMITS, "x")


def test_another_schema_is_refused_with_both() -> None:
    content = write([record_batch(70_000)], example_schema(70_000))
    with pytest.raises(
        CorruptDataError, match=r"column .*input_ids: list<item: uint32 not null>.* expected as .*uint16"
    ):
        decode_block(content, LIMITS, "x")


def test_dictionaries_are_refused() -> None:
    schema = pa.schema([pa.field("input_ids", pa.dictionary(pa.int32(), pa.string()))])
    batch = pa.record_batch([pa.array(["a", "b"]).dictionary_encode()], schema=schema)
    with pytest.raises(
        CorruptDataError, match="its columns are input_ids, expected input_ids, segment_a_length"
    ):
        decode_block(write([batch], schema), LIMITS, "x")


def test_two_record_batches_are_refused() -> None:
    content = write([record_batch()] * 2, example_schema(LIMITS.vocab_size))
    with pytest.raises(CorruptDataError, match="more than one record batch"):
        decode_block(content, LIMITS, "x")


def test_no_record_batch_is_refused() -> None:
    with pytest.raises(CorruptDataError, match="ends before its record batch"):
        decode_block(write([], example_schema(LIMITS.vocab_size)), LIMITS, "x")


@pytest.mark.parametrize("content", [b"", b"ARROW1", b"\x80\x04pickled", b"ARROW1\0\0ARROW1"])
def test_what_is_no_arrow_file_is_refused(content: bytes) -> None:
    with pytest.raises(CorruptDataError, match="x is no valid block"):
        decode_block(content, LIMITS, "x")


@pytest.mark.parametrize("offsets", [(0, 1000), (5, 2), (-4, 7), (0, 2**31 - 1), (14, 14), (0, -13)])
def test_offsets_that_run_backwards_or_out_are_refused(encode: Encode, offsets: tuple[int, int]) -> None:
    content = bytearray(encode([{**GOOD, "input_ids": [500] * 13}]))
    place = content.rindex(np.array([0, 13], np.int32).tobytes())
    content[place : place + 8] = np.array(offsets, np.int32).tobytes()
    with pytest.raises(CorruptDataError):
        decode_block(bytes(content), LIMITS, "x")


def test_nulls_where_none_may_be_are_refused() -> None:
    schema = example_schema(LIMITS.vocab_size)
    good = record_batch()
    with_null = pa.array([None], pa.uint16())
    batch = pa.RecordBatch.from_arrays([good.column(0), with_null, *good.columns[2:]], schema=schema)
    with pytest.raises(CorruptDataError, match="segment_a_length has nulls"):
        decode_block(write([batch], schema), LIMITS, "x")


@pytest.mark.parametrize("vocab_size", [30_522, 70_000])
def test_the_largest_block_fits_the_limit(encode_block: Encode, vocab_size: int) -> None:
    limits = BlockLimits(
        vocab_size=vocab_size, max_seq_length=24, max_predictions_per_seq=24, max_examples=300
    )
    largest = {
        "input_ids": [vocab_size - 1] * 24,
        "segment_a_length": 12,
        "masked_lm_positions": list(range(24)),
        "masked_lm_ids": [vocab_size - 1] * 24,
        "next_sentence_label": None,
    }
    content = encode_block([largest] * 300, vocab_size=vocab_size)
    assert len(content) <= limits.max_bytes
    assert decode_block(content, limits, "x").num_rows == 300


def test_limits_of_a_configuration() -> None:
    config = BuildConfig(max_seq_length=128)
    assert config.prediction_limit == 20
    assert WIDEST_LIMITS.max_bytes < 1 << 31
