"""Says on standard error how far the benchmarks are, since a run takes minutes."""

from __future__ import annotations

import sys

from tests.benchmarks.measuring import Measurement


def report_run(name: str, run: Measurement) -> None:
    """A line for a run that has ended."""
    print(
        f"  {name}: {run.wall_seconds:.2f} s wall, {run.cpu_seconds:.2f} s processor, "
        f"{max(run.peak_bytes, run.child_peak_bytes) / 1e6:.0f} MB; {run.value}",
        file=sys.stderr,
        flush=True,
    )


def report_absence(name: str, remedy: str) -> None:
    """A line for a side that can't be measured here, so that its rows are left out."""
    print(f"  {name} isn't installed, so it is left out: {remedy}", file=sys.stderr, flush=True)
