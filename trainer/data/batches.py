"""Examples as padded torch tensors.

In: `ExampleArrays` and the numbers of the examples wanted. Out: a `Batch`, padded to its own
longest example.
Deterministic: the rows come in the order of the numbers; nothing here is random.

    B  examples in the batch
    S  tokens of its longest example
    M  masked positions in the whole batch
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trainer.data.example_arrays import NO_LABEL, ExampleArrays

__all__ = ["NO_LABEL", "Batch", "assemble_batch"]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A microbatch, ready for the model.

    Attributes:
        input_ids: int64 [B, S], `[CLS] A [SEP] B [SEP]` already masked, then the padding id.
        segment_ids: int64 [B, S], 1 in segment B and its `[SEP]`, else 0 (padding too).
        attention_mask: bool [B, S], True where there is a token.
        lengths: int64 [B], tokens of each example: the row sums of `attention_mask`.
        masked_positions: int64 [M], ascending, into the flattened [B * S].
        masked_ids: int64 [M], what stood there before masking.
        next_sentence_labels: int64 [B], 0 = IsNext, 1 = NotNext, `NO_LABEL` (-100) where there is none.
        num_tokens: tokens that are no padding.
    """

    input_ids: torch.Tensor
    segment_ids: torch.Tensor
    attention_mask: torch.Tensor
    lengths: torch.Tensor
    masked_positions: torch.Tensor
    masked_ids: torch.Tensor
    next_sentence_labels: torch.Tensor
    num_tokens: int

    @property
    def num_examples(self) -> int:
        """B."""
        return self.input_ids.shape[0]

    @property
    def num_masked_tokens(self) -> int:
        """M."""
        return self.masked_ids.shape[0]

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """The same batch with its tensors on another device."""
        return replace(
            self,
            **{name: value.to(device, non_blocking=non_blocking) for name, value in self._tensors().items()},
        )

    def pin_memory(self) -> Batch:
        """The same batch in page-locked memory, from which a copy to a GPU doesn't wait."""
        return replace(self, **{name: value.pin_memory() for name, value in self._tensors().items()})

    def _tensors(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}


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

    masked_counts = examples.masked_counts[indices]
    rows = np.repeat(np.arange(len(indices)), masked_counts)
    within_row = np.arange(len(rows)) - (np.cumsum(masked_counts) - masked_counts)[rows]
    masked = examples.masked_starts[indices][rows] + within_row
    positions = rows * len(columns) + examples.masked_lm_positions[masked]
    return Batch(
        input_ids=torch.from_numpy(input_ids),
        segment_ids=torch.from_numpy(segment_ids.astype(np.int64)),
        attention_mask=torch.from_numpy(attention_mask),
        lengths=torch.from_numpy(lengths),
        masked_positions=torch.from_numpy(positions),
        masked_ids=torch.from_numpy(examples.masked_lm_ids[masked].astype(np.int64)),
        next_sentence_labels=torch.from_numpy(examples.labels[indices]),
        num_tokens=int(lengths.sum()),
    )
