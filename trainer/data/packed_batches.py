"""Examples packed into rows, as torch tensors; of fixed sizes where a compiler or a GPU wants them.

In: `ExampleArrays`, and which of them lie where. Out: a `Batch` with a `Packing`. Deterministic: nothing here
is random.

    E  examples in the batch
    B  rows of S tokens
    M  masked positions in the whole batch
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

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

    Microbatches are dealt so that they hold about as many examples each (`microbatches.cut_by_rows`), so a
    small reserve above the mean of full rows is enough. A slot for an example costs next to nothing, one for
    a masked position a product with the whole vocabulary.

    Args:
        num_rows: in a microbatch.
        row_length: tokens of a row.
        density: of the data.
    """
    num_examples, num_masked = (num_rows * row_length * each for each in density)
    return FixedSizes(
        rows=num_rows,
        examples=_round_up(num_examples + 3 * math.sqrt(num_examples)),
        masked=_round_up(num_masked + math.sqrt(num_masked) + 1),
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
        sizes: of the batch. Where there are more examples or masked positions than slots, slots are added by
            the eighth. None takes as many rows and slots as are used.
    """
    indices, offsets = microbatch
    assert offsets is not None
    lengths = examples.lengths[indices]
    num_rows = int(offsets[-1]) // row_length + 1 if sizes is None else sizes.rows
    runs = _Runs(offsets, lengths, num_rows, row_length)
    slots = _number_slots(num_rows * row_length)
    example_numbers = runs.spread(np.arange(1, len(indices) + 1, dtype=np.int32), 0)
    attention_mask = example_numbers > 0
    # Padding looks beyond the end of the ids, and finds the last of the zeros there.
    sources = runs.spread(examples.starts[indices] - offsets, len(examples.input_ids))
    sources += slots
    input_ids = examples.input_ids.take(sources, mode="clip").astype(np.int64)
    if pad_id != 0:
        np.putmask(input_ids, ~attention_mask, pad_id)
    segment_b_starts = runs.spread(offsets + examples.segment_a_lengths[indices], len(slots))
    position_ids = np.repeat(runs.starts, runs.lengths)
    np.subtract(slots, position_ids, out=position_ids)

    masked_positions, masked_ids = gather_masked(examples, indices, offsets)
    masked_slots = _count_slots(len(masked_ids), sizes and sizes.masked)
    example_slots = _count_slots(len(indices), sizes and sizes.examples)
    num_bounds = len(runs.starts) + 1 if sizes is None else example_slots + num_rows + 1

    def in_rows(values: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(values.reshape(num_rows, row_length))

    return Batch(
        input_ids=in_rows(input_ids),
        segment_ids=in_rows((slots >= segment_b_starts).astype(np.int64)),
        attention_mask=in_rows(attention_mask),
        lengths=torch.from_numpy(lengths),
        masked_positions=_fill_up(masked_positions, masked_slots, 0),
        masked_ids=_fill_up(masked_ids, masked_slots, NO_LABEL),
        next_sentence_labels=_fill_up(examples.labels[indices], example_slots, NO_LABEL),
        num_tokens=int(lengths.sum()),
        num_unused_masked_slots=masked_slots - len(masked_ids),
        packing=Packing(
            position_ids=in_rows(position_ids),
            example_numbers=in_rows(example_numbers),
            first_positions=_fill_up(offsets, example_slots, 0),
            cu_seqlens=_fill_up(runs.starts, num_bounds, len(slots)).to(torch.int32),
            max_length=row_length,
        ),
    )


class _Runs:
    """Flattened rows cut into examples and the padding between them, in the order of their places.

    Attributes:
        starts: int64 [n], ascending.
        lengths: int64 [n], together all the slots there are.
    """

    def __init__(
        self, offsets: NDArray[np.int64], lengths: NDArray[np.int64], num_rows: int, row_length: int
    ) -> None:
        filled = np.bincount(offsets // row_length, weights=lengths, minlength=num_rows).astype(np.int64)
        padding_starts = (np.arange(num_rows) * row_length + filled)[filled < row_length]
        self._num_padding = len(padding_starts)
        starts = np.concatenate([offsets, padding_starts])
        self._order = np.argsort(starts, kind="stable")
        self.starts = starts[self._order]
        self.lengths = np.diff(self.starts, append=num_rows * row_length)

    def spread(self, of_examples: NDArray[Any], of_padding: int) -> NDArray[Any]:
        """Give every slot the value of its example, or that of padding."""
        padding = np.full(self._num_padding, of_padding, dtype=of_examples.dtype)
        return np.repeat(np.concatenate([of_examples, padding])[self._order], self.lengths)


@lru_cache(maxsize=4)
def _number_slots(num_slots: int) -> NDArray[np.int64]:
    return np.arange(num_slots)


def _round_up(size: float) -> int:
    return math.ceil(size / _MULTIPLE) * _MULTIPLE


def _count_slots(used: int, slots: int | None) -> int:
    if slots is None or used <= slots:
        return slots or used
    step = _round_up(slots / 8)
    return -(-used // step) * step


def _fill_up(values: NDArray[np.int64], num_slots: int, filler: int) -> torch.Tensor:
    filled = np.full(num_slots, filler, dtype=np.int64)
    filled[: len(values)] = values
    return torch.from_numpy(filled)
