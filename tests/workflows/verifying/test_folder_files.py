from __future__ import annotations

import re
from pathlib import Path

import fsspec
import pytest

from schemas.errors import ClozelineError
from trainer.data.opener import list_sizes
from workflows.verifying.folder_files import find_wrong_sizes, list_files

EXPECTED = {"top.json": None, "train/a.tar": 3, "validation/b.tar": 2}


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Holds what is expected, and `train/stray.tar`, `train/notes.txt` and a folder `train/deep`."""
    url = str(tmp_path / "data") if request.param == "local" else "memory://listed/data"
    sizes = {**EXPECTED, "train/stray.tar": 1, "train/notes.txt": 1, "train/deep/x.tar": 1}
    for name, size in sizes.items():
        with fsspec.open(f"{url}/{name}", "wb", auto_mkdir=True) as file:
            file.write(b"x" * (size or 0))
    return url


def _no_progress(done: int, total: int) -> None:
    pass


def test_a_folder_is_listed_with_sizes(folder: str) -> None:
    assert list_sizes(f"{folder}/train") == {"a.tar": 3, "stray.tar": 1, "notes.txt": 1, "deep": None}
    with pytest.raises(FileNotFoundError):
        list_sizes(f"{folder}/nothing")


def test_files_are_found_where_they_are_expected(folder: str) -> None:
    files = list_files(folder, EXPECTED)
    assert files is not None
    assert set(files.sizes) == {*EXPECTED, "train/stray.tar", "train/notes.txt"}
    assert list(find_wrong_sizes(folder, EXPECTED, files, _no_progress)) == []
    (stray,) = files.find_strays(EXPECTED, re.compile(r".*\.tar"))
    assert stray.startswith("train/stray.tar is no file of the manifest's")


@pytest.mark.parametrize("listed", [True, False])
def test_a_file_that_is_missing_or_of_another_size(folder: str, listed: bool) -> None:
    expected = {**EXPECTED, "train/a.tar": 4, "train/c.tar": 1, "other/d.tar": 1}
    files = list_files(folder, expected) if listed else None
    assert list(find_wrong_sizes(folder, expected, files, _no_progress)) == [
        "train/a.tar has 3 bytes, the manifest says 4",
        "train/c.tar is missing, though the manifest lists it",
        "other/d.tar is missing, though the manifest lists it",
    ]


def test_a_link_is_as_long_as_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"12345")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link.tar").symlink_to(tmp_path / "there")
    assert list_sizes(str(tmp_path / "data")) == {"link.tar": 5}


def test_a_web_server_lists_nothing() -> None:
    with pytest.raises(ClozelineError, match="doesn't list its files"):
        list_sizes("https://example.org/data")
    assert list_files("https://example.org/data", EXPECTED) is None
