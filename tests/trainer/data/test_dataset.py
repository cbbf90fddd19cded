from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from schemas.errors import CorruptDataError, UsageError
from trainer.data.dataset import open_dataset


@pytest.fixture
def folder(tiny_dataset_path: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_dataset_path, tmp_path / "dataset")


@pytest.mark.parametrize("ending", ["", "/", "/dataset.json"])
def test_opens_a_folder_by_any_of_its_names(folder: Path, ending: str) -> None:
    dataset = open_dataset(f"{folder}{ending}")
    assert dataset.manifest.num_examples == 217
    shard = dataset.manifest.shards_of("train")[0]
    assert Path(dataset.shard_url(shard)) == folder / "train-00000-of-00004.tar"
    assert dataset.read_tokenizer() == (folder / "tokenizer.json").read_bytes()


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"none does not exist\.\nGive the folder that `clozeline build` wrote"
    ):
        open_dataset(str(tmp_path / "none"))


def test_a_folder_without_a_manifest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is no dataset: it has no dataset\.json"):
        open_dataset(str(tmp_path))


def test_a_file_for_a_folder(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"tokenizer\.json is no dataset"):
        open_dataset(str(folder / "tokenizer.json"))


def test_a_dataset_that_is_being_built_is_told_from_others(folder: Path) -> None:
    (folder / "dataset.json").unlink()
    (folder / "_work").mkdir()
    with pytest.raises(UsageError, match=r"is not finished: .*\nRun the same `clozeline build` again"):
        open_dataset(str(folder))


def test_the_folder_around_a_dataset(tmp_path: Path) -> None:
    (tmp_path / "dataset").mkdir()
    with pytest.raises(UsageError, match="is no dataset"):
        open_dataset(str(tmp_path))
    (tmp_path / "dataset" / "dataset.json").write_text("{}")
    with pytest.raises(UsageError, match=r"of `clozeline prepare`\.\nGive the dataset in it: .*/dataset\Z"):
        open_dataset(str(tmp_path))


def test_a_corpus_for_a_dataset(tmp_path: Path) -> None:
    (tmp_path / "corpus.json").write_text("{}")
    with pytest.raises(
        UsageError, match=r"is a corpus, not a dataset\.\nMake one from it: `clozeline build --corpus"
    ):
        open_dataset(str(tmp_path))


@pytest.mark.parametrize(
    "name",
    ["pipe:cat x", "/etc/passwd", "../x.tar", "a/../../x.tar", "https://example.org/x.tar", "c:\\x.tar", ""],
)
def test_a_shard_name_that_leads_elsewhere_is_refused(folder: Path, name: str) -> None:
    manifest = json.loads((folder / "dataset.json").read_text())
    manifest["shards"][0]["name"] = name
    (folder / "dataset.json").write_text(json.dumps(manifest))
    with pytest.raises(CorruptDataError, match=r"dataset\.json is no valid DatasetManifest: shards\.0\.name"):
        open_dataset(str(folder))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"null", b'{"format": "other"}'])
def test_a_manifest_that_is_none(folder: Path, content: bytes) -> None:
    (folder / "dataset.json").write_bytes(content)
    with pytest.raises(CorruptDataError, match=r"dataset\.json is no valid DatasetManifest"):
        open_dataset(str(folder))


def test_another_tokenizer_than_the_one_that_made_the_ids(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(CorruptDataError, match="is not the tokenizer that made the dataset"):
        open_dataset(str(folder)).read_tokenizer()
    (folder / "tokenizer.json").unlink()
    with pytest.raises(CorruptDataError, match=r"tokenizer\.json is missing"):
        open_dataset(str(folder)).read_tokenizer()


def test_opening_and_reading_needs_neither_torch_nor_webdataset(folder: Path) -> None:
    program = """
import sys
from trainer.data.blocks import read_shard
from trainer.data.dataset import open_dataset
from trainer.data import unblock
dataset = open_dataset(sys.argv[1])
assert read_shard(dataset, dataset.manifest.shards[0])
print({"torch", "webdataset", "apache_beam"} & set(sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    assert done.stdout.strip() == "set()"
