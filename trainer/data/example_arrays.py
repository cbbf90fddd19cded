"""Examples as flat NumPy arrays: what batches are gathered from.

In: record batches of `schemas.examples.example_schema`, already checked. Out: one `ExampleArrays` of all
their examples in the same order. Deterministic: nothing here is random.

Two examples, of 12 and 5 tokens, with 2 and 1 masked positions:

    input_ids             12 ids, 5 ids, then `slack` zeros
    starts, lengths       [0, 12], [12, 5]
    masked_starts, …      [0, 2], [2, 1]
    labels                [0, -100]         -100 where the example has no label
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

NO_LABEL = -100


@dataclass(frozen=True)
class ExampleArrays:
    """n examples; T tokens and M masked positions in all.

    Attributes:
        input_ids: uint16 or uint32 [T + slack]; the zeros at the end let a gather of whole rows run past the
            last example.
        starts: int64 [n], where each example begins in `input_ids`.
        lengths: int64 [n], tokens of each example.
        segment_a_lengths: int64 [n].
        masked_starts: int64 [n], where the positions of each example begin.
        masked_counts: int64 [n].
        masked_lm_positions: uint16 [M], positions within their example.
        masked_lm_ids: uint16 or uint32 [M].
        labels: int64 [n], `NO_LABEL` for null.
    """

    input_ids: NDArray[Any]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    segment_a_lengths: NDArray[np.int64]
    masked_starts: NDArray[np.int64]
    masked_counts: NDArray[np.int64]
    masked_lm_positions: NDArray[np.uint16]
    masked_lm_ids: NDArray[Any]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.lengths)


def arrays_from_blocks(blocks: Sequence[pa.RecordBatch]) -> ExampleArrays:
    """Concatenate the examples of record batches.

    Args:
        blocks: at least one record batch of `example_schema`, checked by `block_format.decode_block`.
    """
    id_values, id_lengths = _concatenate_lists(blocks, "input_ids")
    position_values, masked_counts = _concatenate_lists(blocks, "masked_lm_positions")
    masked_values, _ = _concatenate_lists(blocks, "masked_lm_ids")
    segment_a = [block.column("segment_a_length").to_numpy(zero_copy_only=False) for block in blocks]
    labels = [
        block.column("next_sentence_label").cast(pa.int64()).fill_null(NO_LABEL).to_numpy()
        for block in blocks
    ]
    slack = int(id_lengths.max(initial=0))
    return ExampleArrays(
        input_ids=np.concatenate([*id_values, np.zeros(slack, dtype=id_values[0].dtype)]),
        starts=_starts(id_lengths),
        lengths=id_lengths,
        segment_a_lengths=np.concatenate(segment_a).astype(np.int64),
        masked_starts=_starts(masked_counts),
        masked_counts=masked_counts,
        masked_lm_positions=np.concatenate(position_values),
        masked_lm_ids=np.concatenate(masked_values),
        labels=np.concatenate(labels),
    )


def list_values_and_lengths(column: pa.ListArray) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The flat values of a list column and the length of each list: value dtype [sum], int64 [n]."""
    offsets = column.offsets.to_numpy()
    values = column.values.to_numpy(zero_copy_only=False)[offsets[0] : offsets[-1]]
    return values, np.diff(offsets).astype(np.int64)


def _concatenate_lists(
    blocks: Sequence[pa.RecordBatch], name: str
) -> tuple[list[NDArray[Any]], NDArray[np.int64]]:
    pieces = [list_values_and_lengths(block.column(name)) for block in blocks]
    return [values for values, _ in pieces], np.concatenate([lengths for _, lengths in pieces])


def _starts(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.cumsum(lengths) - lengths
