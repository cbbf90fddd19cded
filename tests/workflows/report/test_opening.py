import shutil
from pathlib import Path

import pytest

from schemas.errors import CorruptDataError, UsageError
from trainer.data.dataset import Dataset
from workflows.report.opening import Corpus, Run, open_folder, read_vocabulary


@pytest.mark.parametrize("name", ["corpus", "corpus/corpus.json"])
def test_a_corpus(folders: Path, name: str) -> None:
    opened = open_folder(str(folders / name))
    assert isinstance(opened, Corpus)
    assert opened.url == str(folders / "corpus")
    assert read_vocabulary(opened).size == opened.manifest.tokenizer.vocab_size


@pytest.mark.parametrize("name", ["dataset", "dataset/dataset.json"])
def test_a_dataset(folders: Path, name: str) -> None:
    opened = open_folder(str(folders / name))
    assert isinstance(opened, Dataset)
    assert opened.url == str(folders / "dataset")


def test_a_run(folders: Path) -> None:
    opened = open_folder(str(folders / "run"))
    assert isinstance(opened, Run)
    assert opened.record.plan.steps == 5000
    assert opened.checkpoints == ("checkpoints/step-00001000", "checkpoints/step-00002000")
    assert opened.metrics == (folders / "run" / "metrics.jsonl").read_bytes()


def test_a_run_that_has_just_begun(folders: Path, tmp_path: Path) -> None:
    shutil.copy(folders / "run" / "config.json", tmp_path)
    opened = open_folder(str(tmp_path))
    assert isinstance(opened, Run)
    assert (opened.metrics, opened.checkpoints) == (b"", ())


@pytest.mark.parametrize("content", ["{}", "[]", "no json", '{"model_type": "bert"}'])
def test_a_config_of_another_program_makes_no_run(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UsageError, match="no run"):
        open_folder(str(tmp_path))


def test_a_damaged_record_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"format": "clozeline-run"}')
    with pytest.raises(CorruptDataError, match=r"config\.json"):
        open_folder(str(tmp_path))


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        ("none", "does not exist"),
        ("empty", "neither corpus.json nor dataset.json"),
        ("work", "is not finished"),
        ("file", "is no corpus, no dataset and no run"),
        ("prepared", r"of `clozeline prepare`\.\nGive the dataset in it: .*/folder/dataset\Z"),
    ],
)
def test_neither(tmp_path: Path, prepare: str, message: str) -> None:
    folder = tmp_path / "folder"
    if prepare in ("empty", "work"):
        folder.mkdir()
    if prepare == "work":
        (folder / "_work").mkdir()
    if prepare == "prepared":
        (folder / "dataset").mkdir(parents=True)
        (folder / "dataset" / "dataset.json").write_text("{}")
    if prepare == "file":
        folder.write_text("text")
    with pytest.raises(UsageError, match=message):
        open_folder(str(folder))


@pytest.mark.parametrize("name", ["corpus", "dataset"])
@pytest.mark.parametrize(("content", "message"), [(None, "is missing"), ("{}", "is not the tokenizer")])
def test_another_tokenizer(
    folders: Path, tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    shutil.copytree(folders / name, tmp_path / name)
    tokenizer = tmp_path / name / "tokenizer.json"
    tokenizer.unlink()
    if content is not None:
        tokenizer.write_text(content)
    with pytest.raises(CorruptDataError, match=message):
        read_vocabulary(open_folder(str(tmp_path / name)))
