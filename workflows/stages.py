"""The three stages of the data, each run with its progress shown and its outcome counted.

In: a checked configuration and paths. Out: the summary that `--json` prints, a plain dictionary. `vocab`,
`ingest`, `build`, `prepare` and `quickstart` all run their stages here, so that one work has one report.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from schemas.configs import BuildConfig, IngestConfig, VocabConfig
from schemas.manifests import CORPUS_MANIFEST_NAME, DATASET_MANIFEST_NAME, TOKENIZER_NAME
from workflows.dataset_statistics import summarize_shards
from workflows.terminal import Stopwatch, Terminal
from workflows.text_layout import check_text_layout


@dataclass(frozen=True)
class RunOptions:
    """How a stage is run; none of these changes what it writes."""

    workers: int | None = None
    beam_args: Sequence[str] = ()
    overwrite: bool = False


def run_vocab_stage(
    terminal: Terminal, config: VocabConfig, output: str, options: RunOptions
) -> dict[str, Any]:
    """Learn a vocabulary; returns `vocab_size`, `output`, `seconds` and what was read."""
    with importing_beam(options):
        from pipelines.vocabulary import run_vocab

    check_text_layout(config, options.beam_args)
    done_before = _is_done(output, TOKENIZER_NAME, options)
    watch = Stopwatch()
    with terminal.work("vocab", "reads", then="learning the entries") as progress:
        summary = run_vocab(
            config,
            output,
            workers=options.workers,
            beam_args=options.beam_args,
            overwrite=options.overwrite,
            progress=progress,
        )
    exhausted = config.extend is None and summary.vocab_size < config.vocab_size
    return {
        **_as_plain(summary),
        "exhausted_at_min_frequency": config.min_frequency if exhausted else None,
        "seconds": watch.seconds,
        "already_done": done_before,
        "output": output,
    }


def run_ingest_stage(
    terminal: Terminal, config: IngestConfig, tokenizer: str, output: str, options: RunOptions
) -> dict[str, Any]:
    """Make a corpus; returns the counts of its manifest, `seconds`, `warnings` and `output`."""
    with importing_beam(options):
        from pipelines.ingest import run_ingest

    warnings = check_text_layout(config, options.beam_args)
    for warning in warnings:
        terminal.warn(warning)
    done_before = _is_done(output, CORPUS_MANIFEST_NAME, options)
    watch = Stopwatch()
    with terminal.work("ingest", "reads") as progress:
        manifest = run_ingest(
            config,
            tokenizer,
            output,
            workers=options.workers,
            beam_args=options.beam_args,
            overwrite=options.overwrite,
            progress=progress,
        )
    seconds = watch.seconds
    return {
        "num_input_files": manifest.num_input_files,
        "num_input_bytes": manifest.num_input_bytes,
        "num_documents_read": manifest.num_documents_read,
        "num_documents": manifest.num_documents,
        "num_rejected": manifest.num_rejected,
        "rejected": dict(manifest.rejected),
        "num_sentences": manifest.num_sentences,
        "num_tokens": manifest.num_tokens,
        "num_text_bytes": manifest.num_text_bytes,
        "seconds": seconds,
        "megabytes_per_second": _rate(manifest.num_input_bytes, seconds, done_before),
        "warnings": list(warnings),
        "already_done": done_before,
        "output": output,
    }


def run_build_stage(
    terminal: Terminal, config: BuildConfig, corpus: str, output: str, options: RunOptions
) -> dict[str, Any]:
    """Make a dataset; returns the counts and shares of its manifest, `seconds`, `warnings` and `output`."""
    with importing_beam(options):
        from pipelines.build import run_build

    done_before = _is_done(output, DATASET_MANIFEST_NAME, options)
    watch = Stopwatch()
    with terminal.work("build", "pools") as progress:
        result = run_build(
            config,
            corpus,
            output,
            workers=options.workers,
            beam_args=options.beam_args,
            overwrite=options.overwrite,
            progress=progress,
        )
    seconds = watch.seconds
    for warning in result.warnings:
        terminal.warn(warning)
    shards = result.manifest.shards
    return {
        "objective": config.objective,
        **summarize_shards(shards),
        "seconds": seconds,
        "megabytes_per_second": _rate(sum(shard.size_bytes for shard in shards), seconds, done_before),
        "warnings": list(result.warnings),
        "already_done": done_before,
        "output": output,
    }


@contextmanager
def importing_beam(options: RunOptions | None = None) -> Iterator[None]:
    """Import the pipelines in this block: quietly, and while what workers are forked from does the same.

    Args:
        options: of the stages to come; None where no worker will be needed.
    """
    from pipelines.fast_import import importing_fast

    own_options = options.beam_args if options else ()
    if options is not None and not own_options and (options.workers or count_cores()) > 1:
        from pipelines.local_fork_server import keep_fork_server

        keep_fork_server()
    before = logging.root.manager.disable
    # Beam warns, while it is imported, of cloud libraries that a local run doesn't need.
    logging.disable(logging.WARNING)
    try:
        with nullcontext() if own_options else importing_fast():
            yield
    finally:
        logging.disable(before)


def count_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _is_done(output: str, manifest_name: str, options: RunOptions) -> bool:
    from pipelines import storage

    return not options.overwrite and storage.exists(storage.join(output, manifest_name))


def _rate(num_bytes: int, seconds: float, done_before: bool) -> float | None:
    return None if done_before or seconds <= 0 else round(num_bytes / 1e6 / seconds, 2)


def _as_plain(summary: Any) -> Mapping[str, Any]:
    from dataclasses import asdict, is_dataclass

    if is_dataclass(summary) and not isinstance(summary, type):
        return asdict(summary)
    plain: Mapping[str, Any] = summary.model_dump(mode="json")
    return plain
