from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from schemas.seeding import RandomStream
from trainer.data.batches import NO_LABEL, Batch, assemble_batch
from trainer.data.block_format import WIDEST_LIMITS, decode_block
from trainer.data.example_arrays import ExampleArrays, arrays_from_blocks
from trainer.data.microbatches import Microbatch, cut_by_rows
from trainer.data.packed_batches import Density, FixedSizes, assemble_packed_batch, plan_sizes
from trainer.model.packing import Packing

PAD = 99
FIVE: dict[str, Any] = {
    "input_ids": [6, 20, 7, 21, 7],
    "segment_a_length": 3,
    "masked_lm_positions": [1, 3],
    "masked_lm_ids": [30, 31],
    "next_sentence_label": 1,
}
THREE: dict[str, Any] = {
    "input_ids": [6, 22, 7],
    "segment_a_length": 3,
    "masked_lm_positions": [1],
    "masked_lm_ids": [32],
    "next_sentence_label": None,
}
SIX: dict[str, Any] = {
    "input_ids": [6, 23, 24, 7, 25, 7],
    "segment_a_length": 4,
    "masked_lm_positions": [4],
    "masked_lm_ids": [33],
    "next_sentence_label": 0,
}
# The two rows of 8 of the docstring of `Packing`: FIVE and THREE, then SIX. They are stored in another order.
TWO_ROWS = Microbatch(np.array([2, 0, 1]), np.array([0, 5, 8]))


@pytest.fixture
def arrays(encode_block: Callable[..., bytes]) -> Callable[[list[dict[str, Any]]], ExampleArrays]:
    def decode(examples: list[dict[str, Any]]) -> ExampleArrays:
        return arrays_from_blocks(
            [decode_block(encode_block(examples, vocab_size=1 << 17), WIDEST_LIMITS, "x")]
        )

    return decode


@pytest.fixture
def three(arrays: Callable[..., ExampleArrays]) -> ExampleArrays:
    return arrays([THREE, SIX, FIVE])


def packing_of(batch: Batch) -> Packing:
    assert batch.packing is not None
    return batch.packing


def test_the_worked_example(three: ExampleArrays) -> None:
    batch = assemble_packed_batch(three, TWO_ROWS, 8, PAD)
    assert batch.input_ids.tolist() == [
        [6, 20, 7, 21, 7, 6, 22, 7],
        [6, 23, 24, 7, 25, 7, PAD, PAD],
    ]
    assert batch.segment_ids.tolist() == [[0, 0, 0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 1, 1, 0, 0]]
    assert batch.attention_mask.tolist() == [[True] * 8, [True] * 6 + [False] * 2]
    assert batch.lengths.tolist() == [5, 3, 6]
    # 1 and 3 of the first example, 5 + 1 of the second, 8 + 4 of the third.
    assert batch.masked_positions.tolist() == [1, 3, 6, 12]
    assert batch.masked_ids.tolist() == [30, 31, 32, 33]
    assert batch.next_sentence_labels.tolist() == [1, NO_LABEL, 0]
    assert (batch.num_examples, batch.num_tokens, batch.num_masked_tokens) == (3, 14, 4)
    packing = packing_of(batch)
    assert packing.position_ids.tolist() == [[0, 1, 2, 3, 4, 0, 1, 2], [0, 1, 2, 3, 4, 5, 0, 1]]
    assert packing.example_numbers.tolist() == [[1, 1, 1, 1, 1, 2, 2, 2], [3, 3, 3, 3, 3, 3, 0, 0]]
    assert packing.first_positions.tolist() == [0, 5, 8]
    assert packing.cu_seqlens.tolist() == [0, 5, 8, 14, 16]
    assert packing.cu_seqlens.dtype == torch.int32
    assert packing.max_length == 8


def test_fixed_sizes_are_filled_up(three: ExampleArrays) -> None:
    exact = assemble_packed_batch(three, TWO_ROWS, 8, PAD)
    batch = assemble_packed_batch(three, TWO_ROWS, 8, PAD, FixedSizes(rows=3, examples=5, masked=7))
    packing = packing_of(batch)
    assert batch.input_ids.tolist() == [*exact.input_ids.tolist(), [PAD] * 8]
    assert batch.masked_positions.tolist() == [1, 3, 6, 12, 0, 0, 0]
    assert batch.masked_ids.tolist() == [30, 31, 32, 33, *[NO_LABEL] * 3]
    assert batch.next_sentence_labels.tolist() == [1, NO_LABEL, 0, NO_LABEL, NO_LABEL]
    assert packing.first_positions.tolist() == [0, 5, 8, 0, 0]
    # Five examples and three rows with padding would have nine bounds.
    assert packing.cu_seqlens.tolist() == [0, 5, 8, 14, 16, 24, 24, 24, 24]
    assert (batch.num_examples, batch.num_tokens, batch.num_masked_tokens) == (3, 14, 4)
    assert batch.lengths.tolist() == [5, 3, 6]


