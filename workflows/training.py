"""Training and evaluation with their progress shown.

In: options or a run folder. Out: plain dictionaries for a summary. torch is imported when a function here is
called, not before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from schemas.manifests import Split
from workflows.options import build_config
from workflows.terminal import Terminal, WorkReporter, format_count

if TYPE_CHECKING:
    from trainer.config import TrainConfig
    from trainer.loop import TrainSummary

EVALUATION_BATCH_SIZE = 128


def train_config(values: Mapping[str, Any]) -> TrainConfig:
    """The configuration of `train`.

    Raises:
        UsageError: an option is missing or out of range.
    """
    from trainer.config import TrainConfig

    ctx = click.get_current_context(silent=True)
    for option in ("data", "output"):
        if not values.get(option):
            raise click.UsageError(
                f"Missing option '--{option}'; give it, or --resume with a run folder.", ctx
            )
    if (values.get("steps") is None) == (values.get("minutes") is None):
        raise click.UsageError("Give the length of the run by one of --steps and --minutes.", ctx)
    if values.get("batch_size") is not None and values.get("tokens_per_batch") is not None:
        raise click.UsageError("Give the size of a step by one of --batch-size and --tokens-per-batch.", ctx)
    named = {
        **values,
        "compile": values.get("compile_"),
        "data_weights": tuple(values.get("data_weights") or ()) or None,
    }
    return build_config(
        TrainConfig,
        {name: value for name, value in named.items() if name in TrainConfig.model_fields},
        {"data_weights": "--data-weight"},
    )


def run_training(terminal: Terminal, config: TrainConfig, *, overwrite: bool = False) -> dict[str, Any]:
    """Train, or go on with the same run where it stopped."""
    from trainer.loop import train

    with terminal.work("train", "steps") as progress:
        summary = train(
            config,
            progress,
            _note_metrics(progress),
            on_note=terminal.note,
            on_warning=terminal.warn,
            overwrite=overwrite,
        )
    return _as_result(summary)


def resume_training(
    terminal: Terminal,
    run_folder: str,
    data: tuple[str, ...] | None = None,
    device: str | None = None,
    skip_nonfinite: int | None = None,
) -> dict[str, Any]:
    """Go on with the run in a folder, whose data may have been moved since."""
    from trainer.loop import resume

    with terminal.work("train", "steps") as progress:
        summary = resume(
            run_folder,
            progress,
            _note_metrics(progress),
            data=data,
            device=device,
            skip_nonfinite=skip_nonfinite,
        )
    return _as_result(summary)


def evaluate_checkpoint(
    terminal: Terminal, data: str, checkpoint: str, split: Split, batch_size: int, device: str = "cpu"
) -> dict[str, Any]:
    """Measure a trained model on a split of a dataset.

    Raises:
        UsageError: no such dataset or checkpoint, no example in the split, data of another tokenizer, or
            sequences that are longer than the model.
    """
    from schemas.errors import UsageError
    from trainer.checkpoints import load_checkpoint
    from trainer.data.dataset import open_dataset

    dataset = open_dataset(data)
    dataset.require_split(split)
    loaded = load_checkpoint(checkpoint, device)
    if loaded.tokenizer != dataset.manifest.tokenizer:
        raise UsageError(
            f"{data} was tokenized with another tokenizer ({dataset.manifest.tokenizer.sha256[:12]}…) "
            f"than {loaded.path} was trained with ({loaded.tokenizer.sha256[:12]}…).\n"
            f"Ingest the text again with --tokenizer {loaded.tokenizer_path}."
        )
    longest, num_positions = (
        dataset.manifest.config.max_seq_length,
        loaded.model_config.max_position_embeddings,
    )
    if longest > num_positions:
        raise UsageError(
            f"{data} has sequences of up to {longest} tokens, but {loaded.path} has {num_positions} "
            f"positions.\nBuild the corpus again with --max-seq-length {num_positions} or less."
        )
    return {**evaluate_model(terminal, loaded.model, dataset, split, batch_size), "step": loaded.step}


def evaluate_model(
    terminal: Terminal, model: Any, dataset: Any, split: Split, batch_size: int = EVALUATION_BATCH_SIZE
) -> dict[str, Any]:
    """Measure a model, on the device it lies on, on every example of a split."""
    from trainer.data.loader import iterate_once
    from trainer.evaluation import evaluate

    num_examples = sum(shard.num_examples for shard in dataset.require_split(split))
    device = next(model.parameters()).device
    with terminal.work("evaluate", "examples") as progress:

        def batches() -> Any:
            done = 0
            for batch in iterate_once(dataset, split, batch_size):
                yield batch.to(device)
                done += batch.num_examples
                progress(done, num_examples)

        result = evaluate(model, batches())
    return result.as_dict()


def _note_metrics(progress: WorkReporter) -> Callable[[dict[str, Any]], None]:
    def note(metrics: dict[str, Any]) -> None:
        if "tokens_per_second" in metrics:
            progress.note(describe_metrics(metrics))

    return note


def describe_metrics(metrics: Mapping[str, Any]) -> str:
    """A line of metrics in the few words that fit beside a progress bar."""
    words = []
    if metrics["loss"] is not None:
        words.append(f"loss {metrics['loss']:.3f}")
    for name, label in (("masked_lm_accuracy", "MLM"), ("next_sentence_accuracy", "NSP")):
        if metrics[name] is not None:
            words.append(f"{label} {metrics[name]:.0%}")
    words.append(f"{format_count(metrics['tokens_per_second'])} tokens/s")
    if metrics["num_skipped_steps"]:
        words.append(f"{metrics['num_skipped_steps']} steps skipped")
    return ", ".join(words)


def _as_result(summary: TrainSummary) -> dict[str, Any]:
    return {**summary.as_dict(), "already_done": summary.resumed_from_step == summary.steps}
