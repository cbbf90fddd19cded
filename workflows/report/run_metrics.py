"""The lines of a run's `metrics.jsonl`, by the name of what was measured.

In: the content of the file, which may end in the middle of a line while the run goes on. Out: curves. A value
that is no finite number (null, NaN, infinite) is a gap. Deterministic.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

VALIDATION = "validation_"
# Beyond it a float tells a step from the next no more.
_MOST_STEPS = 1 << 53

Points = tuple[tuple[float, float | None], ...]


@dataclass(frozen=True)
class RunMetrics:
    """What a run has written of itself.

    Attributes:
        lines: by step, ascending; of a step that occurs twice the later line.
        num_unreadable: lines that are no JSON object with a step, but for a torn last one.
    """

    lines: tuple[Mapping[str, Any], ...]
    num_unreadable: int = 0

    @property
    def training_lines(self) -> tuple[Mapping[str, Any], ...]:
        """Those that tell of training steps, not only of held-out examples."""
        return tuple(line for line in self.lines if "loss" in line)

    @property
    def last_step(self) -> int:
        """The last step of which there is a line; 0 where there is none."""
        return int(self.lines[-1]["step"]) if self.lines else 0

    def curve(self, name: str, scale: float = 1.0) -> Points:
        """(step, value) wherever a line has the name; empty where none has a finite value.

        Args:
            name: of the measurement.
            scale: multiplies values.
        """
        points = [(float(line["step"]), finite(line[name], scale)) for line in self.lines if name in line]
        return tuple(points) if any(value is not None for _, value in points) else ()

    def last(self, name: str) -> float | None:
        """The last value if it is finite, else None."""
        found = [line[name] for line in self.lines if name in line]
        return finite(found[-1]) if found else None

    def evaluations(self) -> tuple[Mapping[str, Any], ...]:
        """Lines with held-out figures."""
        return tuple(line for line in self.lines if f"{VALIDATION}masked_lm_loss" in line)

    def steps_without_loss(self) -> list[int]:
        """Steps whose line tells of a loss that is no finite number."""
        return [int(line["step"]) for line in self.training_lines if finite(line["loss"]) is None]


def parse_metrics(content: bytes) -> RunMetrics:
    """Parse `metrics.jsonl`, empty or torn off in its last line as it may be."""
    by_step: dict[int, Mapping[str, Any]] = {}
    num_unreadable = 0
    *whole, torn = content.split(b"\n")
    for line in whole:
        parsed = _parse_line(line)
        if parsed is None:
            num_unreadable += bool(line.strip())
        else:
            by_step[parsed["step"]] = {**by_step.get(parsed["step"], {}), **parsed}
    last = _parse_line(torn)
    if last is not None:
        by_step[last["step"]] = last
    return RunMetrics(tuple(by_step[step] for step in sorted(by_step)), num_unreadable)


def finite(value: object, scale: float = 1.0) -> float | None:
    """A JSON value as a number, scaled; None where it is no finite one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        scaled = value * scale
        return float(scaled) if math.isfinite(scaled) else None
    except OverflowError:  # an integer that no float holds
        return None


def _parse_line(line: bytes) -> dict[str, Any] | None:
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError):
        return None
    step = parsed.get("step") if isinstance(parsed, dict) else None
    return parsed if type(step) is int and 0 <= step < _MOST_STEPS else None
