"""A report from a folder to a file.

In: a folder, an output path and how much to read. Out: the page, written in one step, and its figures as
plain values. Nothing is read before it is sure that the page may be written.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from schemas.errors import ClozelineError, UsageError
from trainer.data.dataset import Dataset
from trainer.output_folder import OutputFolder
from trainer.run_data import find_datasets
from workflows.dataset_statistics import summarize_shards
from workflows.inspecting import read_examples
from workflows.report.baselines import GuessingBaseline, guess_from_frequencies
from workflows.report.blocks import Page
from workflows.report.corpus_page import make_corpus_page
from workflows.report.corpus_sample import sample_corpus
from workflows.report.dataset_page import make_dataset_page
from workflows.report.dataset_sample import sample_dataset
from workflows.report.length_tally import LengthTally
from workflows.report.opening import Corpus, Run, read_vocabulary
from workflows.report.rendering import render_page
from workflows.report.run_metrics import finite, parse_metrics
from workflows.report.run_page import TrainingData, is_finished, last_evaluation, make_run_page
from workflows.report.token_tally import TokenTally

Progress = Callable[[int, int], None]
_FREQUENT_IN_SUMMARY = 40


class ReportFile:
    """Where a page goes.

    Args:
        path: of the file; local, `gs://` or `s3://`.
        overwrite: whether a file that is there may be replaced.

    Raises:
        UsageError: the path names no file, or a file that must not be replaced.
    """

    def __init__(self, path: str, *, overwrite: bool) -> None:
        if path.lower().startswith(("http://", "https://")):
            raise UsageError(f"--output {path} can't be written to; give a local path, gs:// or s3://.")
        folder, _, name = path.rpartition("/")
        if not name or os.path.isdir(path):
            raise UsageError(
                f"--output {path} is a folder; give the name of a file, such as "
                f"{folder}/{name}{'/' if name else ''}report.html."
            )
        self.path = path
        self._name = name
        self._folder = OutputFolder(folder or ("/" if path.startswith("/") else "."))
        self._overwrite = overwrite
        self._require_free()

    def write(self, content: bytes) -> None:
        """Write the page whole, or leave what is there."""
        self._require_free()
        self._folder.write_bytes(self._name, content)

    def _require_free(self) -> None:
        if not self._overwrite and self._folder.exists(self._name):
            raise UsageError(
                f"{self.path} is there already.\nChoose another --output, or replace it with --overwrite."
            )


def write_report(
    opened: Corpus | Dataset | Run,
    output: ReportFile,
    *,
    num_examples: int,
    sample_tokens: int,
    progress: Progress,
) -> dict[str, Any]:
    """Read, arrange and write.

    Args:
        opened: a corpus, a dataset or a run.
        output: where the page goes.
        num_examples: examples or documents to show; a run has none.
        sample_tokens: about how many tokens to read.
        progress: called with (pieces done, pieces to read).

    Returns:
        the figures of the page, for `--json`.

    Raises:
        ClozelineError: something can't be read or written.
    """
    if isinstance(opened, Dataset):
        page, figures = _arrange_dataset(opened, num_examples, sample_tokens, progress)
    elif isinstance(opened, Corpus):
        page, figures = _arrange_corpus(opened, num_examples, sample_tokens, progress)
    else:
        page, figures = _arrange_run(opened, progress)
    content = render_page(page).encode()
    output.write(content)
    return {**figures, "report_bytes": len(content), "output": output.path}


def _arrange_dataset(
    dataset: Dataset, num_examples: int, sample_tokens: int, progress: Progress
) -> tuple[Page, dict[str, Any]]:
    manifest = dataset.manifest
    vocabulary = read_vocabulary(dataset)
    sample = sample_dataset(dataset, vocabulary, sample_tokens, progress)
    split = manifest.shards[0].split if manifest.shards else "train"
    examples = read_examples(dataset, split, num_examples) if num_examples else []
    page = make_dataset_page(dataset, _title(dataset.url), vocabulary, sample, examples)
    return page, {
        "kind": "dataset",
        **summarize_shards(manifest.shards),
        "fill": round(
            manifest.num_tokens / max(1, manifest.num_examples * manifest.config.max_seq_length), 6
        ),
        "sample": {
            "num_examples": sample.num_examples_read,
            "num_blocks": sample.num_blocks_read,
            "num_blocks_in_all": sample.num_blocks,
            "num_shards": sample.num_shards_read,
        },
        "lengths": _lengths(
            examples=sample.lengths, segments_a=sample.segment_a, segments_b=sample.segment_b
        ),
        **_token_figures(sample.tokens),
    }


def _arrange_corpus(
    corpus: Corpus, num_examples: int, sample_tokens: int, progress: Progress
) -> tuple[Page, dict[str, Any]]:
    vocabulary = read_vocabulary(corpus)
    sample = sample_corpus(corpus, vocabulary, sample_tokens, num_examples, progress)
    page = make_corpus_page(corpus, _title(corpus.url), vocabulary, sample)
    exact = ("num_documents_read", "num_documents", "num_rejected", "rejected", "num_sentences", "num_tokens")
    return page, {
        "kind": "corpus",
        **{name: getattr(corpus.manifest, name) for name in (*exact, "num_text_bytes")},
        "sample": {
            "num_documents": sample.num_documents_read,
            "num_row_groups": sample.num_row_groups_read,
            "num_row_groups_in_all": sample.num_row_groups,
        },
        "lengths": _lengths(
            sentences=sample.sentence_tokens,
            documents=sample.document_tokens,
            sentences_a_document=sample.document_sentences,
        ),
        **_token_figures(sample.tokens),
    }


def _arrange_run(run: Run, progress: Progress) -> tuple[Page, dict[str, Any]]:
    metrics = parse_metrics(run.metrics)
    datasets = find_datasets(run.record)
    baseline = _try_baseline(datasets)
    progress(1, 1)
    urls = run.record.config.data
    data = [
        TrainingData(url, datasets[number].manifest if datasets else None) for number, url in enumerate(urls)
    ]
    page = make_run_page(run, _title(run.url), metrics, data, baseline)
    last = metrics.training_lines[-1] if metrics.training_lines else {}
    return page, {
        "kind": "run",
        "step": metrics.last_step,
        "num_steps": run.record.plan.steps,
        "is_finished": is_finished(run, metrics),
        "num_lines": len(metrics.lines),
        "steps_without_loss": metrics.steps_without_loss(),
        "last_metrics": {name: finite(value) for name, value in last.items()},
        "last_evaluation": last_evaluation(metrics),
        "baseline": None if baseline is None else asdict(baseline),
        "checkpoints": list(run.checkpoints),
    }


def _try_baseline(datasets: Sequence[Dataset]) -> GuessingBaseline | None:
    try:
        return guess_from_frequencies(datasets[0], read_vocabulary(datasets[0])) if datasets else None
    except (ClozelineError, OSError):
        # A page about a run does without: `verify` says what is wrong with its data.
        return None


def _lengths(**tallies: LengthTally) -> dict[str, dict[str, float]]:
    return {name: tally.as_json() for name, tally in tallies.items()}


def _token_figures(tokens: TokenTally) -> dict[str, Any]:
    return {
        "unknown_share": round(tokens.num_unknown / max(1, tokens.num_tokens), 9),
        "bytes_by_script": dict(tokens.bytes_by_script()),
        "frequent_tokens": [vars(token) for token in tokens.most_frequent(_FREQUENT_IN_SUMMARY)],
    }


def _title(url: str) -> str:
    return posixpath.basename(url.rstrip("/")) or url
