from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from trainer.data.batches import NO_LABEL, assemble_batch
from trainer.data.block_format import WIDEST_LIMITS, decode_block
from trainer.data.example_arrays import ExampleArrays, arrays_from_blocks

PAD = 99
# The worked example: [CLS] the [MASK] sat on the mat [SEP] it purred softly [SEP], and a short one without B.
CAT: dict[str, Any] = {
    "input_ids": [6, 20, 8, 22, 23, 20, 24, 7, 25, 26, 27, 7],
    "segment_a_length": 8,
    "masked_lm_positions": [2, 9],
    "masked_lm_ids": [21, 26],
    "next_sentence_label": 0,
}
SHORT: dict[str, Any] = {
    "input_ids": [6, 30, 31, 7],
    "segment_a_length": 4,
    "masked_lm_positions": [1],
    "masked_lm_ids": [32],
    "next_sentence_label": None,
}
Decode = Callable[..., ExampleArrays]


@pytest.fixture
def arrays(encode_block: Callable[..., bytes]) -> Decode:
    def decode(*blocks: list[dict[str, Any]], vocab_size: int = 1 << 17) -> ExampleArrays:
        contents = [encode_block(block, vocab_size=vocab_size) for block in blocks]
        return arrays_from_blocks([decode_block(content, WIDEST_LIMITS, "x") for content in contents])

    return decode


def test_the_worked_example(arrays: Decode) -> None:
    batch = assemble_batch(arrays([CAT]), np.array([0]), PAD)
    assert batch.input_ids.tolist() == [[6, 20, 8, 22, 23, 20, 24, 7, 25, 26, 27, 7]]
    assert batch.segment_ids.tolist() == [[0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1]]
    assert batch.attention_mask.tolist() == [[True] * 12]
    assert batch.lengths.tolist() == [12]
    assert batch.masked_positions.tolist() == [2, 9]
    assert batch.masked_ids.tolist() == [21, 26]
    assert batch.next_sentence_labels.tolist() == [0]
    assert (batch.num_examples, batch.num_tokens, batch.num_masked_tokens) == (1, 12, 2)


def test_a_shorter_example_is_padded_and_its_positions_lie_in_its_row(arrays: Decode) -> None:
    batch = assemble_batch(arrays([SHORT], [CAT]), np.array([1, 0, 1]), PAD)
    padding = [PAD] * 8
    assert batch.input_ids.tolist() == [CAT["input_ids"], [6, 30, 31, 7, *padding], CAT["input_ids"]]
    assert batch.segment_ids.tolist() == [[0] * 8 + [1] * 4, [0] * 12, [0] * 8 + [1] * 4]
    assert batch.attention_mask.tolist() == [[True] * 12, [True] * 4 + [False] * 8, [True] * 12]
    # Rows of 12: 2 and 9, 12 + 1, 24 + 2 and 24 + 9.
    assert batch.masked_positions.tolist() == [2, 9, 13, 26, 33]
    assert batch.masked_ids.tolist() == [21, 26, 32, 21, 26]
    assert batch.next_sentence_labels.tolist() == [0, NO_LABEL, 0]
    assert batch.num_tokens == 28


def test_dtypes(arrays: Decode) -> None:
    batch = assemble_batch(arrays([CAT]), np.array([0]), PAD)
    whole = (batch.input_ids, batch.segment_ids, batch.lengths, batch.masked_positions, batch.masked_ids)
    assert {tensor.dtype for tensor in (*whole, batch.next_sentence_labels)} == {torch.int64}
    assert batch.attention_mask.dtype == torch.bool


def test_nothing_masked_at_all(arrays: Decode) -> None:
    batch = assemble_batch(
        arrays([{**CAT, "masked_lm_positions": [], "masked_lm_ids": []}]), np.array([0]), PAD
    )
    assert batch.masked_positions.shape == batch.masked_ids.shape == (0,)


def test_the_batch_does_not_share_memory_with_the_examples(arrays: Decode) -> None:
    examples = arrays([CAT])
    batch = assemble_batch(examples, np.array([0]), PAD)
    batch.input_ids.zero_()
    batch.next_sentence_labels.fill_(1)
    assert examples.input_ids[:12].tolist() == CAT["input_ids"]
    assert examples.labels.tolist() == [0]


def test_moving_keeps_the_counts(arrays: Decode) -> None:
    batch = assemble_batch(arrays([CAT]), np.array([0]), PAD)
    moved = batch.to("meta", non_blocking=True)
    assert moved.input_ids.device.type == moved.masked_ids.device.type == "meta"
    assert (moved.num_examples, moved.num_tokens, moved.num_masked_tokens) == (1, 12, 2)


def test_against_an_assembly_example_by_example(
    make_tiny_examples: Callable[[int, int], list[dict[str, Any]]], arrays: Decode
) -> None:
    examples = make_tiny_examples(40, 7)
    chosen = np.random.default_rng(0).permutation(40)[:17]
    batch = assemble_batch(arrays(examples[:13], examples[13:]), chosen, PAD)
    width = max(len(examples[i]["input_ids"]) for i in chosen)
    assert batch.input_ids.shape == (17, width)
    positions: list[int] = []
    ids: list[int] = []
    for row, i in enumerate(chosen):
        tokens = examples[i]["input_ids"]
        assert batch.input_ids[row].tolist() == tokens + [PAD] * (width - len(tokens))
        positions += [row * width + position for position in examples[i]["masked_lm_positions"]]
        ids += examples[i]["masked_lm_ids"]
    assert batch.masked_positions.tolist() == positions
    assert batch.masked_ids.tolist() == ids
