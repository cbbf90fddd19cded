from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from pipelines import storage
from pipelines.hashing_writer import describe
from pipelines.work_folder import READING_THREADS, WorkFolder, created_by, describe_difference
from schemas.errors import ClozelineError, UsageError

OWNED = ("corpus.json", "train")
PINNED = {"config": {"seed": 1, "inputs": ["a", "b"]}, "tokenizer_sha256": "00"}


def write_piece(work: WorkFolder, piece: str, content: bytes = b"content") -> str:
    name = f"train/{piece}.bin"
    with work.write_file(name) as writer:
        writer.write(content)
    work.finish(piece, [describe(name, writer)], {"piece": piece, "length": len(content)})
    return name


def list_names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_piece_is_kept_while_its_file_is_whole(tmp_path: Path) -> None:
    work = WorkFolder(str(tmp_path / "out"))
    with work.hold():
        work.start(PINNED, overwrite=False, owned_names=OWNED)
        name = write_piece(work, "one")
    assert work.load_finished("one") == {"piece": "one", "length": 7}
    assert pickle.loads(pickle.dumps(work)).load_finished("one") == {"piece": "one", "length": 7}
    assert work.read_records(["one"]) == [{"piece": "one", "length": 7}]
    assert work.finished_names() == ["one"]
    assert work.load_finished("two") is None
    assert (tmp_path / "out" / name).read_bytes() == b"content"


@pytest.mark.parametrize(
    "harm", ["changed", "truncated", "missing", "sidecar", "sidecar cut", "sidecar empty"]
)
def test_a_damaged_piece_counts_as_not_done(tmp_path: Path, harm: str) -> None:
    work = WorkFolder(str(tmp_path))
    with work.hold():
        work.start(PINNED, overwrite=False, owned_names=OWNED)
        file = tmp_path / write_piece(work, "one")
    sidecar = tmp_path / "_work" / "one.json"
    damages = {
        "changed": lambda: file.write_bytes(b"cOntent"),
        "truncated": lambda: file.write_bytes(b"conten"),
        "missing": file.unlink,
        "sidecar": lambda: sidecar.write_bytes(sidecar.read_bytes().replace(b'"length": 7', b'"length": 8')),
        "sidecar cut": lambda: sidecar.write_bytes(sidecar.read_bytes()[:-20]),
        "sidecar empty": lambda: sidecar.write_bytes(b""),
    }
    damages[harm]()
    assert work.load_finished("one") is None
    if harm.startswith("sidecar"):
        with pytest.raises(ClozelineError, match=r"one\.json is missing or damaged"):
            work.read_records(["one"])


def test_records_are_read_side_by_side_and_come_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = WorkFolder(str(tmp_path))
    names = [f"piece-{index:02d}" for index in range(2 * READING_THREADS)]
    with work.hold():
        work.start(PINNED, overwrite=False, owned_names=OWNED)
        for name in names:
            write_piece(work, name)
    read_bytes = storage.read_bytes
    # Nobody goes on before a whole set of readers is there; the timeout only ends a test that fails.
    together = threading.Barrier(READING_THREADS)

    def wait_and_read(path: str) -> bytes:
        together.wait(timeout=60)
        return read_bytes(path)

    monkeypatch.setattr(storage, "read_bytes", wait_and_read)

    assert [record["piece"] for record in work.read_records(reversed(names))] == names[::-1]


def test_of_missing_records_the_first_is_named(tmp_path: Path) -> None:
    work = WorkFolder(str(tmp_path))
    with work.hold():
        work.start(PINNED, overwrite=False, owned_names=OWNED)
        write_piece(work, "one")

    with pytest.raises(ClozelineError, match=r"three\.json is missing"):
        work.read_records(["one", "three", "two"])
    assert work.read_records([]) == []


