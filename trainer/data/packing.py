"""Lengths to rows: which examples lie side by side in rows of one fixed length.

In: the lengths of many examples. Out: for each example its row and the column where it begins. Deterministic:
nothing here is random; examples of equal length are interchangeable, so whoever permutes them first decides
which of them meet.

The method is best-fit decreasing over classes of equal length, as in Krell et al. 2021, "Efficient sequence
packing without cross-contamination", section 3: the longest examples first, each into the row with the least
room that still takes it. Every step places as many examples of a class as have the same choice, so that the
work grows with the number of distinct lengths, not of examples. Rows of 8 for lengths 7, 5, 3, 3, 1, 1:

    row 0    7 7 7 7 7 7 7 1
    row 1    5 5 5 5 5 3 3 3
    row 2    3 3 3 1 . . . .
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Placement(NamedTuple):
    """Where each example lies: row and first column, int64 [n] each; rows are 0 … `num_rows - 1`."""

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    num_rows: int


def pack_rows(lengths: NDArray[np.int64], row_length: int) -> Placement:
    """Place examples into rows.

    Args:
        lengths: int64 [n], descending, each from 1 to `row_length`.
        row_length: tokens that a row holds.
    """
    rows, columns = np.empty_like(lengths), np.empty_like(lengths)
    open_rows = _OpenRows(row_length)
    placed = 0
    classes, sizes = np.unique(lengths, return_counts=True)
    for length, size in zip(classes[::-1].tolist(), sizes[::-1].tolist(), strict=True):
        end = placed + size
        while placed < end:
            room = open_rows.least_room(length)
            per_row = room // length
            chosen = open_rows.take(room, -(-(end - placed) // per_row))
            items = np.arange(min(end - placed, len(chosen) * per_row))
            there = slice(placed, placed + len(items))
            rows[there] = chosen[items // per_row]
            columns[there] = row_length - room + items % per_row * length
            num_filled, rest = divmod(len(items), per_row)
            open_rows.put(room - per_row * length, chosen[:num_filled])
            open_rows.put(room - rest * length, chosen[num_filled:])
            placed += len(items)
    return Placement(rows, columns, open_rows.num_rows)


class _OpenRows:
    """Rows by the room that is left in them; there is always another empty one."""

    def __init__(self, row_length: int) -> None:
        self._row_length = row_length
        self._by_room: dict[int, NDArray[np.int64]] = {}
        # Bit r is set where a row has room for r tokens.
        self._rooms = 0
        self.num_rows = 0

    def least_room(self, length: int) -> int:
        """The room of the fullest row that takes so many tokens."""
        candidates = self._rooms >> length
        if candidates == 0:
            return self._row_length
        return length + (candidates & -candidates).bit_length() - 1

    def take(self, room: int, at_most: int) -> NDArray[np.int64]:
        """Rows with exactly this room, at least one."""
        there = self._by_room.pop(room, None)
        if there is None:
            self.num_rows += at_most
            return np.arange(self.num_rows - at_most, self.num_rows)
        self._rooms ^= 1 << room
        self.put(room, there[at_most:])
        return there[:at_most]

    def put(self, room: int, rows: NDArray[np.int64]) -> None:
        if room == 0 or len(rows) == 0:
            return
        there = self._by_room.get(room)
        self._by_room[room] = rows if there is None else np.concatenate([there, rows])
        self._rooms |= 1 << room
