"""The loop over steps: trains, reports, evaluates and saves until the last one.

In: an assembled job and the folder of its run. Out: `metrics.jsonl`, TensorBoard events and checkpoints in
that folder. Deterministic: when to log, evaluate and save follows from the number of the step alone; what
belongs to the clock (seconds, tokens a second) is reported and decides nothing.

A GPU works on while this process prepares what comes next: the result of a step is read when the step is a
few behind, or when a line of metrics or a checkpoint needs it. So every decision that follows from results,
to stop above all, falls at the same step on every rank.
"""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import ValidationError

from schemas.errors import ClozelineError, CorruptDataError
from trainer.checkpoint_record import CheckpointRecord, checkpoint_name
from trainer.checkpoint_writer import CheckpointWriter
from trainer.checkpoints import restore_checkpoint
from trainer.data.loader import StreamingLoader, merge_states
from trainer.interruption import StopRequest, TrainingInterrupted, catch_signals
from trainer.job import TrainingJob
from trainer.loop_state import LoopState, Metrics
from trainer.metrics import MetricsLog
from trainer.nonfinite import NonfiniteSteps
from trainer.pace import Pace
from trainer.run_folder import CONFIG_NAME, RunFolder
from trainer.step_result import PendingResult

# How many steps a GPU may be behind this process. Enough that it never waits, few enough that a request to
# stop is soon heard.
MAX_STEPS_BEHIND = 2

Progress = Callable[[int, int], None]
OnLog = Callable[[Metrics], None]


@dataclass(frozen=True)
class Listeners:
    """Who is told what while a run trains.

    Attributes:
        progress: called with (steps done, steps in all) after every step, and once at the start.
        on_log: called with each line of `metrics.jsonl`.
        on_note: called with each sentence that a person should read before the first step.
        on_warning: the same, for what is likely a mistake.
    """

    progress: Progress | None = None
    on_log: OnLog | None = None
    on_note: Callable[[str], None] | None = None
    on_warning: Callable[[str], None] | None = None

    def tell(self, notes: Iterable[str], warnings: Iterable[str]) -> None:
        """Hand out what is to be read before the first step."""
        for texts, listener in ((notes, self.on_note), (warnings, self.on_warning)):
            if listener is not None:
                for text in texts:
                    listener(text)


class _Unread(NamedTuple):
    """A step whose result was not read yet, with the state of this rank's stream before it."""

    step: int
    pending: PendingResult
    stream_state: dict[str, Any]


