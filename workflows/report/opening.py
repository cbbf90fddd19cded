"""A folder opened as what it is: a corpus or a dataset, and the vocabulary that made its ids.

In: the URL of a folder. Out: a `Corpus`, or the trainer's `Dataset`. Neither Beam nor torch is needed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from schemas.errors import CorruptDataError, UsageError
from schemas.manifests import (
    CORPUS_MANIFEST_NAME,
    DATASET_MANIFEST_NAME,
    TOKENIZER_NAME,
    CorpusManifest,
    parse_manifest,
)
from trainer.data.dataset import MAX_MANIFEST_BYTES, MAX_TOKENIZER_BYTES, Dataset, open_dataset
from trainer.data.opener import exists, join, read_bytes
from workflows.report.token_tally import Vocabulary


@dataclass(frozen=True)
class Corpus:
    """A committed corpus: the folder that holds `corpus.json`, and its content."""

    url: str
    manifest: CorpusManifest


def open_folder(url: str) -> Corpus | Dataset:
    """Open a corpus or a dataset.

    Args:
        url: its folder, or its manifest; local, `gs://`, `s3://` or `https://`.

    Raises:
        UsageError: there is neither, or it is not finished.
        CorruptDataError: its manifest is no valid one.
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
        raise UsageError(_explain_missing(folder)) from None
    return Corpus(folder, parse_manifest(CorpusManifest, content, manifest_url))


def read_vocabulary(opened: Corpus | Dataset) -> Vocabulary:
    """The tokenizer that made the ids.

    Raises:
        CorruptDataError: it is missing, or it is another one.
    """
    content = opened.read_tokenizer() if isinstance(opened, Dataset) else _read_tokenizer(opened)
    return Vocabulary(content, opened.manifest.tokenizer)


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
    advice = "Give the folder that `clozeline ingest` or `clozeline build` wrote."
    if exists(folder):
        found = f"neither {CORPUS_MANIFEST_NAME} nor {DATASET_MANIFEST_NAME}"
        return f"{folder} is no corpus and no dataset: it has {found}.\n{advice}"
    return f"{folder} does not exist.\n{advice}"