def test_a_file_appears_only_whole(tmp_path: Path) -> None:
    work = WorkFolder(str(tmp_path))
    with work.hold():
        work.start(PINNED, overwrite=False, owned_names=OWNED)
        writing = work.write_file("train/a.bin")
        writing.__enter__().write(b"half")
        assert not (tmp_path / "train" / "a.bin").exists()
        assert not writing.__exit__(ZeroDivisionError, ZeroDivisionError(), None)  # not swallowed
        assert list_names(tmp_path) == ["_work/config.json", "_work/lock"]


def test_the_same_work_goes_on_and_drops_temporary_files(tmp_path: Path) -> None:
    work = WorkFolder(str(tmp_path))
    with work.hold():
        work.start(PINNED, overwrite=False, owned_names=OWNED)
        write_piece(work, "one")
    (tmp_path / "_work" / "train-1.bin.abc.tmp").write_bytes(b"half")
    with work.hold():
        work.start(dict(reversed(PINNED.items())), overwrite=False, owned_names=OWNED)
        assert work.finished_names() == ["one"]
        assert not list(tmp_path.rglob("*.tmp"))


def test_other_work_is_refused_while_something_is_finished(tmp_path: Path) -> None:
    work = WorkFolder(str(tmp_path))
    other = {**PINNED, "config": {"seed": 2, "inputs": ["a", "b"]}}
    with work.hold():
        work.start(PINNED, overwrite=False, owned_names=OWNED)
        write_piece(work, "one")
    with work.hold(), pytest.raises(UsageError, match=r"config\.seed was 1, is now 2\n.*--overwrite"):
        work.start(other, overwrite=False, owned_names=OWNED)
    assert work.load_finished("one")
    with work.hold():
        work.start(other, overwrite=True, owned_names=OWNED)
    assert list_names(tmp_path) == ["_work/config.json", "_work/lock"]


def test_other_work_may_begin_where_nothing_was_finished(tmp_path: Path) -> None:
    work = WorkFolder(str(tmp_path))
    with work.hold():
        work.start(PINNED, overwrite=False, owned_names=OWNED)
    with work.hold():
        work.start({"config": "other"}, overwrite=False, owned_names=OWNED)
        write_piece(work, "one")
    with work.hold(), pytest.raises(UsageError, match="configuration"):
        work.start(PINNED, overwrite=False, owned_names=OWNED)


def test_what_other_work_left_without_a_record_is_deleted(tmp_path: Path) -> None:
    work = WorkFolder(str(tmp_path))
    with work.hold():
        work.start(PINNED, overwrite=False, owned_names=OWNED)
        with work.write_file("train/part.bin") as stream:
            stream.write(b"whole, and its piece was never recorded")
    (tmp_path / "thesis.doc").write_text("precious")
    with work.hold():
        work.start({"config": "other"}, overwrite=False, owned_names=OWNED)
    assert list_names(tmp_path) == ["_work/config.json", "_work/lock", "thesis.doc"]


