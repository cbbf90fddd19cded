"""The lines that a benchmark prints: a ratio, what was aimed at, and the two medians that it comes from.

In: measurements. Out: lines of a Markdown table.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tests.benchmarks.measuring import Measurement, Quantity, Ratio, compare_runs

QUANTITIES: dict[Quantity, str] = {
    "wall_seconds": "wall",
    "cpu_seconds": "processor",
    "process_seconds": "wall, whole process",
}
_TITLES = ("compared", "measured by", "ratio (range of rounds)", "aim", "reached", "medians")


@dataclass(frozen=True)
class Goal:
    """A bound on a ratio.

    Attributes:
        bound: the number to keep to.
        side: whether the ratio may be at most or at least that.
    """

    side: Literal["at most", "at least"]
    bound: float

    def is_reached_by(self, value: float) -> bool:
        """Whether a ratio keeps to the bound."""
        return value <= self.bound if self.side == "at most" else value >= self.bound

    def __str__(self) -> str:
        return f"{self.side} {self.bound:g}"


@dataclass(frozen=True)
class Row:
    """One ratio."""

    compared: str
    measured_by: str
    ratio: Ratio
    goal: Goal | None
    medians: str

    def __str__(self) -> str:
        reached = (
            "" if self.goal is None else "yes" if self.goal.is_reached_by(self.ratio.value) else "**no**"
        )
        cells = (self.compared, self.measured_by, self.ratio, self.goal or "", reached, self.medians)
        return "| " + " | ".join(str(cell) for cell in cells) + " |"


def compare_times(
    compared: str,
    numerators: Sequence[Measurement],
    denominators: Sequence[Measurement],
    goal: Goal | None = None,
    quantities: Sequence[Quantity] = ("wall_seconds", "cpu_seconds"),
) -> list[Row]:
    """A row a quantity: the times of the one side by those of the other."""
    return [
        Row(
            compared,
            QUANTITIES[quantity],
            compare_runs(numerators, denominators, quantity),
            goal,
            f"{_median(numerators, quantity):.2f} s / {_median(denominators, quantity):.2f} s",
        )
        for quantity in quantities
    ]


def format_table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    return "\n".join(
        ["| " + " | ".join(_TITLES) + " |", "|" + " --- |" * len(_TITLES), *(str(row) for row in rows)]
    )


def _median(runs: Sequence[Measurement], quantity: Quantity) -> float:
    return statistics.median(getattr(run, quantity) for run in runs)
