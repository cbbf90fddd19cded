"""Training from start to end: `train` begins or continues a run, `resume` continues one.

In: a `TrainConfig`, or the folder of a run. Out: a run folder and a `TrainSummary`. Deterministic: the same
configuration and data give the same weights on the same hardware; a run that was killed at any moment and
resumed repeats the uninterrupted one bit for bit. An existing run is continued where its configuration is the
same, and refused otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from schemas.errors import UsageError
from trainer.calibration import calibrate_steps
from trainer.checkpoint_record import list_checkpoints
from trainer.config import LanePlan, TrainConfig, TrainPlan, plan_lanes, plan_warmup
from trainer.data.dataset import Dataset
from trainer.data_passes import count_passes_made
from trainer.distributed import Ranks, join_ranks
from trainer.interruption import interrupt_at_sigterm
from trainer.job import TrainingJob, assemble, check_stream
from trainer.loop_state import Metrics
from trainer.model_choice import settle_model
from trainer.precision import choose_precision
from trainer.run_data import fingerprint, make_absolute, open_datasets
from trainer.run_folder import CONFIG_NAME, RunFolder, RunRecord, find_run, parse_record
from trainer.step_loop import Listeners, OnLog, Progress, StepLoop

__all__ = ["TrainSummary", "resume", "train"]


@dataclass(frozen=True)
class TrainSummary:
    """What a finished run did; the same on every rank.

    Attributes:
        output: the run folder.
        data: what it was trained on.
        checkpoint: the newest checkpoint's folder.
        steps: optimiser steps in all.
        resumed_from_step: the step that this process went on from; None where it began the run.
        num_examples: examples seen, an example counted each time.
        num_tokens: tokens seen that are no padding.
        passes: how often each dataset was gone through.
        seconds: spent on training steps, over the run's life.
        tokens_per_second: `num_tokens` over `seconds`.
        loss: mean over the steps since the last line of metrics but one: the two below together.
        masked_lm_loss: in nats.
        next_sentence_loss: in nats; None where the data has no labels.
        num_parameters: of the model.
        batch_size: examples in a global step at most; None where it is counted in tokens.
        tokens_per_batch: tokens in a global step at most; None where it is counted in examples.
        precision: `fp32` or `bf16`.
        first_evaluation: on held-out examples before the first step, with the fields of `EvaluationResult`;
            None unless `evaluate_every` was set.
        last_evaluation: the same after the last step.
    """

    output: str
    data: tuple[str, ...]
    checkpoint: str
    steps: int
    resumed_from_step: int | None
    num_examples: int
    num_tokens: int
    passes: tuple[float, ...]
    seconds: float
    tokens_per_second: float
    loss: float | int | None
    masked_lm_loss: float | int | None
    next_sentence_loss: float | int | None
    num_parameters: int
    batch_size: int | None
    tokens_per_batch: int | None
    precision: str
    first_evaluation: Metrics | None
    last_evaluation: Metrics | None

    def as_dict(self) -> dict[str, Any]:
        """The fields under their names, as `clozeline train --json` prints them."""
        return asdict(self) | {"data": list(self.data), "passes": list(self.passes)}


def train(
    config: TrainConfig,
    progress: Progress | None = None,
    on_log: OnLog | None = None,
    *,
    on_note: Callable[[str], None] | None = None,
    on_warning: Callable[[str], None] | None = None,
    overwrite: bool = False,
) -> TrainSummary:
    """Pretrain a model, or go on with the run of this configuration that is in `config.output`.

    Under torchrun each process calls this with the same configuration.

    Args:
        config: what to train.
        progress: called with (steps done, steps in all) after every step, on rank 0.
        on_log: called with each line of `metrics.jsonl`, on rank 0.
        on_note: called with each sentence that a person should read before the first step, on rank 0: how the
            weights of `init` were fitted to another vocabulary, say.
        on_warning: the same for what is likely a mistake: the tokenizer of `init` reads text by other rules.
        overwrite: remove a run that is in the output.

    Raises:
        UsageError: a choice does not fit the data or the machine, or the output holds another run.
        CorruptDataError: data or a checkpoint is not what was written.
        ClozelineError: the output can't be written, the disk is full, or more losses than allowed are not
            finite.
        TrainingInterrupted: SIGINT or SIGTERM came; a checkpoint was written first.
    """
    places = {
        "data": tuple(make_absolute(url) for url in config.data),
        "init": make_absolute(config.init) if config.init is not None else None,
    }
    config = config.model_copy(update=places)
    with interrupt_at_sigterm(), join_ranks(config.device) as ranks:
        return _train_on(ranks, config, Listeners(progress, on_log, on_note, on_warning), overwrite=overwrite)


def resume(
    run_folder: str,
    progress: Progress | None = None,
    on_log: OnLog | None = None,
    *,
    data: tuple[str, ...] | None = None,
    device: str | None = None,
    skip_nonfinite: int | None = None,
) -> TrainSummary:
    """Go on with a run from its newest checkpoint; a finished run is left as it is.

    Args:
        run_folder: the output of `train`.
        progress: as in `train`.
        on_log: as in `train`.
        data: where the run's data lies now, if it was moved.
        device: another device than that of the run's configuration.
        skip_nonfinite: another number of steps that may be skipped than that of the run's configuration.

    Raises:
        UsageError: there is no run, or its data has changed.
        CorruptDataError, ClozelineError, TrainingInterrupted: as in `train`.
    """
    folder = RunFolder(run_folder)
    if not folder.exists(CONFIG_NAME):
        raise UsageError(f"{run_folder} holds no run: it has no {CONFIG_NAME}. Give the --output of a run.")
    record = parse_record(folder.read_bytes(CONFIG_NAME), folder.locate(CONFIG_NAME))
    changes: dict[str, Any] = {"output": folder.path}
    if data is not None:
        if len(data) != len(record.config.data):
            raise UsageError(
                f"The run in {folder.path} began with {len(record.config.data)} datasets; {len(data)} are "
                f"given now.\nGive each of them with --data, in the same order: "
                f"{', '.join(record.config.data)}."
            )
        changes["data"] = tuple(make_absolute(url) for url in data)
    if device is not None:
        changes["device"] = device
    if skip_nonfinite is not None:
        changes["skip_nonfinite"] = skip_nonfinite
    config = TrainConfig.model_validate(record.config.model_dump() | changes)
    with interrupt_at_sigterm(), join_ranks(config.device) as ranks:
        return _train_on(ranks, config, Listeners(progress, on_log), is_resume=True)


def _train_on(
    ranks: Ranks,
    config: TrainConfig,
    listeners: Listeners,
    *,
    overwrite: bool = False,
    is_resume: bool = False,
) -> TrainSummary:
    datasets = open_datasets(config)
    tokenizer_json = datasets[0].read_tokenizer()
    run = RunFolder(config.output)
    try:
        found = ranks.run_on_first(lambda: _find_run(run, config, datasets, overwrite, is_resume))
        shared = ranks.broadcast_json(found.model_dump(mode="json") if found else None)
        record = RunRecord.model_validate(shared) if shared else _plan_run(ranks, config, datasets)
        checkpoint = ranks.broadcast_json(ranks.run_on_first(lambda: _newest_checkpoint(run)))
        job = assemble(record, datasets, ranks, with_initial_weights=checkpoint is None)
        if ranks.is_first:
            listeners.tell(job.notes, job.warnings)
        loop = StepLoop(job, run, tokenizer_json, listeners)
        # Written only now: a choice that fails above leaves no run behind that would refuse a better one.
        ranks.run_on_first(lambda: run.begin(record, tokenizer_json))
        if checkpoint is not None:
            loop.restore(checkpoint)
        resumed_from_step = loop.state.step if checkpoint is not None else None
        if loop.state.step < record.plan.steps:
            loop.run()
        return _summarise(job, loop, run, resumed_from_step)
    finally:
        run.release()


def _find_run(
    run: RunFolder, config: TrainConfig, datasets: tuple[Dataset, ...], overwrite: bool, is_resume: bool
) -> RunRecord | None:
    """Hold the folder, and find the run in it that is to go on."""
    run.acquire()
    found = find_run(run, config, overwrite)
    if found is None:
        return None
    found.require_same_data(fingerprint(datasets), config.data)
    if not is_resume and config.model is not None:
        # A file of sizes may have changed under the same name. Sizes of `init` were settled at the start.
        found.require_same_model(settle_model(config, datasets[0].manifest))
    # Where things lie and what they run on are taken from now, all else from the start of the run.
    return found.model_copy(update={"config": config})


def _newest_checkpoint(run: RunFolder) -> str | None:
    checkpoints = list_checkpoints(run)
    return checkpoints[-1] if checkpoints else None


def _plan_run(ranks: Ranks, config: TrainConfig, datasets: tuple[Dataset, ...]) -> RunRecord:
    manifest = datasets[0].manifest
    lanes = plan_lanes(config, manifest, ranks.world_size)
    record = RunRecord(
        created_by=_created_by(),
        config=config,
        plan=_plan(config, config.steps or 1, lanes),
        model=settle_model(config, manifest),
        precision=choose_precision(config.precision, ranks.device),
        tokenizer=manifest.tokenizer,
        dataset_fingerprint=fingerprint(datasets),
    )
    check_stream(record, datasets)
    if config.minutes is None:
        return record
    steps = calibrate_steps(assemble(record, datasets, ranks), config.minutes)
    return record.model_copy(update={"plan": _plan(config, steps, lanes)})


def _plan(config: TrainConfig, steps: int, lanes: LanePlan) -> TrainPlan:
    return TrainPlan(steps=steps, warmup_steps=plan_warmup(config, steps), **lanes._asdict())


def _summarise(
    job: TrainingJob, loop: StepLoop, run: RunFolder, resumed_from_step: int | None
) -> TrainSummary:
    record, state = job.record, loop.state
    manifests = [dataset.manifest for dataset in job.datasets]
    last = state.last_metrics or {}
    return TrainSummary(
        output=run.path,
        data=record.config.data,
        checkpoint=run.locate(loop.checkpoint or ""),
        steps=record.plan.steps,
        resumed_from_step=resumed_from_step,
        num_examples=state.num_examples,
        num_tokens=state.num_tokens,
        passes=count_passes_made(record.config, manifests, state.num_examples),
        seconds=state.seconds,
        tokens_per_second=state.num_tokens / max(state.seconds, 1e-9),
        loss=last.get("loss"),
        masked_lm_loss=last.get("masked_lm_loss"),
        next_sentence_loss=last.get("next_sentence_loss"),
        num_parameters=loop.num_parameters,
        batch_size=record.plan.batch_size,
        tokens_per_batch=record.plan.tokens_per_batch,
        precision=record.precision,
        first_evaluation=state.first_evaluation,
        last_evaluation=state.last_evaluation,
    )


def _created_by() -> str:
    try:
        return f"clozeline {version('clozeline')}"
    except PackageNotFoundError:
        return "clozeline"
