"""Collect the prose that every Python carries: its docstrings and its help topics.

In: the folders of the standard library and of the installed packages. Out: JSONL, a line a document with
`id` and `text`; a module is a document, and so is each topic of `pydoc_data.topics`. Modules are parsed,
never imported: nothing of theirs runs. The same files give the same bytes, with any number of workers:
documents come sorted by module name, and of the same text in two places only the first is kept, so that a
copy can't leak from training into validation. A file that can't be read or parsed is counted and passed
over.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import inspect
import json
import multiprocessing
import os
import sysconfig
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from workflows.quickstart.whole_file import write_whole

_PACKAGE_FOLDERS = frozenset({"site-packages", "dist-packages"})
_MIN_DOCSTRING_CHARACTERS = 20
_MAX_SOURCE_BYTES = 4_000_000
_FILES_PER_TASK = 200
_TOPICS_MODULE = "pydoc_data.topics"


@dataclass(frozen=True, order=True)
class SourceFile:
    """A Python file and the dotted name of the module in it."""

    module: str
    path: str


@dataclass(frozen=True)
class CollectedText:
    """What was collected: counts, and bytes of UTF-8 text without JSON's own."""

    num_documents: int
    num_text_bytes: int
    num_files: int
    num_unreadable_files: int


def python_folders() -> list[Path]:
    """The folders of the standard library and of the installed packages of this Python."""
    paths = sysconfig.get_paths()
    folders = (Path(paths[name]).resolve() for name in ("stdlib", "purelib", "platlib"))
    return sorted({folder for folder in folders if folder.is_dir()})


def find_source_files(folders: Iterable[Path]) -> list[SourceFile]:
    """Every Python file below the folders, by module name; symbolic links to folders aren't followed."""
    roots = [folder.resolve() for folder in folders]
    found: dict[str, SourceFile] = {}
    for root in roots:
        for where, subfolders, names in os.walk(root):
            folder = Path(where)
            subfolders[:] = [
                name
                for name in subfolders
                if name != "__pycache__" and name not in _PACKAGE_FOLDERS and folder / name not in roots
            ]
            for name in names:
                path = folder / name
                if name.endswith(".py"):
                    found.setdefault(str(path), SourceFile(_module_name(path.relative_to(root)), str(path)))
    return sorted(found.values())


def collect_documents(
    files: Sequence[SourceFile],
    output: Path,
    *,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> CollectedText:
    """Write the documents of some files as JSONL.

    Args:
        files: what `find_source_files` gave.
        output: the file to write; it appears under its name only when it is complete.
        workers: processes that parse.
        progress: called with (files done, files in all).
    """
    num_documents = num_text_bytes = num_unreadable = 0
    seen: set[bytes] = set()
    with write_whole(output) as stream:
        for done, documents in enumerate(_extract_all(files, workers), start=1):
            if documents is None:
                num_unreadable += 1
            for name, passages in documents or []:
                text = "\n\n".join(_first_seen(passages, seen))
                if text:
                    num_documents += 1
                    num_text_bytes += len(text.encode())
                    line = json.dumps({"id": name, "text": text}, ensure_ascii=False)
                    stream.write(line.encode() + b"\n")
            if progress is not None:
                progress(done, len(files))
    return CollectedText(num_documents, num_text_bytes, len(files), num_unreadable)


def extract_documents(file: SourceFile) -> list[tuple[str, list[str]]] | None:
    """The documents of one Python file, as (name, passages); None where it can't be read or parsed."""
    try:
        source = Path(file.path).read_bytes()
        if len(source) > _MAX_SOURCE_BYTES:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
        if file.module == _TOPICS_MODULE:
            return _extract_topics(tree)
        return [(file.module, list(_extract_docstrings(tree)))]
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _module_name(path: Path) -> str:
    parts = list(path.with_suffix("").parts)
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    return ".".join(parts)


def _extract_all(files: Sequence[SourceFile], workers: int) -> Iterator[list[tuple[str, list[str]]] | None]:
    if workers <= 1:
        yield from map(extract_documents, files)
        return
    # Spawned, not forked: a progress bar's thread may hold a lock at the moment of the fork.
    context = multiprocessing.get_context("spawn")
    # Without the garbage collector a syntax tree is made a quarter faster; reference counts free it.
    with ProcessPoolExecutor(workers, mp_context=context, initializer=gc.disable) as pool:
        yield from pool.map(extract_documents, files, chunksize=_FILES_PER_TASK)


def _extract_docstrings(tree: ast.Module) -> Iterator[str]:
    """Docstrings of a module, its classes and its functions in the order of the source."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node, clean=False)
            if docstring is not None:
                yield _clean(docstring)
        if isinstance(node, (ast.stmt, ast.Module, ast.ExceptHandler, ast.match_case)):
            # Only statements hold definitions, and expressions may nest very deep.
            children = [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]
            waiting.extend(reversed(children))


def _extract_topics(tree: ast.Module) -> list[tuple[str, list[str]]]:
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == "topics" for target in targets):
            topics: dict[str, str] = ast.literal_eval(statement.value)  # type: ignore[attr-defined]
            return [(f"{_TOPICS_MODULE}.{name}", [_clean(topics[name])]) for name in sorted(topics)]
    return []


def _clean(docstring: str) -> str:
    # A docstring may spell half of a surrogate pair, which UTF-8 can't carry.
    return inspect.cleandoc(docstring).strip().encode("utf-8", "replace").decode()


def _first_seen(passages: Iterable[str], seen: set[bytes]) -> Iterator[str]:
    for passage in passages:
        digest = hashlib.blake2b(passage.encode(), digest_size=16).digest()
        if len(passage) >= _MIN_DOCSTRING_CHARACTERS and digest not in seen:
            seen.add(digest)
            yield passage
