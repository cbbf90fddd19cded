"""The page about a training run, one that goes on or one that is done.

In: an opened run, its metrics, the datasets that can be reached, and a baseline. Out: a `Page`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from schemas.manifests import DatasetManifest
from trainer.model.memory import count_parameters
from workflows.report.baselines import PUBLISHED, PUBLISHED_SOURCE, GuessingBaseline
from workflows.report.blocks import Command, Figure, Page, Paragraph, Section, Table
from workflows.report.charts import compact_count
from workflows.report.opening import Run
from workflows.report.provenance import describe_command, describe_config, page_versions
from workflows.report.run_curves import (
    make_accuracy_section,
    make_loss_section,
    make_pace_section,
    make_schedule_section,
)
from workflows.report.run_metrics import VALIDATION, RunMetrics, finite
from workflows.report.token_section import percent
from workflows.summaries import command_line
from workflows.terminal import format_seconds


@dataclass(frozen=True)
class TrainingData:
    """A dataset of the run: where it was, and its manifest where that can be reached unchanged."""

    url: str
    manifest: DatasetManifest | None


def make_run_page(
    run: Run,
    title: str,
    metrics: RunMetrics,
    data: Sequence[TrainingData],
    baseline: GuessingBaseline | None,
) -> Page:
    """Arrange everything about a run."""
    curves: tuple[Section | None, ...] = (
        (
            make_loss_section(metrics, baseline),
            make_accuracy_section(metrics, baseline),
            make_pace_section(metrics),
            make_schedule_section(metrics),
        )
        if metrics.training_lines
        else (Section("Losses", "losses", "No step has been reported yet.", ()),)
    )
    return Page(
        kind="run report",
        title=title,
        location=run.url,
        figures=_headline(run, metrics),
        sections=(
            *(section for section in curves if section is not None),
            _held_out_section(run, metrics),
            _expectation_section(run, baseline),
            _data_section(data),
            _checkpoint_section(run, metrics),
            _provenance_section(run),
        ),
        footer=(f"Page made with {page_versions()}.",),
    )


def is_finished(run: Run, metrics: RunMetrics) -> bool:
    """Whether the run has reached its last step."""
    return metrics.last_step >= run.record.plan.steps


def last_evaluation(metrics: RunMetrics) -> dict[str, Any] | None:
    """The newest held-out figures without their prefix, and their step; None where there are none."""
    evaluations = metrics.evaluations()
    if not evaluations:
        return None
    line = evaluations[-1]
    figures = {name.removeprefix(VALIDATION): line[name] for name in line if name.startswith(VALIDATION)}
    return {"step": line["step"], **figures}


def _headline(run: Run, metrics: RunMetrics) -> tuple[Figure, ...]:
    steps = run.record.plan.steps
    loss, tokens, seconds = (metrics.last(name) for name in ("masked_lm_loss", "num_tokens", "seconds"))
    evaluation = last_evaluation(metrics)
    held_out = None if evaluation is None else finite(evaluation["masked_lm_loss"])
    speed = tokens / seconds if tokens and seconds else None
    done = "done" if is_finished(run, metrics) else f"of {steps:,}, {metrics.last_step / steps:.0%}"
    return (
        Figure("step", f"{metrics.last_step:,}", done),
        Figure("masked-LM loss", _number(loss), f"training, perplexity {_perplexity(loss)}"),
        Figure(
            "held-out perplexity",
            _perplexity(held_out),
            "not measured" if evaluation is None else f"at step {evaluation['step']:,}",
        ),
        Figure("tokens seen", compact_count(tokens or 0), f"{tokens or 0:,.0f}"),
        Figure("time", format_seconds(seconds or 0), f"{speed:,.0f} tokens/s" if speed else ""),
        Figure(
            "parameters",
            compact_count(float(f"{count_parameters(run.record.model):.3g}")),
            f"{run.record.precision}, {run.record.model.num_hidden_layers} layers of "
            f"{run.record.model.hidden_size:,}",
        ),
    )


def _held_out_section(run: Run, metrics: RunMetrics) -> Section:
    evaluations = metrics.evaluations()
    if not evaluations:
        command = command_line("evaluate", "--data", run.record.config.data[0], "--checkpoint", run.url)
        lead = "Nothing was measured on held-out examples while the run trained. To measure it now:"
        blocks = (Command("Needs the data that the run was trained on.", (command,)),)
        return Section("Held out", "held-out", lead, blocks if run.checkpoints else ())
    shown = evaluations if len(evaluations) <= _MOST_EVALUATIONS else evaluations[-_MOST_EVALUATIONS:]
    rows = tuple(_evaluation_row(line) for line in shown)
    headings = ("Step", "Masked-LM loss", "Perplexity", "Accuracy", "Next-sentence accuracy", "Examples")
    lead = (
        f"{len(evaluations):,} evaluations on examples that are never trained on"
        f"{'' if shown is evaluations else f', the last {len(shown):,} of them'}."
    )
    return Section("Held out", "held-out", lead, (Table("Evaluations", headings, rows),))


_MOST_EVALUATIONS = 50


def _evaluation_row(line: Mapping[str, Any]) -> tuple[str, ...]:
    def value(name: str) -> float | None:
        return finite(line.get(f"{VALIDATION}{name}"))

    examples = value("num_examples")
    return (
        f"{line['step']:,}",
        _number(value("masked_lm_loss")),
        _perplexity(value("masked_lm_loss")),
        _share(value("masked_lm_accuracy")),
        _share(value("next_sentence_accuracy")),
        "-" if examples is None else f"{examples:,.0f}",
    )


def _expectation_section(run: Run, baseline: GuessingBaseline | None) -> Section:
    model = run.record.model
    rows = [
        (
            f"knowing nothing: all {model.vocab_size:,} tokens alike",
            _number(math.log(model.vocab_size)),
            f"{model.vocab_size:,}",
            percent(1, model.vocab_size),
        )
    ]
    if baseline is not None:
        known = (
            f'knowing the frequencies of {baseline.num_masked:,} masked tokens, most often "{baseline.token}"'
        )
        cells = (_number(baseline.loss), _perplexity(baseline.loss), f"{baseline.accuracy:.1%}")
        rows.append((known, *cells))
    for published in PUBLISHED:
        sizes = (published.num_layers, published.hidden_size, published.num_heads)
        ours = sizes == (model.num_hidden_layers, model.hidden_size, model.num_attention_heads)
        name = (
            f"published{', ' + published.name if published.name else ''}: {published.num_layers} layers of "
            f"{published.hidden_size:,}, {published.num_heads} heads{', as this run' if ours else ''}"
        )
        loss = _number(math.log(published.perplexity))
        rows.append((name, loss, f"{published.perplexity:.2f}", "not given"))
    headings = ("Masked tokens guessed", "Loss", "Perplexity", "Accuracy")
    lead = (
        "What to compare held-out figures with. A perplexity depends on the text and on the vocabulary: "
        f"those published ({PUBLISHED_SOURCE}) are of English books and Wikipedia in about 30,000 word "
        "pieces, after a million steps of 256 sequences."
    )
    note = Paragraph(
        "Next-sentence accuracy begins at one half; BERT's published models reached 97% to 98% (the same "
        "paper, section 3.1). A small model that sees little text stays well above those perplexities."
        if baseline is None or baseline.label_accuracy is not None
        else "The data has no next-sentence labels."
    )
    return Section("What to expect", "expectations", lead, (Table("References", headings, tuple(rows)), note))


def _data_section(data: Sequence[TrainingData]) -> Section:
    rows = []
    for one in data:
        cells = ("not found here, or changed since", "-", "-", "-")
        if one.manifest is not None:
            config = one.manifest.config
            cells = (
                config.objective,
                f"{one.manifest.num_examples:,}",
                f"{one.manifest.num_tokens:,}",
                f"{config.max_seq_length:,}",
            )
        rows.append((one.url, *cells))
    headings = ("Dataset", "Objective", "Examples", "Tokens", "Longest")
    return Section("Data", "data", "", (Table("What the run trains on", headings, tuple(rows)),))


def _checkpoint_section(run: Run, metrics: RunMetrics) -> Section:
    resume = command_line("train", "--resume", run.url)
    lead = f"{len(run.checkpoints):,} whole checkpoint{'s' if len(run.checkpoints) != 1 else ''}."
    if is_finished(run, metrics):
        blocks = (Command("The run is done; this would find it so.", (resume,)),)
    elif run.checkpoints:
        blocks = (Command("Goes on from the newest checkpoint, with the run's own options.", (resume,)),)
    else:
        blocks = (
            Command("Begins again, with the run's own options: no checkpoint is there yet.", (resume,)),
        )
    rows = tuple((name.rpartition("step-")[2].lstrip("0") or "0", name) for name in run.checkpoints)
    table = (Table("Checkpoints", ("Step", "Folder in the run"), rows, numeric=False),) if rows else ()
    return Section("Checkpoints", "checkpoints", lead, (*blocks, *table))


def _provenance_section(run: Run) -> Section:
    record = run.record
    began = replace(
        describe_command("train", record.config, {}), caption="Begins the same run in another --output."
    )
    origin = Table(
        "Versions and checksums",
        ("Field", "Value"),
        (
            ("made by", record.created_by),
            ("format", f"{record.format}, version {record.version}"),
            ("data fingerprint", record.dataset_fingerprint),
            ("tokenizer SHA-256", record.tokenizer.sha256),
        ),
        numeric=False,
    )
    tables = (
        describe_config("Configuration", record.config),
        describe_config("Settled at the start", record.plan),
        describe_config("Model", record.model),
    )
    return Section("How it was made", "provenance", "", (began, origin, *tables))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _perplexity(loss: float | None) -> str:
    if loss is None:
        return "-"
    # Past this no float holds the exponential, and nobody would read it.
    return f"{math.exp(loss):,.4g}" if loss < 50 else "huge"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
