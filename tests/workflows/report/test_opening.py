import shutil
from pathlib import Path

import pytest

from schemas.errors import CorruptDataError, UsageError
from trainer.data.dataset import Dataset
from workflows.report.opening import Corpus, open_folder, read_vocabulary


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


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        ("none", "does not exist"),
        ("empty", "neither corpus.json nor dataset.json"),
        ("work", "is not finished"),
        ("file", "is no corpus and no dataset"),
    ],
)
def test_neither(tmp_path: Path, prepare: str, message: str) -> None:
    folder = tmp_path / "folder"
    if prepare in ("empty", "work"):
        folder.mkdir()
    if prepare == "work":
        (folder / "_work").mkdir()
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
