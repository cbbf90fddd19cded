"""How many steps fit into the minutes that a run is given.

In: the run's record with a plan of one step, and minutes. Out: a number of steps, measured once at the start
and then pinned in the run's record, so that the learning rate's schedule and every resumed run follow from
it. The measuring trains a model of its own that is thrown away: it changes nothing in the run. The number
itself depends on the machine and on what else runs there; nothing after it does.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from trainer.job import TrainingJob, synchronise

# The first steps pay for allocations and for choosing kernels.
NUM_UNTIMED_STEPS = 3
# Of the time given: what measuring may take, and what stays for checkpoints and a machine that slows down.
MEASURED_SHARE = 0.04
SPARE_SHARE = 0.04
SHORTEST_MEASURE_SECONDS = 2.0
LONGEST_MEASURE_SECONDS = 20.0


def calibrate_steps(
    job: TrainingJob, minutes: float, *, clock: Callable[[], float] = time.perf_counter
) -> int:
    """Steps of training, with the evaluations between them, that fit into some minutes.

    Args:
        job: assembled for this run, and given up afterwards: its weights are changed.
        minutes: that the run may take, this measurement included.
        clock: tells the time in seconds.

    Returns:
        At least 1, and the same on every rank.
    """
    available_seconds = 60.0 * minutes
    begun = clock()
    seconds_per_step = _measure(job, _measure_seconds(available_seconds), clock)
    evaluate_every = job.record.config.evaluate_every
    seconds_per_evaluation = 0.0
    if evaluate_every is not None:
        evaluation_begun = clock()
        job.ranks.run_on_first(job.evaluate)
        seconds_per_evaluation = clock() - evaluation_begun
    left_seconds = available_seconds * (1.0 - SPARE_SHARE) - (clock() - begun)
    steps = count_steps(left_seconds, seconds_per_step, seconds_per_evaluation, evaluate_every)
    return int(job.ranks.broadcast_json(steps))


def count_steps(
    available_seconds: float,
    seconds_per_step: float,
    seconds_per_evaluation: float = 0.0,
    evaluate_every: int | None = None,
) -> int:
    """Whole steps that fit, at least one.

    Args:
        available_seconds: for steps and evaluations.
        seconds_per_step: of one step.
        seconds_per_evaluation: of one evaluation; one comes before the first step and one after the last.
        evaluate_every: steps between evaluations.
    """
    seconds = seconds_per_step + seconds_per_evaluation / (evaluate_every or 1)
    return max(1, int((available_seconds - 2 * seconds_per_evaluation) / seconds))


def _measure_seconds(available_seconds: float) -> float:
    return min(max(available_seconds * MEASURED_SHARE, SHORTEST_MEASURE_SECONDS), LONGEST_MEASURE_SECONDS)


def _measure(job: TrainingJob, budget_seconds: float, clock: Callable[[], float]) -> float:
    begun = started = clock()
    num_timed = 0
    with job.open_stream(None) as stream:
        for step, microbatches in enumerate(stream, start=1):
            # Every rank stops after the same step, though their clocks differ: any one may end the measuring.
            out_of_time = step > NUM_UNTIMED_STEPS and clock() - begun >= budget_seconds
            pending = job.stepper.take(step, microbatches, job.record.config.learning_rate, out_of_time)
            result = pending.read()
            synchronise(job.ranks.device)
            if step == NUM_UNTIMED_STEPS:
                started = clock()
            num_timed = max(0, step - NUM_UNTIMED_STEPS)
            if result.num_stop_wishes:
                break
    return (clock() - started) / max(1, num_timed)
