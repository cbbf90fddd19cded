from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import UsageError
from schemas.manifests import TokenizerRecord
from trainer.config import TrainConfig, TrainPlan
from trainer.data.dataset import open_dataset
from trainer.model.config import preset_config
from trainer.run_data import find_datasets, fingerprint, make_absolute, open_datasets
from trainer.run_folder import RunRecord


def record_of(*urls: Path) -> RunRecord:
    return RunRecord(
        created_by="tests",
        config=TrainConfig(data=tuple(map(str, urls)), output="o", steps=10),
        plan=TrainPlan(steps=10, warmup_steps=1, lanes=2, microbatch_size=4),
        model=preset_config("tiny", 30),
        precision="fp32",
        tokenizer=TokenizerRecord(
            sha256="a" * 64, vocab_size=30, pad_id=0, unk_id=1, cls_id=2, sep_id=3, mask_id=4
        ),
        dataset_fingerprint=fingerprint([open_dataset(str(url)) for url in urls]),
    )


@pytest.fixture
def folder(tmp_path: Path, write_tiny_dataset: Callable[..., Path], make_tiny_examples: Any) -> Path:
    return write_tiny_dataset(tmp_path / "set", {"train": [make_tiny_examples(12, 1)]})


def test_data_is_known_again_wherever_it_lies(folder: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(folder, tmp_path / "moved")
    ours, theirs = ([open_dataset(str(place))] for place in (folder, moved))
    assert (
        fingerprint(ours)
        == fingerprint(theirs)
        == hashlib.sha256((folder / "dataset.json").read_bytes()).hexdigest()
    )
    assert fingerprint(ours * 2) != fingerprint(ours)


def test_the_datasets_of_a_run_are_found_whole_and_unchanged_or_not_at_all(
    folder: Path, tiny_dataset_path: Path
) -> None:
    record = record_of(folder, tiny_dataset_path)
    assert [dataset.url for dataset in find_datasets(record)] == [str(folder), str(tiny_dataset_path)]
    other = record_of(tiny_dataset_path, folder)
    assert find_datasets(record.model_copy(update={"config": other.config})) == ()
    (folder / "dataset.json").unlink()
    assert find_datasets(record) == ()


def test_data_that_can_not_be_evaluated_on_or_mixed_is_refused(
    folder: Path,
    tiny_dataset_path: Path,
    tmp_path: Path,
    write_tiny_dataset: Callable[..., Path],
    make_tiny_examples: Any,
) -> None:
    config = TrainConfig(data=(str(folder), str(tiny_dataset_path)), output="o", steps=10)
    assert len(open_datasets(config)) == 2
    with pytest.raises(UsageError, match="no validation examples"):
        open_datasets(config.model_copy(update={"evaluate_every": 5}))
    longer = write_tiny_dataset(
        tmp_path / "longer", {"train": [make_tiny_examples(12, 2)]}, max_seq_length=48
    )
    with pytest.raises(UsageError, match=r"their max_seq_length differs \(\d+, 48\)"):
        open_datasets(config.model_copy(update={"data": (str(folder), str(longer))}))


def test_a_local_path_begins_at_the_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert make_absolute("data") == str(tmp_path / "data")
    assert make_absolute("gs://bucket/data") == "gs://bucket/data"
