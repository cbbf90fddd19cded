"""Where the examples of a packed batch lie in its rows: what the model must know to keep them apart.

In: tensors made with the batch. Out: the same on another device. Deterministic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from torch import Tensor

DataclassT = TypeVar("DataclassT", bound=Any)


@dataclass(frozen=True, kw_only=True)
class Packing:
    """The layout of B rows of S positions that hold E examples.

    Two rows of 8, with examples of 5 and 3 tokens in one and one of 6 in the other:

        position_ids        0 1 2 3 4 0 1 2     0 1 2 3 4 5 0 1
        example_numbers     1 1 1 1 1 2 2 2     3 3 3 3 3 3 0 0
        first_positions     0 5 8
        cu_seqlens          0 5 8 14 16         padding counts as a sequence of its own

    Attributes:
        position_ids: int64 [B, S], from 0 in each example and in padding.
        example_numbers: int32 [B, S], from 1, telling the examples apart; 0 on padding.
        first_positions: int64 [E], where each example's `[CLS]` lies in the flattened [B * S]; 0 in slots
            that are not used.
        cu_seqlens: int32 [N + 1], ascending from 0 to B * S: the bounds of all examples and of the padding at
            the end of rows, in the flattened [B * S]; filled up with B * S where its length is fixed.
        max_length: tokens of the longest sequence at most: S.
    """

    position_ids: Tensor
    example_numbers: Tensor
    first_positions: Tensor
    cu_seqlens: Tensor
    max_length: int


def replace_tensors(holder: DataclassT, change: Callable[[Tensor], Tensor]) -> DataclassT:
    """A dataclass with every tensor changed; everything else stays."""
    values = {field.name: getattr(holder, field.name) for field in fields(holder)}
    changed = {name: change(value) for name, value in values.items() if isinstance(value, Tensor)}
    return replace(holder, **changed)
