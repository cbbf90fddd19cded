import errno
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from workflows.failures import describe_failure
from workflows.quickstart.whole_file import write_whole


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.txt"
    for content in (b"one", b"two"):
        with write_whole(path) as stream:
            stream.write(content)
            assert not path.exists() or path.read_bytes() == b"one"
        assert path.read_bytes() == content
    assert [entry.name for entry in path.parent.iterdir()] == ["a.txt"]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")

    def write_half() -> None:
        with write_whole(path) as stream:
            stream.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may pass 4,096 bytes: the kernel refuses the write as it does on a full disk."""
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path: Path, small_files: None) -> None:
    path = tmp_path / "a.txt"
    with pytest.raises(OSError, match=r"a\.txt") as caught, write_whole(path) as stream:
        stream.write(b"x" * 100_000)
    assert caught.value.errno == errno.EFBIG
    assert describe_failure(caught.value) == (f"{path}: File too large.", 1)
    assert list(tmp_path.iterdir()) == []


def test_a_place_below_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="file/sub"), write_whole(tmp_path / "file" / "sub" / "a"):
        pass
