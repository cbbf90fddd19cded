"""How long things are: exact counts of lengths, and the columns of a histogram made from them.

In: arrays of lengths, as many as there are. Out: figures and `Bin`s. Memory follows the number of different
lengths, not of things. Columns are even where the lengths are, and double in width where a few are far longer
than most.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workflows.report.blocks import Bin, Histogram

_MOST_BINS = 32
_EVEN_WIDTHS = (1, 2, 4, 5, 8, 10, 16, 20, 25, 32, 40, 50, 64, 80, 100, 200, 500, 1000)
# Beyond this ratio of longest to median, even columns would leave most of the picture empty.
_LONG_TAIL = 12


class LengthTally:
    """Counts how often which length occurs."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, lengths: NDArray[Any]) -> None:
        """Count lengths: integers [n], none negative."""
        values, counts = np.unique(lengths, return_counts=True)
        self._counts.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))

    @property
    def num_things(self) -> int:
        """How many lengths were counted."""
        return self._counts.total()

    @property
    def mean(self) -> float:
        """Their mean; 0 where there is none."""
        return sum(length * count for length, count in self._counts.items()) / max(1, self.num_things)

    @property
    def longest(self) -> int:
        """The greatest length; 0 where there is none."""
        return max(self._counts, default=0)

    def quantile(self, share: float) -> int:
        """The least length such that at least this share of the things is no longer."""
        reached, needed = 0, share * self.num_things
        for length in sorted(self._counts):
            reached += self._counts[length]
            if reached >= needed:
                return length
        return 0

    def count_between(self, low: int, high: int) -> int:
        """How many have a length in [low, high)."""
        return sum(count for length, count in self._counts.items() if low <= length < high)

    def as_json(self) -> dict[str, float]:
        """The figures by name."""
        return {
            "count": self.num_things,
            "mean": round(self.mean, 3),
            "median": self.quantile(0.5),
            "p95": self.quantile(0.95),
            "longest": self.longest,
        }


def make_histogram(caption: str, unit: str, tally: LengthTally, limit: int | None = None) -> Histogram:
    """The lengths of a tally as columns.

    Args:
        caption: what is counted.
        unit: what a length is measured in, in the plural.
        tally: at least one length, none of them 0.
        limit: the greatest length possible, where there is one: the axis then ends there.
    """
    edges = choose_edges(tally, limit)
    doubling = edges[1] - edges[0] != edges[-1] - edges[-2]
    bins = [
        Bin(
            tick=f"{low if doubling else high - 1:,}",
            label=f"{low:,}" if high == low + 1 else f"{low:,} to {high - 1:,}",
            count=tally.count_between(low, high),
        )
        for low, high in pairwise(edges)
    ]
    remark = (
        f"Median {tally.quantile(0.5):,}, mean {tally.mean:,.1f}, 95% have at most "
        f"{tally.quantile(0.95):,}, the longest has {tally.longest:,} {unit}."
    )
    note = "Each column covers twice the range of the one before." if doubling else ""
    return Histogram(caption, unit, tuple(bins), remark, note)


def choose_edges(tally: LengthTally, limit: int | None = None) -> list[int]:
    """The edges of the columns, ascending; a column holds the lengths in [edge, next edge).

    Even columns begin at 1 and end at the limit or the first edge past the longest; columns that double
    begin at the power of two below the shortest.
    """
    longest = max(tally.longest, limit or 0, 1)
    if limit is None and longest > max(_MOST_BINS, _LONG_TAIL * tally.quantile(0.5)):
        first = max(1, tally.quantile(0.0)).bit_length() - 1
        return [1 << power for power in range(first, longest.bit_length() + 1)]
    width = next((width for width in _EVEN_WIDTHS if longest <= width * _MOST_BINS), 0)
    width = width or -(-longest // _MOST_BINS)
    return [1 + width * number for number in range(-(-longest // width) + 1)]
