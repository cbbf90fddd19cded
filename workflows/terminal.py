"""What a command says while it works and when it is done.

Progress and warnings go to standard error: bars with rate and time left on a terminal, a plain line now and
then elsewhere. The closing summary goes to standard output, as aligned lines or, under `--json`, as one JSON
object; then nothing else may reach standard output, whatever a library prints.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from typing import Any

import click

_SECONDS_BETWEEN_LINES = 10.0
# In a narrower terminal what is noted stands below the progress, not beside it.
_WIDE_COLUMNS = 110


class Terminal:
    """The one place that a command prints through."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        # Under torchrun every rank runs the command; one of them speaks.
        self._silent = os.environ.get("RANK", "0") != "0"
        self._interactive = sys.stderr.isatty() and not self._silent

    def say(self, text: str) -> None:
        """Write a line for the person, to standard error."""
        if not self._silent:
            click.echo(text, err=True)

    def note(self, text: str) -> None:
        """Write what a person should know before the work begins, to standard error."""
        if not self._silent:
            click.echo(click.style("note: ", bold=True) + text, err=True)

    def warn(self, text: str) -> None:
        """Write a warning, to standard error."""
        if not self._silent:
            click.echo(click.style("warning: ", fg="yellow") + text, err=True)

    @contextmanager
    def work(self, title: str, unit: str, *, then: str = "finishing") -> Iterator[WorkReporter]:
        """Show the progress of one piece of work.

        Args:
            title: what is done, in a word or two.
            unit: what is counted, in the plural.
            then: what is still being done when all are counted.

        Yields:
            a function of (done, total), with a method `note`.
        """
        with _standard_output_left_alone():
            if self._interactive:
                with _progress_bar(title, unit, then) as report:
                    yield report
            else:
                yield _LineReporter(title, unit, then, self.say)

    def finish(self, summary: Mapping[str, Any], lines: Sequence[tuple[str, str]], next_command: str) -> None:
        """Print the closing summary.

        Args:
            summary: what `--json` prints.
            lines: (label, value) of the summary for a person; an empty value makes a heading.
            next_command: what to type next; may be empty.
        """
        if self._silent:
            return
        if self.as_json:
            click.echo(json.dumps(summary, ensure_ascii=False))
            return
        for heading, entries in _by_heading(lines):
            if heading:
                click.echo(click.style(heading, bold=True))
            width = max((len(label) for label, _ in entries), default=0)
            for label, value in entries:
                click.echo(f"  {label:<{width}}  {value}")
        if next_command:
            click.echo(click.style("Next: ", bold=True) + next_command)


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since it was made, to the millisecond."""
        return round(time.monotonic() - self._start, 3)


def format_count(number: float) -> str:
    """An integer with its thousands apart, 1,234,567."""
    return f"{number:,.0f}"


def format_bytes(num_bytes: float) -> str:
    """A size as a person says it, 12.3 MB."""
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes:.0f} bytes"


def format_seconds(seconds: float) -> str:
    """A span of time as a person says it: 0.4 s, 12 s, 3 min 05 s, 2 h 07 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def format_share(share: float) -> str:
    """A share as a percentage, 12.3%."""
    return f"{share:.1%}"


def _by_heading(lines: Sequence[tuple[str, str]]) -> list[tuple[str, list[tuple[str, str]]]]:
    groups: list[tuple[str, list[tuple[str, str]]]] = [("", [])]
    for label, value in lines:
        if value:
            groups[-1][1].append((label, value))
        else:
            groups.append((label, []))
    return groups