class StepLoop:
    """Drives a job from where it stands to its last step.

    Args:
        job: assembled.
        run: its folder, held by rank 0.
        tokenizer_json: goes into every checkpoint.
        listeners: told on rank 0.

    Attributes:
        state: where the loop stands.
        checkpoint: name of the newest checkpoint, relative to the run.
    """

    def __init__(self, job: TrainingJob, run: RunFolder, tokenizer_json: bytes, listeners: Listeners) -> None:
        self._job = job
        self._run = run
        self._listeners = listeners if job.ranks.is_first else Listeners()
        self._unread: deque[_Unread] = deque()
        self._max_unread = MAX_STEPS_BEHIND if job.ranks.device.type == "cuda" else 0
        self._stop_is_agreed = False
        self._pace = Pace(job)
        self._writer = CheckpointWriter(run, tokenizer_json, job.record.config.keep_checkpoints)
        self.state = LoopState()
        self.checkpoint: str | None = None

    @property
    def num_parameters(self) -> int:
        """Of the model."""
        return self._job.stepper.model.num_parameters

    def restore(self, checkpoint: str) -> None:
        """Go back to a checkpoint of the run.

        Raises:
            CorruptDataError: it is damaged, or belongs to another run.
        """
        stepper = self._job.stepper
        record = restore_checkpoint(self._run, checkpoint, stepper.model, stepper.optimiser)
        ours = (self._job.record.model, self._job.record.tokenizer)
        if (record.model, record.tokenizer) != ours:
            raise CorruptDataError(
                f"{self._run.locate(checkpoint)} is of another model or tokenizer than the run's "
                f"{CONFIG_NAME} says.\nPut back the {CONFIG_NAME} that the run began with, or remove that "
                f"checkpoint."
            )
        try:
            self.state = LoopState.model_validate(record.progress)
        except ValidationError as error:
            raise CorruptDataError(
                f"{self._run.locate(checkpoint)}: its `progress` is malformed: {error.errors()[0]['msg']}.\n"
                f"Remove that folder to go on from the checkpoint before it."
            ) from None
        self.checkpoint = checkpoint

    def run(self) -> None:
        """Train to the last step, with a checkpoint at the end.

        Raises:
            TrainingInterrupted: SIGINT or SIGTERM came; a checkpoint was written.
            ClozelineError: too many losses are not finite, or something could not be read or written.
        """
        with (
            catch_signals() as stop,
            self._finishing_checkpoints(),
            self._open_log() as log,
            self._job.open_stream(self.state.stream) as stream,
        ):
            self._tell_progress()
            if self.state.step == 0 and self._job.record.config.evaluate_every is not None:
                self._evaluate_first(log)
            self._take_steps(stream, stop, log)

    def _take_steps(self, stream: StreamingLoader, stop: StopRequest, log: MetricsLog | None) -> None:
        num_steps = self._job.record.plan.steps
        nonfinite = NonfiniteSteps(self._job, self._run, stream.order)
        self._pace.begin(self.state)
        while self.state.step < num_steps:
            stream_state = stream.state_dict()
            with self._pace.waiting_for_data():
                microbatches = next(stream)
            step = self.state.step + 1
            # A failed checkpoint ends the run by the same agreement as a signal does: all ranks together.
            wants_stop = stop.is_set or self._writer.has_failed
            pending = self._job.stepper.take(step, microbatches, self._job.learning_rate(step), wants_stop)
            self._unread.append(_Unread(step, pending, stream_state))
            self.state.step = step
            self._read_results(nonfinite, self._max_unread)
            self._tell_progress()
            self._report_if_due(nonfinite, log)
            interrupted = self._stop_is_agreed and step < num_steps
            if interrupted or self._is_due(self._job.record.config.save_every):
                self._save(stream.state_dict(), nonfinite, log)
            if interrupted:
                self._job.ranks.run_on_first(self._writer.wait)
                raise TrainingInterrupted(
                    f"Interrupted after step {step} of {num_steps}; a checkpoint was written."
                    f"\nContinue with: clozeline train --resume {shlex.quote(self._run.path)}"
                )

    def _read_results(self, nonfinite: NonfiniteSteps, max_unread: int = 0) -> None:
        while len(self._unread) > max_unread:
            step, pending, stream_state = self._unread.popleft()
            result = pending.read()
            self.state.add(result)
            self._stop_is_agreed |= result.num_stop_wishes > 0
            if result.is_skipped:
                nonfinite.handle(step, result, stream_state, self.state.num_skipped_steps)

    def _report_if_due(self, nonfinite: NonfiniteSteps, log: MetricsLog | None) -> None:
        config = self._job.record.config
        evaluates = config.evaluate_every is not None and self._is_due(config.evaluate_every)
        if not evaluates and not self._is_due(config.log_every):
            return
        self._read_results(nonfinite)
        self._pace.stop(self.state)
        metrics: Metrics = {
            "step": self.state.step,
            **self.state.close_window(),
            "learning_rate": self._job.learning_rate(self.state.step),
            "num_examples": self.state.num_examples,
            "num_tokens": self.state.num_tokens,
            "num_skipped_steps": self.state.num_skipped_steps,
            **self._pace.close_window(self.state),
        }
        self.state.last_metrics = metrics
        if evaluates:
            self.state.last_evaluation = self._evaluate()
            metrics = metrics | _as_metrics(self.state.last_evaluation)
        self._write(metrics, log)
        self._pace.start()

    def _evaluate_first(self, log: MetricsLog | None) -> None:
        self.state.first_evaluation = self.state.last_evaluation = self._evaluate()
        self._write({"step": 0, **_as_metrics(self.state.first_evaluation)}, log)

    def _evaluate(self) -> Metrics:
        evaluation = self._job.ranks.run_on_first(lambda: self._job.evaluate().as_dict())
        result: Metrics = self._job.ranks.broadcast_json(evaluation)
        return result

    def _save(self, stream_state: dict[str, Any], nonfinite: NonfiniteSteps, log: MetricsLog | None) -> None:
        # Reading the results first keeps a run that has diverged out of every checkpoint.
        self._read_results(nonfinite)
        self._pace.stop(self.state)
        self.state.stream = merge_states(self._job.ranks.gather_json(stream_state))
        record = CheckpointRecord(
            created_by=self._job.record.created_by,
            step=self.state.step,
            model=self._job.record.model,
            tokenizer=self._job.record.tokenizer,
            max_seq_length=self._job.datasets[0].manifest.config.max_seq_length,
            progress=self.state.model_dump(mode="json"),
        )
        self._job.ranks.run_on_first(lambda: self._begin_checkpoint(record, log))
        self.checkpoint = checkpoint_name(record.step)
        self._pace.start()

    def _begin_checkpoint(self, record: CheckpointRecord, log: MetricsLog | None) -> None:
        if log is not None:
            log.flush()
        self._writer.begin(record, self._job.stepper.model, self._job.stepper.optimiser)

    def _is_due(self, interval: int) -> bool:
        return self.state.step % interval == 0 or self.state.step == self._job.record.plan.steps

    def _tell_progress(self) -> None:
        if self._listeners.progress is not None:
            self._listeners.progress(self.state.step, self._job.record.plan.steps)

    def _write(self, metrics: Metrics, log: MetricsLog | None) -> None:
        if log is not None:
            log.write(metrics)
        if self._listeners.on_log is not None:
            self._listeners.on_log(metrics)

    @contextmanager
    def _open_log(self) -> Iterator[MetricsLog | None]:
        if not self._job.ranks.is_first:
            yield None
            return
        log = MetricsLog(self._run, self.state.step if self.checkpoint else None)
        try:
            yield log
        except BaseException:
            # On a full disk closing fails too; the first failure is the one to tell of.
            with suppress(ClozelineError):
                log.close()
            raise
        log.close()

    @contextmanager
    def _finishing_checkpoints(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            # Not at a second signal, which means at once.
            with suppress(ClozelineError):
                self._writer.wait()
            raise
        self._job.ranks.run_on_first(self._writer.wait)


def _as_metrics(evaluation: Metrics) -> Metrics:
    return {f"validation_{name}": value for name, value in evaluation.items()}
