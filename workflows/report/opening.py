"""A folder opened as what it is: a corpus, a dataset or a run, and the vocabulary that made its ids.

In: the URL of a folder. Out: a `Corpus`, the trainer's `Dataset`, or a `Run`. Needs neither Beam nor torch.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from schemas.errors import CorruptDataError, UsageError
from schemas.manifests import (
    CORPUS_MANIFEST_NAME,
    DATASET_MANIFEST_NAME,
    TOKENIZER_NAME,
    CorpusManifest,
    parse_manifest,
)
from trainer.checkpoint_record import list_checkpoints
from trainer.data.dataset import MAX_MANIFEST_BYTES, MAX_TOKENIZER_BYTES, Dataset, open_dataset
from trainer.data.opener import exists, join, read_bytes
from trainer.output_folder import OutputFolder
from trainer.run_folder import CONFIG_NAME, METRICS_NAME, RunRecord, parse_record
from workflows.report.token_tally import Vocabulary


@dataclass(frozen=True)
class Corpus:
    """A committed corpus: the folder that holds `corpus.json`, and its content."""

    url: str
    manifest: CorpusManifest


@dataclass(frozen=True)
class Run:
    """A training run, which may be going on: its record, `metrics.jsonl` and names of its checkpoints."""

    url: str
    record: RunRecord
    metrics: bytes
    checkpoints: tuple[str, ...]


def open_folder(url: str) -> Corpus | Dataset | Run:
    """Open a corpus, a dataset or a run.

    Args:
        url: its folder, or its manifest; local, `gs://`, `s3://` or `https://`.

    Raises:
        UsageError: there is none, or it is not finished.
        CorruptDataError: its manifest or record is no valid one.
    """
    folder = url
    for name in (CORPUS_MANIFEST_NAME, DATASET_MANIFEST_NAME):
        folder = folder.removesuffix(f"/{name}")
    manifest_url = join(folder, CORPUS_MANIFEST_NAME)
    try:
        content = read_bytes(manifest_url, MAX_MANIFEST_BYTES)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        if exists(join(folder, DATASET_MANIFEST_NAME)):
            return open_dataset(folder)
        run = _open_run(folder)
        if run is not None:
            return run
        raise UsageError(_explain_missing(folder)) from None
    return Corpus(folder, parse_manifest(CorpusManifest, content, manifest_url))


def read_vocabulary(opened: Corpus | Dataset) -> Vocabulary:
    """The tokenizer that made the ids.

    Raises:
        CorruptDataError: it is missing, or it is another one.
    """
    content = opened.read_tokenizer() if isinstance(opened, Dataset) else _read_tokenizer(opened)
    return Vocabulary(content, opened.manifest.tokenizer)


def _open_run(folder: str) -> Run | None:
    where = join(folder, CONFIG_NAME)
    try:
        content = read_bytes(where, MAX_MANIFEST_BYTES)
        is_run = json.loads(content).get("format") == RunRecord.model_fields["format"].default
    except (FileNotFoundError, NotADirectoryError, ValueError, AttributeError):
        # A folder of another program has a `config.json` too.
        return None
    if not is_run:
        return None
    files = OutputFolder(folder)
    metrics = files.read_bytes(METRICS_NAME) if files.exists(METRICS_NAME) else b""
    return Run(folder, parse_record(content, where), metrics, tuple(list_checkpoints(files)))


def _read_tokenizer(corpus: Corpus) -> bytes:
    where = join(corpus.url, TOKENIZER_NAME)
    try:
        content = read_bytes(where, MAX_TOKENIZER_BYTES)
    except FileNotFoundError:
        raise CorruptDataError(
            f"{where} is missing, though {CORPUS_MANIFEST_NAME} stands beside it; copy the corpus anew."
        ) from None
    if hashlib.sha256(content).hexdigest() != corpus.manifest.tokenizer.sha256:
        raise CorruptDataError(
            f"{where} is not the tokenizer that made the corpus: its SHA-256 is not the manifest's.\n"
            f"Copy the corpus anew."
        )
    return content


def _explain_missing(folder: str) -> str:
    if exists(join(folder, "_work")):
        return (
            f"{folder} is not finished: it has a `_work` folder and no manifest.\n"
            f"Run the command that makes it again; it goes on where it stopped."
        )
    if exists(join(folder, f"dataset/{DATASET_MANIFEST_NAME}")):
        return (
            f"{folder} is a folder of `clozeline prepare`.\nGive the dataset in it: {join(folder, 'dataset')}"
        )
    advice = "Give the folder that `clozeline ingest`, `clozeline build` or `clozeline train` wrote."
    if exists(folder):
        found = f"neither {CORPUS_MANIFEST_NAME} nor {DATASET_MANIFEST_NAME}"
        return f"{folder} is no corpus, no dataset and no run: it has {found}.\n{advice}"
    return f"{folder} does not exist.\n{advice}"