@pytest.mark.parametrize("name", ["thesis.doc", "train/part.bin"])
def test_files_of_others_are_left_alone(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("precious")
    work = WorkFolder(str(tmp_path))
    with pytest.raises(UsageError, match=r"isn't empty: it holds (thesis\.doc|train)"), work.hold():
        work.start(PINNED, overwrite=False, owned_names=OWNED)
    assert list_names(tmp_path) == [name]


def test_overwriting_deletes_what_the_job_owns_and_nothing_else(tmp_path: Path) -> None:
    for name in ("corpus.json", "train/part.bin", "thesis.doc", "other/file"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    work = WorkFolder(str(tmp_path))
    with work.hold():
        work.start(PINNED, overwrite=True, owned_names=OWNED)
    assert list_names(tmp_path) == ["_work/config.json", "_work/lock", "other/file", "thesis.doc"]


@pytest.mark.parametrize("name", ["train/my-only-copy.txt", "train"])
def test_overwriting_never_deletes_a_namesake_that_no_manifest_tells_of(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("precious")
    work = WorkFolder(str(tmp_path))
    with (
        pytest.raises(UsageError, match=r"holds train, and no corpus\.json .*\n.*--output"),
        work.hold(),
    ):
        work.start(PINNED, overwrite=True, owned_names=OWNED)
    assert list_names(tmp_path) == [name]


def test_an_overwriting_that_was_killed_after_it_deleted_the_manifest_goes_on(tmp_path: Path) -> None:
    for name in ("_work/lock", "train/part.bin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    work = WorkFolder(str(tmp_path))
    with work.hold():
        work.start(PINNED, overwrite=True, owned_names=OWNED)
    assert list_names(tmp_path) == ["_work/config.json", "_work/lock"]


def test_the_manifest_is_the_end_of_the_work(tmp_path: Path) -> None:
    output = tmp_path / "deep" / "out"
    work = WorkFolder(str(output))
    with work.hold():
        work.start(PINNED, overwrite=False, owned_names=OWNED)
        work.commit("corpus.json", b"{}\n")
        work.remove()
    assert list_names(output) == ["corpus.json"]
    assert [path.name for path in output.iterdir()] == ["corpus.json"]


def test_what_a_process_left_after_its_commit_is_removed(tmp_path: Path) -> None:
    work = WorkFolder(str(tmp_path))
    with work.hold():
        work.start(PINNED, overwrite=False, owned_names=OWNED)
        work.commit("corpus.json", b"{}\n")
    work.remove_remains()
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.json"]
    work.remove_remains()


def test_nothing_is_left_where_nothing_was_begun(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), WorkFolder(str(tmp_path / "new")).hold():
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


HOLDER = """
    import sys
    from pipelines.work_folder import WorkFolder
    with WorkFolder(sys.argv[1]).hold():
        print("held", flush=True)
        sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    output = str(tmp_path / "out")
    holder = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER), output],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(ClozelineError, match=f"out is being written by process {holder.pid} on "):
        WorkFolder(output).hold().__enter__()
    holder.kill()  # the kernel gives the lock back, however a process ends
    holder.communicate()
    with WorkFolder(output).hold():
        pass


def test_an_output_that_cant_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ClozelineError, match=r"file/out/_work: Not a directory"):
        WorkFolder(str(tmp_path / "file" / "out")).hold().__enter__()


def test_progress_tells_finished_pieces_once(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    work = WorkFolder(str(tmp_path))
    report = work.report_to(lambda done, total: calls.append((done, total)), 2)
    assert report is not None
    with work.hold():
        work.start(PINNED, overwrite=False, owned_names=OWNED)
        report()
        report()
        write_piece(work, "one")
        report()
        write_piece(work, "two")
        report()
    assert calls == [(0, 2), (1, 2), (2, 2)]
    assert work.report_to(None, 2) is None


@pytest.mark.parametrize(
    ("before", "now", "text"),
    [
        ({"a": 1, "b": {"c": [1]}}, {"a": 1, "b": {"c": [2]}}, "b.c was [1], is now [2]"),
        ({"a": 1}, {"a": 1, "b": "x"}, 'b was null, is now "x"'),
        (None, {"a": 1}, 'configuration was null, is now {"a": 1}'),
        ({"a": "x" * 99}, {"a": 1}, f'a was "{"x" * 76}..., is now 1'),
    ],
    ids=["nested", "new key", "unreadable", "long"],
)
def test_a_difference_is_named(before: object, now: object, text: str) -> None:
    assert describe_difference(before, now) == text


def test_manifests_say_which_program_wrote_them() -> None:
    assert created_by().startswith("clozeline 0.")


def test_an_output_whose_name_could_not_travel_to_workers_is_refused(tmp_path: Path) -> None:
    name = os.fsdecode(bytes(tmp_path) + b"/caf\xe9")
    with pytest.raises(UsageError, match=r"^--output .*: holds bytes that are no UTF-8; name it otherwise$"):
        WorkFolder(name)
    assert list_names(tmp_path) == []
