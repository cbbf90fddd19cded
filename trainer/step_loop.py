"""The loop over steps: trains, reports, evaluates and saves until the last one.

In: an assembled job and the folder of its run. Out: `metrics.jsonl`, TensorBoard events and checkpoints in
that folder. Deterministic: when to log, evaluate and save follows from the number of the step alone; what
belongs to the clock (seconds, tokens a second) is reported and decides nothing.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from schemas.errors import ClozelineError, CorruptDataError
from trainer.checkpoints import CheckpointRecord, restore_checkpoint, save_checkpoint
from trainer.data.batches import Batch
from trainer.interruption import StopRequest, TrainingInterrupted, catch_signals
from trainer.job import TrainingJob
from trainer.loop_state import LoopState, Metrics
from trainer.metrics import MetricsLog
from trainer.run_folder import CONFIG_NAME, RunFolder
from trainer.stepping import StepResult

Progress = Callable[[int, int], None]
OnLog = Callable[[Metrics], None]


@dataclass(frozen=True)
class Listeners:
    """Who is told what while a run trains.

    Attributes:
        progress: called with (steps done, steps in all) after every step, and once at the start.
        on_log: called with each line of `metrics.jsonl`.
    """

    progress: Progress | None = None
    on_log: OnLog | None = None


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
        self._tokenizer_json = tokenizer_json
        self._listeners = listeners if job.ranks.is_first else Listeners()
        self._unread: list[tuple[int, StepResult]] = []
        self._stopwatch = _Stopwatch()
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
            ClozelineError: the loss is not finite any more, or something could not be read or written.
        """
        num_steps = self._job.record.plan.steps
        with (
            catch_signals() as stop,
            self._open_log() as log,
            self._job.open_stream(self.state.stream) as stream,
        ):
            self._tell_progress()
            if self.state.step == 0 and self._job.record.config.evaluate_every is not None:
                self._evaluate_first(log)
            self._stopwatch.start(self.state)
            for microbatches in stream:
                interrupted = self._take_step(microbatches, stop) and self.state.step < num_steps
                self._report_if_due(log)
                if interrupted or self._is_due(self._job.record.config.save_every):
                    self._save(stream.state_dict(), log)
                if interrupted:
                    raise TrainingInterrupted(
                        f"Interrupted after step {self.state.step} of {num_steps}; a checkpoint was written."
                        f"\nContinue with: clozeline train --resume {shlex.quote(self._run.path)}"
                    )
                if self.state.step == num_steps:
                    return

    def _take_step(self, microbatches: list[Batch], stop: StopRequest) -> bool:
        step = self.state.step + 1
        result = self._job.stepper.take(step, microbatches, self._job.learning_rate(step), stop.is_set)
        self.state.add_counts(result)
        self._unread.append((step, result))
        # A GPU works ahead of this process as long as nobody reads a loss; on a CPU reading costs nothing.
        if self._job.ranks.device.type == "cpu":
            self._read_losses()
        self._tell_progress()
        return result.stop_requested

    def _read_losses(self) -> None:
        for step, result in self._unread:
            self.state.add_losses(step, result)
        self._unread.clear()

    def _report_if_due(self, log: MetricsLog | None) -> None:
        config = self._job.record.config
        evaluates = config.evaluate_every is not None and self._is_due(config.evaluate_every)
        if not evaluates and not self._is_due(config.log_every):
            return
        self._read_losses()
        self._stopwatch.stop(self.state)
        metrics: Metrics = {
            "step": self.state.step,
            **self.state.close_window(),
            "learning_rate": self._job.learning_rate(self.state.step),
            "num_examples": self.state.num_examples,
            "num_tokens": self.state.num_tokens,
            "tokens_per_second": self._stopwatch.tokens_per_second,
            "seconds": self.state.seconds,
        }
        self.state.last_metrics = metrics
        if evaluates:
            self.state.last_evaluation = self._evaluate()
            metrics = metrics | _as_metrics(self.state.last_evaluation)
        self._write(metrics, log)
        self._stopwatch.start(self.state)

    def _evaluate_first(self, log: MetricsLog | None) -> None:
        self.state.first_evaluation = self.state.last_evaluation = self._evaluate()
        self._write({"step": 0, **_as_metrics(self.state.first_evaluation)}, log)

    def _evaluate(self) -> Metrics:
        evaluation = self._job.ranks.run_on_first(lambda: self._job.evaluate().as_dict())
        result: Metrics = self._job.ranks.broadcast_json(evaluation)
        return result

    def _save(self, stream_state: dict[str, Any], log: MetricsLog | None) -> None:
        # Reading the losses first keeps weights that have diverged out of every checkpoint.
        self._read_losses()
        self._stopwatch.stop(self.state)
        self.state.stream = stream_state
        record = CheckpointRecord(
            created_by=self._job.record.created_by,
            step=self.state.step,
            model=self._job.record.model,
            tokenizer=self._job.record.tokenizer,
            max_seq_length=self._job.datasets[0].manifest.config.max_seq_length,
            progress=self.state.model_dump(mode="json"),
        )
        self._job.ranks.run_on_first(lambda: self._write_checkpoint(record, log))
        self._stopwatch.start(self.state)

    def _write_checkpoint(self, record: CheckpointRecord, log: MetricsLog | None) -> None:
        if log is not None:
            log.flush()
        stepper = self._job.stepper
        self.checkpoint = save_checkpoint(
            self._run,
            record,
            stepper.model,
            stepper.optimiser,
            self._tokenizer_json,
            self._job.record.config.keep_checkpoints,
        )

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


class _Stopwatch:
    """Adds the time of training steps to the state, and leaves out evaluations and checkpoints."""

    def __init__(self) -> None:
        self._started = 0.0
        self._tokens_at_start = 0
        self._window_seconds = 0.0
        self._window_tokens = 0

    def start(self, state: LoopState) -> None:
        self._started = time.perf_counter()
        self._tokens_at_start = state.num_tokens

    def stop(self, state: LoopState) -> None:
        seconds = time.perf_counter() - self._started
        state.seconds += seconds
        self._window_seconds += seconds
        self._window_tokens += state.num_tokens - self._tokens_at_start

    @property
    def tokens_per_second(self) -> float:
        """Since it was last asked."""
        rate = self._window_tokens / max(self._window_seconds, 1e-9)
        self._window_seconds, self._window_tokens = 0.0, 0
        return rate


def _as_metrics(evaluation: Metrics) -> Metrics:
    return {f"validation_{name}": value for name, value in evaluation.items()}
