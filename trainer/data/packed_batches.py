"""Examples packed into rows, as torch tensors; of fixed sizes where a compiler or a GPU wants them.

In: `ExampleArrays`, and which of them lie where. Out: a `Batch` with a `Packing`. Deterministic: nothing here
is random.

    E  examples in the batch
    B  rows of S tokens
    M  masked positions in the whole batch
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from trainer.data.batches import Batch, gather_masked
from trainer.data.example_arrays import NO_LABEL, ExampleArrays
from trainer.data.microbatches import Microbatch
from trainer.model.packing import Packing

# Fixed sizes are rounded up to a multiple that suits matrix units.
_MULTIPLE = 8


class Density(NamedTuple):
    """How many examples and masked positions come with each token of some data."""

    examples: float
    masked: float


class FixedSizes(NamedTuple):
    """Sizes of all packed batches of a run: rows, and slots for examples and for masked positions."""

    rows: int
    examples: int
    masked: int


def plan_sizes(num_rows: int, row_length: int, density: Density) -> FixedSizes:
    """Slots that microbatches of so many rows seldom exceed.

    Microbatches are dealt so that they hold about as many examples each (`microbatches.cut_by_rows`): what is
    added to the mean is a few deviations of what a row may have more or less.

    Args:
        num_rows: in a microbatch.
        row_length: tokens of a row.
        density: of the data.
    """
    num_tokens = num_rows * row_length
    return FixedSizes(
        rows=num_rows,
        examples=_with_reserve(num_tokens * density.examples),
        masked=_with_reserve(num_tokens * density.masked),
    )


def assemble_packed_batch(
    examples: ExampleArrays,
    microbatch: Microbatch,
    row_length: int,
    pad_id: int,
    sizes: FixedSizes | None = None,
) -> Batch:
    """Gather examples into rows.

    Args:
        examples: where the examples lie.
        microbatch: which ones, at least one, and their offsets.
        row_length: S.
        pad_id: the id of `[PAD]`.
        sizes: of the batch. Where there are more examples or masked positions than slots, there are twice as
            many slots, or three times. None takes as many rows and slots as are used.
    """
    indices, offsets = microbatch
    assert offsets is not None
    lengths = examples.lengths[indices]
    num_rows = int(offsets[-1]) // row_length + 1 if sizes is None else sizes.rows
    tokens = np.repeat(np.arange(len(indices)), lengths)
    position_ids = np.arange(len(tokens)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    places = offsets[tokens] + position_ids

    def spread(values: NDArray[np.generic], filler: int, dtype: type[np.integer]) -> torch.Tensor:
        flat = np.full(num_rows * row_length, filler, dtype=dtype)
        flat[places] = values
        return torch.from_numpy(flat.reshape(num_rows, row_length))

    masked_positions, masked_ids = gather_masked(examples, indices, offsets)
    masked_slots = _count_slots(len(masked_ids), sizes and sizes.masked)
    example_slots = _count_slots(len(indices), sizes and sizes.examples)
    example_numbers = spread(tokens + 1, 0, np.int32)
    return Batch(
        input_ids=spread(examples.input_ids[examples.starts[indices][tokens] + position_ids], pad_id, np.int64),
        segment_ids=spread(position_ids >= examples.segment_a_lengths[indices][tokens], 0, np.int64),
        attention_mask=example_numbers > 0,
        lengths=torch.from_numpy(lengths),
        masked_positions=_fill_up(masked_positions, masked_slots, 0),
        masked_ids=_fill_up(masked_ids, masked_slots, NO_LABEL),
        next_sentence_labels=_fill_up(examples.labels[indices], example_slots, NO_LABEL),
        num_tokens=len(tokens),
        num_unused_masked_slots=masked_slots - len(masked_ids),
        packing=Packing(
            position_ids=spread(position_ids, 0, np.int64),
            example_numbers=example_numbers,
            first_positions=_fill_up(offsets, example_slots, 0),
            cu_seqlens=_bounds(offsets, lengths, num_rows, row_length, sizes and example_slots),
            max_length=row_length,
        ),
    )


def _with_reserve(expected: float) -> int:
    return math.ceil((1.02 * expected + 3 * math.sqrt(expected) + 1) / _MULTIPLE) * _MULTIPLE


def _count_slots(used: int, slots: int | None) -> int:
    return used if slots is None else max(1, -(-used // slots)) * slots


def _fill_up(values: NDArray[np.int64], num_slots: int, filler: int) -> torch.Tensor:
    filled = np.full(num_slots, filler, dtype=np.int64)
    filled[: len(values)] = values
    return torch.from_numpy(filled)


def _bounds(
    offsets: NDArray[np.int64],
    lengths: NDArray[np.int64],
    num_rows: int,
    row_length: int,
    num_slots: int | None,
) -> torch.Tensor:
    row_starts = np.arange(num_rows) * row_length
    filled = np.bincount(offsets // row_length, weights=lengths, minlength=num_rows).astype(np.int64)
    padding_starts = (row_starts + filled)[filled < row_length]
    bounds = np.sort(np.concatenate([offsets, padding_starts]))
    # The total comes once more at the end, or until there is a bound for every slot and every row's padding.
    num_bounds = len(bounds) + 1 if num_slots is None else num_slots + num_rows + 1
    cu_seqlens = np.full(num_bounds, num_rows * row_length, dtype=np.int32)
    cu_seqlens[: len(bounds)] = bounds
    return torch.from_numpy(cu_seqlens)