class WorkReporter:
    """Takes the progress of one piece of work; may be called as often as wanted, from any thread."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._note = ""
        self._first: tuple[float, int] | None = None

    def __call__(self, done: int, total: int) -> None:
        """Report how many of how many are done."""

    def _measure_rate(self, done: int) -> float:
        """Pieces a second since the first report; 0 before the second.

        What an earlier process had done, and this one's start, count in neither the pieces nor the time.
        """
        seconds = self._seconds
        if self._first is None:
            self._first = seconds, done
        since, before = self._first
        return (done - before) / (seconds - since) if seconds > since else 0.0

    def note(self, text: str) -> None:
        """Say something beside the progress, such as the loss."""
        self._note = text

    @property
    def _seconds(self) -> float:
        return max(time.monotonic() - self._start, 1e-3)


class _LineReporter(WorkReporter):
    """Writes a plain line now and then."""

    def __init__(self, title: str, unit: str, then: str, say: Callable[[str], None]) -> None:
        super().__init__()
        self._title = title
        self._unit = unit
        self._then = then
        self._say = say
        self._last_seconds = 0.0
        say(f"{title} ...")

    def __call__(self, done: int, total: int) -> None:
        rate = self._measure_rate(done)
        seconds = self._seconds
        if seconds - self._last_seconds < _SECONDS_BETWEEN_LINES:
            return
        self._last_seconds = seconds
        left = f", {self._then}"
        if done < total:
            left = f", {format_seconds((total - done) / rate)} left" if rate > 0 else ""
        note = f", {self._note}" if self._note else ""
        self._say(f"{self._title}: {done:,} of {total:,} {self._unit}{left}{note}")


class _BarReporter(WorkReporter):
    """Moves a bar of rich's."""

    update: Callable[..., None]

    def __init__(self, unit: str, then: str, before_note: str = ", ") -> None:
        super().__init__()
        self._unit = unit
        self._then = then
        self._before_note = before_note
        self._done = ""

    def __call__(self, done: int, total: int) -> None:
        rate = self._measure_rate(done)
        self._done = f"{done:,}/{total:,} {self._unit}"
        facts = [self._done]
        if rate > 0:
            facts.append(f"{rate:,.1f}/s")
        if done >= total:
            facts.append(self._then)
        elif rate > 0:
            facts.append(f"{format_seconds((total - done) / rate)} left")
        self.update(completed=done, total=total, facts=self._with_note(", ".join(facts)))

    @property
    def elapsed(self) -> str:
        """The time since the start of the work, as a person says it."""
        return format_seconds(self._seconds)

    def close(self) -> None:
        """Leave the last count, or nothing of work that was found done or failed before its first piece."""
        if self._done:
            self.update(facts=self._with_note(self._done))
        else:
            self.update(visible=False)

    def _with_note(self, facts: str) -> str:
        return f"{facts}{self._before_note}{self._note}" if self._note else facts


@contextmanager
def _progress_bar(title: str, unit: str, then: str) -> Iterator[WorkReporter]:
    from rich import progress as rich_progress
    from rich.console import Console

    console = Console(stderr=True)
    columns = (
        rich_progress.TextColumn(f"{title:<9}"),
        rich_progress.BarColumn(bar_width=max(10, min(30, console.width - 70))),
        rich_progress.TextColumn("{task.fields[facts]}", markup=False),
        # rich's own clock stops at the last piece, and what comes then may take longer than all pieces.
        rich_progress.TextColumn("({task.fields[report].elapsed})", style="progress.elapsed"),
    )
    # redirect_*: what a library prints must not pass through the bar to standard output.
    with rich_progress.Progress(*columns, console=console, redirect_stdout=False) as bar:
        report = _BarReporter(unit, then, ", " if console.width >= _WIDE_COLUMNS else "\n")
        task = bar.add_task(title, total=None, facts="starting", report=report)
        report.update = partial(bar.update, task)
        try:
            yield report
        finally:
            report.close()


@contextmanager
def _standard_output_left_alone() -> Iterator[None]:
    """Send what libraries and child processes print to standard output to standard error instead."""
    sys.stdout.flush()
    if not _is_descriptor(sys.stdout, 1) or not _is_descriptor(sys.stderr, 2):
        with redirect_stdout(sys.stderr):
            yield
        return
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def _is_descriptor(stream: Any, descriptor: int) -> bool:
    try:
        return bool(stream.fileno() == descriptor)
    except (OSError, ValueError, AttributeError):
        return False
