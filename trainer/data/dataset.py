"""A dataset opened for reading: its manifest and where it lies.

In: the URL of a folder that `clozeline build` wrote. Out: a `Dataset`. The manifest is parsed by pydantic and
nothing in it is trusted beyond that: shard names are relative and stay below the folder. torch is not needed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from schemas.errors import CorruptDataError, UsageError
from schemas.manifests import (
    CORPUS_MANIFEST_NAME,
    DATASET_MANIFEST_NAME,
    TOKENIZER_NAME,
    DatasetManifest,
    ShardRecord,
    Split,
    parse_manifest,
)
from trainer.data.opener import exists, join, read_bytes

# A shard's record takes about 700 bytes, a vocabulary of a million entries some 40 MB.
MAX_MANIFEST_BYTES = 256 << 20
MAX_TOKENIZER_BYTES = 1 << 30


@dataclass(frozen=True)
class Dataset:
    """A committed dataset.

    Attributes:
        url: the folder that holds `dataset.json`.
        manifest: its content.
    """

    url: str
    manifest: DatasetManifest

    def shard_url(self, shard: ShardRecord) -> str:
        """Where a shard lies."""
        return join(self.url, shard.name)

    @property
    def tokenizer_url(self) -> str:
        """Where the tokenizer lies that made the ids."""
        return join(self.url, TOKENIZER_NAME)

    def read_tokenizer(self) -> bytes:
        """The bytes of `tokenizer.json`, checked against the manifest.

        Raises:
            CorruptDataError: the file is missing or is another tokenizer than the one that made the ids.
        """
        try:
            content = read_bytes(self.tokenizer_url, MAX_TOKENIZER_BYTES)
        except FileNotFoundError:
            raise CorruptDataError(
                f"{self.tokenizer_url} is missing, though {DATASET_MANIFEST_NAME} stands beside it; "
                f"copy the dataset anew."
            ) from None
        found, expected = hashlib.sha256(content).hexdigest(), self.manifest.tokenizer.sha256
        if found != expected:
            raise CorruptDataError(
                f"{self.tokenizer_url} is not the tokenizer that made the dataset: its SHA-256 is "
                f"{found[:12]}…, the manifest says {expected[:12]}….\nCopy the dataset anew."
            )
        return content

    def require_split(self, split: Split) -> tuple[ShardRecord, ...]:
        """The shards of a split, at least one.

        Raises:
            UsageError: the dataset has no example in this split.
        """
        shards = self.manifest.shards_of(split)
        if not shards:
            raise UsageError(
                f"{self.url} has no {split} examples.\nIngest with a larger --validation-fraction or more "
                f"documents, then build again."
            )
        return shards


def open_dataset(url: str) -> Dataset:
    """Open a dataset.

    Args:
        url: its folder, or its `dataset.json`; local, `gs://`, `s3://` or `https://`.

    Raises:
        UsageError: there is no dataset, or `clozeline build` has not finished it.
        CorruptDataError: its manifest is no valid one.
    """
    folder = (
        url.removesuffix(f"/{DATASET_MANIFEST_NAME}") if url.endswith(f"/{DATASET_MANIFEST_NAME}") else url
    )
    manifest_url = join(folder, DATASET_MANIFEST_NAME)
    try:
        content = read_bytes(manifest_url, MAX_MANIFEST_BYTES)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise UsageError(_explain_missing(folder)) from None
    return Dataset(url=folder, manifest=parse_manifest(DatasetManifest, content, manifest_url))


def _explain_missing(folder: str) -> str:
    if exists(join(folder, "_work")):
        return (
            f"{folder} is not finished: it has a `_work` folder and no {DATASET_MANIFEST_NAME}.\n"
            f"Run the same `clozeline build` again; it goes on where it stopped."
        )
    if exists(join(folder, CORPUS_MANIFEST_NAME)):
        return (
            f"{folder} is a corpus, not a dataset.\nMake one from it: `clozeline build --corpus {folder} "
            f"--output DATASET`."
        )
    if exists(join(folder, f"dataset/{DATASET_MANIFEST_NAME}")):
        return (
            f"{folder} is a folder of `clozeline prepare`.\nGive the dataset in it: {join(folder, 'dataset')}"
        )
    if exists(folder):
        return (
            f"{folder} is no dataset: it has no {DATASET_MANIFEST_NAME}.\n"
            f"Give the folder that `clozeline build` wrote."
        )
    return f"{folder} does not exist.\nGive the folder that `clozeline build` wrote."
