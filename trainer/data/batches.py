"""Examples as torch tensors: what a batch is, and how a padded one is made.

In: `ExampleArrays` and the numbers of the examples wanted. Out: a `Batch`, padded to its own longest example;
`packed_batches` makes the other kind. Deterministic: the rows come in the order of the numbers; nothing here
is random.

    E  examples in the batch
    B  rows: E of them where the batch is padded, fewer where it is packed
    S  tokens of a row
    M  masked positions in the whole batch
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from trainer.data.example_arrays import NO_LABEL, ExampleArrays
from trainer.model.packing import Packing, replace_tensors

__all__ = ["NO_LABEL", "Batch", "assemble_batch"]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A microbatch, ready for the model.

    Packed batches of fixed sizes have slots that are not used at the end of what counts masked positions and
    examples: their position is 0 and their label `NO_LABEL`.

    Attributes:
        input_ids: int64 [B, S], `[CLS] A [SEP] B [SEP]` already masked, then the padding id or, where packed,
            the next example.
        segment_ids: int64 [B, S], 1 in segment B and its `[SEP]`, else 0 (padding too).
        attention_mask: bool [B, S], True where there is a token.
        lengths: int64 [E], tokens of each example, without unused slots.
        masked_positions: int64 [M], into the flattened [B * S], ascending but for unused slots.
        masked_ids: int64 [M], what stood there before masking.
        next_sentence_labels: int64 [E], 0 = IsNext, 1 = NotNext, `NO_LABEL` (-100) where there is none.
        num_tokens: tokens that are no padding.
        num_unused_masked_slots: how many of M.
        packing: where the examples lie in their rows; None where each has a row of its own.
    """

    input_ids: torch.Tensor
    segment_ids: torch.Tensor
    attention_mask: torch.Tensor
    lengths: torch.Tensor
    masked_positions: torch.Tensor
    masked_ids: torch.Tensor
    next_sentence_labels: torch.Tensor
    num_tokens: int
    num_unused_masked_slots: int = 0
    packing: Packing | None = None

    @property
    def num_examples(self) -> int:
        """E, without unused slots."""
        return self.lengths.shape[0]

    @property
    def num_masked_tokens(self) -> int:
        """M, without unused slots."""
        return self.masked_ids.shape[0] - self.num_unused_masked_slots

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """The same batch with its tensors on another device."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Batch:
        """The same batch in page-locked memory, from which a copy to a GPU doesn't wait."""
        return self._map(torch.Tensor.pin_memory)

    def _map(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
        packing = self.packing and replace_tensors(self.packing, change)
        return replace(replace_tensors(self, change), packing=packing)


def assemble_batch(examples: ExampleArrays, indices: NDArray[np.int64], pad_id: int) -> Batch:
    """Gather examples into a padded batch.

    Args:
        examples: where the examples lie.
        indices: int64 [B], which ones, B >= 1.
        pad_id: the id of `[PAD]`.
    """
    lengths = examples.lengths[indices]
    columns = np.arange(lengths.max())
    attention_mask = columns < lengths[:, None]
    # One gather of whole rows, past their ends into the next example or the slack, then the padding on top.
    input_ids = examples.input_ids[examples.starts[indices][:, None] + columns].astype(np.int64)
    np.putmask(input_ids, ~attention_mask, pad_id)
    segment_ids = (columns >= examples.segment_a_lengths[indices][:, None]) & attention_mask

    row_starts = np.arange(len(indices)) * len(columns)
    positions, masked_ids = gather_masked(examples, indices, row_starts)
    return Batch(
        input_ids=torch.from_numpy(input_ids),
        segment_ids=torch.from_numpy(segment_ids.astype(np.int64)),
        attention_mask=torch.from_numpy(attention_mask),
        lengths=torch.from_numpy(lengths),
        masked_positions=torch.from_numpy(positions),
        masked_ids=torch.from_numpy(masked_ids),
        next_sentence_labels=torch.from_numpy(examples.labels[indices]),
        num_tokens=int(lengths.sum()),
    )


def gather_masked(
    examples: ExampleArrays, indices: NDArray[np.int64], offsets: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Masked positions of examples that are laid out anew, and what stood there: int64 [M], int64 [M].

    Args:
        examples: where the examples lie.
        indices: int64 [E], which ones.
        offsets: int64 [E], where each begins in the new layout.
    """
    counts = examples.masked_counts[indices]
    before = np.cumsum(counts) - counts
    masked = np.arange(counts.sum()) + np.repeat(examples.masked_starts[indices] - before, counts)
    positions = np.repeat(offsets, counts) + examples.masked_lm_positions[masked]
    return positions, examples.masked_lm_ids[masked].astype(np.int64)
