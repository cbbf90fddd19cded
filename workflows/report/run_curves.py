"""The curves of a run.

In: its metrics, and what to compare them with. Out: sections of charts. What no line tells of is left out, so
that runs of older and newer versions both have their page.
"""

from __future__ import annotations

import math

from workflows.report.baselines import PUBLISHED_BASE, GuessingBaseline
from workflows.report.blocks import Block, LineChart, Paragraph, Reference, Section, Series, SideBySide, Tone
from workflows.report.run_metrics import VALIDATION, RunMetrics

_STEP = "step"
_MOST_STEPS_NAMED = 20


def make_loss_section(metrics: RunMetrics, baseline: GuessingBaseline | None) -> Section:
    """Losses, in training as lines and on held-out examples as points."""
    masked_references = [
        Reference(f"{PUBLISHED_BASE.name}, published, held out", math.log(PUBLISHED_BASE.perplexity))
    ]
    if baseline is not None:
        masked_references.append(Reference("guessing by frequencies", baseline.loss))
    charts = _present(
        _with_held_out(metrics, "masked_lm_loss", "Masked-LM loss", tuple(masked_references)),
        _with_held_out(
            metrics, "next_sentence_loss", "Next-sentence loss", (Reference("a coin", math.log(2)),), "good"
        ),
        _chart("Loss, both together", (_line(metrics, "loss", "training", "contrast"),)),
    )
    lead = (
        "In nats, the mean of each line's steps. Training losses are taken with dropout, where there is any, "
        "and before the step changes the weights."
    )
    return Section("Losses", "losses", lead, (*_first_wide(charts), *_notes_on_gaps(metrics)))


def make_accuracy_section(metrics: RunMetrics, baseline: GuessingBaseline | None) -> Section | None:
    """Accuracies; None where none was measured."""
    masked, labels = [], []
    if baseline is not None:
        masked.append(Reference(f'always guessing "{baseline.token}"', baseline.accuracy))
        if baseline.label_accuracy is not None:
            labels.append(Reference("always guessing one label", baseline.label_accuracy))
    charts = _present(
        _with_held_out(metrics, "masked_lm_accuracy", "Masked-LM accuracy", tuple(masked), number=".1%"),
        _with_held_out(
            metrics,
            "next_sentence_accuracy",
            "Next-sentence accuracy",
            tuple(labels),
            "good",
            number=".1%",
        ),
    )
    if not charts:
        return None
    lead = "Share of masked tokens, and of pairs, for which the likeliest answer is the right one."
    return Section("Accuracies", "accuracies", lead, (SideBySide(charts),))


def make_pace_section(metrics: RunMetrics) -> Section | None:
    """Speed, waiting, utilisation and memory; None where none was measured."""
    charts = _present(
        _chart(
            "Tokens a second, padding not counted",
            (_line(metrics, "tokens_per_second", "tokens a second"),),
            number=",.0f",
        ),
        _chart(
            "Waiting for data, share of the time",
            (_line(metrics, "data_wait_share", "waiting", "random"),),
            number=".2%",
        ),
        _chart(
            "Model FLOPs utilisation, share of the peak",
            (_line(metrics, "utilisation", "utilisation", "good"),),
            number=".1%",
        ),
        _chart(
            "Memory held at most, GB", (_line(metrics, "memory_bytes", "memory", "contrast", scale=1e-9),)
        ),
    )
    return Section("Pace", "pace", "", _first_wide(charts)) if charts else None


def make_schedule_section(metrics: RunMetrics) -> Section | None:
    """The learning rate and the norm of the gradient; None where neither was recorded."""
    charts = _present(
        _chart("Learning rate", (_line(metrics, "learning_rate", "learning rate"),), number=".3g"),
        _chart(
            "Norm of the gradient, before clipping",
            (_line(metrics, "gradient_norm", "norm", "mask"),),
            number=".3g",
        ),
    )
    return Section("Schedule", "schedule", "", (SideBySide(charts),)) if charts else None


def _line(metrics: RunMetrics, name: str, label: str, tone: Tone = "accent", scale: float = 1.0) -> Series:
    return Series(label, metrics.curve(name, scale), tone)


def _with_held_out(
    metrics: RunMetrics,
    name: str,
    caption: str,
    references: tuple[Reference, ...],
    tone: Tone = "accent",
    number: str = ".3f",
) -> LineChart | None:
    held_out = Series("held out", metrics.curve(f"{VALIDATION}{name}"), "random", dotted=True)
    return _chart(caption, (_line(metrics, name, "training", tone), held_out), references, number)


def _chart(
    caption: str,
    series: tuple[Series, ...],
    references: tuple[Reference, ...] = (),
    number: str = ".3f",
) -> LineChart | None:
    drawn = tuple(one for one in series if one.points)
    return LineChart(caption, _STEP, drawn, references, number) if drawn else None


def _present(*charts: LineChart | None) -> tuple[LineChart, ...]:
    return tuple(chart for chart in charts if chart is not None)


def _first_wide(charts: tuple[LineChart, ...]) -> tuple[Block, ...]:
    return (*charts[:1], SideBySide(charts[1:])) if len(charts) > 1 else charts


def _notes_on_gaps(metrics: RunMetrics) -> tuple[Paragraph, ...]:
    notes = []
    steps = metrics.steps_without_loss()
    if steps:
        named = ", ".join(f"{step:,}" for step in steps[:_MOST_STEPS_NAMED])
        more = f" and {len(steps) - _MOST_STEPS_NAMED:,} more" if len(steps) > _MOST_STEPS_NAMED else ""
        notes.append(
            Paragraph(f"No finite loss in the line{'s' if len(steps) > 1 else ''} of {named}{more}.")
        )
    skipped = metrics.last("num_skipped_steps")
    if skipped:
        were = "steps were" if skipped > 1 else "step was"
        notes.append(Paragraph(f"{skipped:,.0f} {were} left out, for the loss was not finite."))
    if metrics.num_unreadable:
        notes.append(Paragraph(f"Lines of metrics.jsonl that can't be read: {metrics.num_unreadable:,}."))
    return tuple(notes)
