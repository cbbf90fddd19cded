"""The datasets of a run: opened, checked, and known again.

In: the configuration of a run, or its record. Out: opened datasets, and a checksum of what their manifests
say. Deterministic. torch is not needed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

from schemas.errors import ClozelineError, UsageError
from schemas.manifests import dump_manifest
from trainer.config import TrainConfig
from trainer.data.dataset import Dataset, open_dataset
from trainer.run_folder import RunRecord


def open_datasets(config: TrainConfig) -> tuple[Dataset, ...]:
    """Open the data of a configuration, and check that it can be trained on.

    Raises:
        UsageError: a dataset is missing, unfinished or without examples, they can't be mixed, or there is
            nothing to evaluate on though that was asked for.
        CorruptDataError: a manifest is malformed.
    """
    datasets = tuple(open_dataset(url) for url in config.data)
    for dataset in datasets:
        dataset.require_split("train")
        if config.evaluate_every is not None:
            dataset.require_split("validation")
        _require_same_kind(datasets[0], dataset)
    return datasets


def find_datasets(record: RunRecord) -> tuple[Dataset, ...]:
    """The datasets of a run, if all of them are where they were, and as they were; else none."""
    try:
        datasets = tuple(open_dataset(url) for url in record.config.data)
    except (ClozelineError, OSError):
        return ()
    return datasets if fingerprint(datasets) == record.dataset_fingerprint else ()


def fingerprint(datasets: Sequence[Dataset]) -> str:
    """SHA-256 of what the manifests say: the same wherever the data lies."""
    return hashlib.sha256(b"".join(dump_manifest(dataset.manifest) for dataset in datasets)).hexdigest()


def make_absolute(url: str) -> str:
    """A local path from the root on, so that a run can be resumed from any folder; a URL as it is."""
    return url if "://" in url else os.path.abspath(url)


def _require_same_kind(first: Dataset, other: Dataset) -> None:
    ours, theirs = first.manifest, other.manifest
    for name, one, two in (
        ("tokenizer", ours.tokenizer.sha256[:12], theirs.tokenizer.sha256[:12]),
        ("objective", ours.config.objective, theirs.config.objective),
        ("max_seq_length", ours.config.max_seq_length, theirs.config.max_seq_length),
    ):
        if one != two:
            raise UsageError(
                f"{first.url} and {other.url} can't be trained on together: their {name} differs "
                f"({one}, {two}).\nBuild both from corpora of one tokenizer, with the same options."
            )
