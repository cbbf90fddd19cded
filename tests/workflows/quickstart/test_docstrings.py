import json
import os
import sys
from pathlib import Path

import pytest

from workflows.quickstart.docstrings import (
    SourceFile,
    collect_documents,
    extract_documents,
    find_source_files,
    python_folders,
)

MODULE = '''"""The docstring of the module.

    It is indented.
"""
raise SystemExit("this module must never run")

def first():
    """What the first function is for."""
    class Inner:
        """A class within a function."""
    return 1

class Outer:
    """What the outer class is for."""
    if True:
        async def method(self):
            """What the method is for."""
    try:
        pass
    except Exception:
        def fallback():
            """What the fallback is for."""

def too_short():
    """Short."""

def no_docstring():
    f"""No docstring, since it is formatted {1}."""
'''
TEXT = "\n\n".join(
    [
        "The docstring of the module.\n\nIt is indented.",
        "What the first function is for.",
        "A class within a function.",
        "What the outer class is for.",
        "What the method is for.",
        "What the fallback is for.",
    ]
)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    root = tmp_path / "lib"
    files = {
        "zebra.py": MODULE,
        "package/__init__.py": '"""The docstring of the package."""',
        "package/copy.py": '"""What the first function is for."""',
        "package/broken.py": '"""The docstring of a broken file."""\ndef (:',
        "pydoc_data/topics.py": (
            "topics = {'with': '  The with statement is used.\\n', 'assert': 'Assertions help debugging.'}"
        ),
        "site-packages/other.py": '"""Another folder is named for this one."""',
        "__pycache__/cached.py": '"""This is no source file."""',
        "notes.txt": '"""This is no Python file."""',
    }
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def _lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_files_come_by_module_name(library: Path) -> None:
    modules = [file.module for file in find_source_files([library])]
    assert modules == ["package", "package.broken", "package.copy", "pydoc_data.topics", "zebra"]


def test_installed_packages_are_a_folder_of_their_own(library: Path) -> None:
    modules = [file.module for file in find_source_files([library, library / "site-packages"])]
    assert modules.count("other") == 1
    assert "site-packages.other" not in modules


def test_documents(library: Path, tmp_path: Path) -> None:
    output = tmp_path / "text" / "documents.jsonl"
    calls: list[tuple[int, int]] = []
    collected = collect_documents(
        find_source_files([library]), output, progress=lambda done, total: calls.append((done, total))
    )
    assert _lines(output) == [
        {"id": "package", "text": "The docstring of the package."},
        {"id": "package.copy", "text": "What the first function is for."},
        {"id": "pydoc_data.topics.assert", "text": "Assertions help debugging."},
        {"id": "pydoc_data.topics.with", "text": "The with statement is used."},
        # What stands in package.copy already is left out.
        {"id": "zebra", "text": TEXT.replace("What the first function is for.\n\n", "")},
    ]
    assert collected.num_documents == 5
    assert collected.num_files == 5
    assert collected.num_unreadable_files == 1
    assert collected.num_text_bytes == sum(len(line["text"].encode()) for line in _lines(output))
    assert calls == [(n, 5) for n in range(1, 6)]
    assert sorted(path.name for path in output.parent.iterdir()) == ["documents.jsonl"]


def test_two_workers_write_the_same_bytes(library: Path, tmp_path: Path) -> None:
    files = find_source_files([library])
    collect_documents(files, tmp_path / "one.jsonl", workers=1)
    collect_documents(files, tmp_path / "two.jsonl", workers=2)
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()


def test_nothing_is_imported(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(library))
    collect_documents(find_source_files([library]), tmp_path / "o.jsonl")
    assert "zebra" not in sys.modules


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\x00\x01", id="nul"),
        pytest.param(b"# coding: no-such-codec\n", id="unknown-codec"),
        pytest.param(b'"""\xff\xfe is no UTF-8"""', id="no-utf8"),
        pytest.param(b"x = " + b"(" * 5000 + b")" * 5000, id="nested-too-deep"),
        pytest.param(b'"""never closed', id="unclosed"),
        pytest.param(b"#" * 4_000_001, id="huge"),
    ],
)
def test_a_file_that_cannot_be_parsed_is_passed_over(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd.py"
    path.write_bytes(content)
    assert extract_documents(SourceFile("odd", str(path))) is None


def test_a_file_that_is_gone_is_passed_over(tmp_path: Path) -> None:
    assert extract_documents(SourceFile("gone", str(tmp_path / "gone.py"))) is None


@pytest.mark.parametrize(
    ("content", "text"),
    [
        pytest.param(b'"""Half a pair: \\ud800, and more."""', "Half a pair: ?, and more.", id="surrogate"),
        pytest.param(
            "# coding: latin-1\n'''Ein Satz über Käse und Öl.'''".encode("latin-1"),
            "Ein Satz über Käse und Öl.",
            id="latin-1",
        ),
        pytest.param(b'\xef\xbb\xbf"""After a byte-order mark."""', "After a byte-order mark.", id="mark"),
        pytest.param(b'"""Lines that end\r\nas in Windows."""', "Lines that end\nas in Windows.", id="crlf"),
        pytest.param(b'"""An invalid escape \\d is fine."""', "An invalid escape \\d is fine.", id="escape"),
    ],
)
def test_odd_text(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "odd.py"
    path.write_bytes(content)
    assert extract_documents(SourceFile("odd", str(path))) == [("odd", [text])]


def test_a_link_to_its_own_folder_ends(library: Path) -> None:
    os.symlink(library, library / "package" / "again")
    assert len(find_source_files([library])) == 5


def test_this_python_carries_text() -> None:
    folders = python_folders()
    assert any((folder / "json" / "__init__.py").is_file() for folder in folders)
    json_module = next(
        file
        for file in find_source_files([f for f in folders if (f / "json").is_dir()])
        if file.module == "json"
    )
    documents = extract_documents(json_module)
    assert documents is not None
    assert documents[0][1][0].startswith("JSON (JavaScript Object Notation)")