@pytest.mark.parametrize(
    ("slots", "used", "expected"),
    [(64, 60, 64), (64, 64, 64), (64, 65, 72), (64, 73, 80), (100, 101, 112), (3, 4, 8)],
)
def test_slots_are_added_by_the_eighth(
    slots: int, used: int, expected: int, arrays: Callable[..., ExampleArrays]
) -> None:
    examples = arrays([THREE])
    microbatch = Microbatch(np.zeros(used, dtype=np.int64), np.arange(used) * 3)
    batch = assemble_packed_batch(examples, microbatch, 360, PAD, FixedSizes(1, examples=slots, masked=slots))
    assert batch.masked_ids.shape == batch.next_sentence_labels.shape == (expected,)
    assert (batch.num_examples, batch.num_masked_tokens) == (used, used)
    assert packing_of(batch).cu_seqlens.shape == (expected + 1 + 1,)


def test_nothing_masked_at_all_keeps_the_slots(arrays: Callable[..., ExampleArrays]) -> None:
    examples = arrays([{**THREE, "masked_lm_positions": [], "masked_lm_ids": []}])
    microbatch = Microbatch(np.array([0]), np.array([0]))
    batch = assemble_packed_batch(examples, microbatch, 8, PAD, FixedSizes(rows=1, examples=8, masked=8))
    assert batch.masked_ids.tolist() == [NO_LABEL] * 8
    assert batch.num_masked_tokens == 0
    assert assemble_packed_batch(examples, microbatch, 8, PAD).masked_ids.shape == (0,)


def test_moving_takes_the_packing_along(three: ExampleArrays) -> None:
    batch = assemble_packed_batch(three, TWO_ROWS, 8, PAD).to("meta", non_blocking=True)
    packing = packing_of(batch)
    assert batch.input_ids.device.type == packing.cu_seqlens.device.type == "meta"
    assert packing.position_ids.device.type == packing.first_positions.device.type == "meta"
    assert (batch.num_examples, batch.num_tokens, batch.num_masked_tokens) == (3, 14, 4)
    assert packing.max_length == 8


@pytest.mark.parametrize("sizes", [None, FixedSizes(rows=5, examples=32, masked=64)])
def test_holds_what_the_padded_batch_of_the_same_examples_does(
    make_tiny_examples: Callable[[int, int], list[dict[str, Any]]],
    arrays: Callable[..., ExampleArrays],
    sizes: FixedSizes | None,
) -> None:
    examples = arrays(make_tiny_examples(40, 7))
    for microbatch in cut_by_rows(examples.lengths, 5, 64, RandomStream(0, "tests", "rows")):
        packed = assemble_packed_batch(examples, microbatch, 64, PAD, sizes)
        padded = assemble_batch(examples, microbatch.examples, PAD)
        used = slice(0, padded.num_examples)
        numbers, flat = packing_of(packed).example_numbers, packed.input_ids.flatten()
        for row in range(padded.num_examples):
            there, length = numbers == row + 1, int(padded.lengths[row])
            assert torch.equal(packed.input_ids[there], padded.input_ids[row, :length])
            assert torch.equal(packed.segment_ids[there], padded.segment_ids[row, :length])
            assert packing_of(packed).position_ids[there].tolist() == list(range(length))
        assert torch.equal(packed.lengths, padded.lengths)
        assert flat[packing_of(packed).first_positions[used]].tolist() == [6] * padded.num_examples
        assert torch.equal(packed.next_sentence_labels[used], padded.next_sentence_labels)
        masked = slice(0, padded.num_masked_tokens)
        assert torch.equal(packed.masked_ids[masked], padded.masked_ids)
        assert torch.equal(
            flat[packed.masked_positions[masked]], padded.input_ids.flatten()[padded.masked_positions]
        )
        assert (packed.num_tokens, packed.num_masked_tokens) == (padded.num_tokens, padded.num_masked_tokens)
        lengths = packing_of(packed).cu_seqlens.diff()
        assert int(lengths.sum()) == flat.shape[0]
        assert sorted(lengths[lengths > 0].tolist()) == sorted(
            padded.lengths.tolist() + [int(n) for n in (~packed.attention_mask).sum(1) if n]
        )


def test_sizes_leave_a_little_in_reserve() -> None:
    # 128 rows of 128: 16,384 tokens, 134.3 examples and 2,425 masked positions on average.
    sizes = plan_sizes(128, 128, Density(examples=1 / 122, masked=0.148))
    assert sizes.rows == 128
    assert 134.3 * 1.2 < sizes.examples < 134.3 * 1.4
    assert 2425 * 1.02 < sizes.masked < 2425 * 1.03
    assert sizes.examples % 8 == sizes.masked % 8 == 0


def test_there_are_slots_where_nothing_is_masked() -> None:
    assert plan_sizes(1, 8, Density(examples=0.2, masked=0.0)).masked == 8
