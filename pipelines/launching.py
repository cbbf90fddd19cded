"""Starts a pipeline on the runner that is asked for, and says in a line or two why it failed.

In: a function that constructs the pipeline, a number of workers, Beam options. Out: nothing; the pipeline
writes its own results. Deterministic as far as the pipeline is.

With one worker the pipeline runs in this process (Beam's FnApiRunner); with several, in processes of this
machine (`pipelines.local_runner`). A `--runner` among the Beam options wins over both.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from schemas import errors
from schemas.errors import ClozelineError, UsageError

Progress = Callable[[int, int], None]

IN_PROCESS_RUNNER = "apache_beam.runners.portability.fn_api_runner.fn_runner.FnApiRunner"
LOCAL_RUNNER = "pipelines.local_runner.LocalRunner"

# "module.Class: message [while running 'step']" closes the traceback that a worker sends back.
_EXCEPTION = re.compile(
    r"^(?P<kind>[A-Za-z_][\w.]*)(?:: (?P<message>.*?))?"
    r"(?: \[while running '(?P<step>[^']*)'\])?(?:\s*\[while running '[^']*'\])*\s*\Z",
    re.DOTALL | re.MULTILINE,
)
_WHILE_RUNNING = re.compile(r"(?:\s*\[while running '[^']*'\])+\s*\Z")
_TRACEBACK_START = "Traceback (most recent call last):"
_MAX_MESSAGE_CHARACTERS = 500
# Other runners may know options that Beam's classes don't: a job service, for one, is asked for its own.
_RUNNERS_WITHOUT_MORE_OPTIONS = {"", "direct", "switchingdirect", "fnapi", "local", "dataflow"}


def count_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_pipeline(
    construct: Callable[[beam.Pipeline], object],
    *,
    workers: int | None = None,
    beam_args: Sequence[str] = (),
    report: Callable[[], None] | None = None,
    report_seconds: float = 0.25,
) -> None:
    """Construct a pipeline, run it, and wait for its end.

    Args:
        construct: applies the transforms to the pipeline it is given.
        workers: processes on this machine, None for one a core; means nothing to a runner named in
            `beam_args`.
        beam_args: Beam's own options, as typed on a command line.
        report: called now and then from a thread of this process while the pipeline runs, and once after it
            ended well; it looks for itself how far the work is.
        report_seconds: time between two calls of `report`; more where a call takes long.

    Raises:
        ClozelineError: a step failed. Where the step raised a ClozelineError, it is that class and message;
            else the last line of the worker's traceback and the name of the step. `__cause__` has the whole
            of it.
        UsageError: Beam refuses an option, or knows none of that name.
    """
    num_workers = workers if workers is not None else count_cores()
    with (
        _parse_options(num_workers, beam_args) as options,
        _quiet(beam_args),
        _reporting(report, report_seconds),
    ):
        try:
            pipeline = beam.Pipeline(options=options)
            construct(pipeline)
            pipeline.run().wait_until_finish()
        except Exception as error:
            if _was_interrupted(error):
                raise KeyboardInterrupt from error
            raise explain_failure(error) from error


def explain_failure(error: Exception) -> ClozelineError:
    """The one or two lines that say what went wrong in a pipeline, from what its runner raised."""
    text = str(error)
    if isinstance(error, ClozelineError):  # raised in this process
        return type(error)(_WHILE_RUNNING.sub("", text))
    tail = (
        text[text.rfind(_TRACEBACK_START) :]
        if _TRACEBACK_START in text
        else f"{type(error).__name__}: {text}"
    )
    # Frames are indented and the exception is not: it begins at the first such line after the heading.
    lines = tail.splitlines()
    first = next((i for i, line in enumerate(lines) if i and line and not line.startswith(" ")), 0)
    found = _EXCEPTION.match("\n".join(lines[first:]))
    if found is None:
        return ClozelineError(f"the pipeline failed: {text.strip()[-_MAX_MESSAGE_CHARACTERS:]}")
    kind, message, step = found["kind"], (found["message"] or "").strip(), found["step"]
    ours = getattr(errors, kind.rpartition(".")[2], None) if kind.startswith("schemas.errors.") else None
    if isinstance(ours, type) and issubclass(ours, ClozelineError):
        return ours(message)
    where = f" in step {step}" if step else ""
    return ClozelineError(
        f"the pipeline failed{where}: {kind}: {message[:_MAX_MESSAGE_CHARACTERS]}".rstrip(": ")
    )


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether a Ctrl-C is behind an error: Beam wraps one that comes while a step runs in this process."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


class _Options(PipelineOptions):
    """Options that make each view of themselves once.

    Beam looks at the same few views for every step of a pipeline, and builds a parser for each look: a fifth
    of the time that a pipeline takes before it runs. What views say is shared between them in any case.
    """

    def view_as(self, cls: Any) -> Any:
        """The view of this class."""
        views = self.__dict__.setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]


@contextlib.contextmanager
def _parse_options(num_workers: int, beam_args: Sequence[str]) -> Iterator[PipelineOptions]:
    arguments = list(beam_args)
    if not names_runner(arguments):
        if num_workers == 1:
            arguments.append(f"--runner={IN_PROCESS_RUNNER}")
        else:
            arguments += [*_local_runner_arguments(), f"--direct_num_workers={num_workers}"]
    try:
        options = _Options(arguments)
        options.get_all_options(add_extra_args_fn=lambda parser: _refuse_unknown(parser, arguments))
    except SystemExit:
        raise UsageError(
            f"Beam doesn't understand the options {' '.join(beam_args)}: see the line above for the reason."
        ) from None
    yield options


def _refuse_unknown(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    """Raise UsageError for what Beam would drop with no more than a line in its log."""
    parsed, unknown = parser.parse_known_args(arguments)
    runner = (parsed.runner or "").rpartition(".")[2].lower().removesuffix("runner")
    if not unknown or runner not in _RUNNERS_WITHOUT_MORE_OPTIONS:
        return
    # The value of an unknown option stands behind it; one that no option precedes is named itself.
    names = [word.partition("=")[0] for word in unknown if word.startswith("-")] or unknown
    near = [
        match
        for name in names
        for match in difflib.get_close_matches(
            f"--{name.lstrip('-').partition('=')[0]}", [f"--{key}" for key in vars(parsed)], n=1
        )
    ]
    meant = f"Did you mean {', '.join(dict.fromkeys(near))}? " if near else ""
    raise UsageError(
        f"Beam knows no option {', '.join(dict.fromkeys(names))}.\n"
        f"{meant}What stands after `--` is Beam's own: --runner=NAME and the options of that runner."
    )


def names_runner(beam_args: Sequence[str]) -> bool:
    """Whether Beam options choose a runner."""
    return any(argument == "--runner" or argument.startswith("--runner=") for argument in beam_args)


def _local_runner_arguments() -> list[str]:
    try:
        import pipelines.local_runner
    except (ImportError, AttributeError):
        # A release of Beam without the private names that LocalRunner stands on: slower, but as right.
        return [f"--runner={IN_PROCESS_RUNNER}", "--direct_running_mode=multi_processing"]
    del pipelines
    return [f"--runner={LOCAL_RUNNER}"]


@contextlib.contextmanager
def _quiet(beam_args: Sequence[str]) -> Iterator[None]:
    """On our own runners, keep Beam from printing what the error says better; else it talks as it likes."""
    if names_runner(beam_args) or logging.getLogger().isEnabledFor(logging.DEBUG):
        yield
        return
    logger = logging.getLogger("apache_beam")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def _reporting(report: Callable[[], None] | None, seconds: float) -> Iterator[None]:
    if report is None:
        yield
        return
    ended = threading.Event()

    def work() -> None:
        pause = seconds
        while not ended.wait(pause):
            began = time.monotonic()
            report()
            # Looking may be slow (a large folder, an object store): it gets a twentieth of a core at most.
            pause = max(seconds, 19 * (time.monotonic() - began))

    thread = threading.Thread(target=work, name="report_progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    report()
