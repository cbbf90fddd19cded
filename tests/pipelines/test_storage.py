import errno
import io
import os
import re
from typing import ClassVar

import pytest
from apache_beam.io.filesystem import FileMetadata, FileSystem
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.value_provider import RuntimeValueProvider

from pipelines import storage
from pipelines.storage import FileEntry
from schemas.errors import ClozelineError, UsageError


def make(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())


def test_match_lists_files_sorted_with_their_sizes(tmp_path):
    make(tmp_path, "b.txt", "a.txt", "c.json", "sub/d.txt")
    assert storage.match(f"{tmp_path}/*.txt") == [
        FileEntry(f"{tmp_path}/a.txt", 5),
        FileEntry(f"{tmp_path}/b.txt", 5),
    ]
    assert storage.match(f"{tmp_path}/a.txt") == [FileEntry(f"{tmp_path}/a.txt", 5)]
    assert [entry.path for entry in storage.match(f"{tmp_path}/**.txt")] == [
        f"{tmp_path}/{name}" for name in ("a.txt", "b.txt", "sub/d.txt")
    ]
    assert storage.match(f"{tmp_path}/?.json") == [FileEntry(f"{tmp_path}/c.json", 6)]


def test_match_of_nothing_or_of_a_folder_is_empty(tmp_path):
    make(tmp_path, "sub/a.txt")
    assert storage.match(f"{tmp_path}/*.md") == []
    assert storage.match(f"{tmp_path}/none.txt") == []
    assert storage.match(f"{tmp_path}/none/*.txt") == []
    assert storage.match(f"{tmp_path}/sub") == []
    assert storage.match(f"{tmp_path}/*") == []


def test_match_takes_an_existing_name_literally(tmp_path):
    make(tmp_path, "a[1].txt", "a1.txt")
    assert [entry.path for entry in storage.match(f"{tmp_path}/a[1].txt")] == [f"{tmp_path}/a[1].txt"]


def test_relative_patterns_stay_relative(tmp_path, monkeypatch):
    make(tmp_path, "a.txt", "sub/b.txt")
    monkeypatch.chdir(tmp_path)
    for pattern, found in [
        ("*.txt", "a.txt"),
        ("a.txt", "a.txt"),
        ("./*.txt", "./a.txt"),
        ("sub/*", "sub/b.txt"),
    ]:
        assert [entry.path for entry in storage.match(pattern)] == [found]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("**/*.txt", ["a.txt", "sub/b.txt", "sub/deep/c.txt"]),
        ("**", ["a.txt", "sub/b.txt", "sub/deep/c.txt"]),
        ("sub/**/*.txt", ["sub/b.txt", "sub/deep/c.txt"]),
        ("sub/**/c.txt", ["sub/deep/c.txt"]),
        ("**/sub/**/b.txt", ["sub/b.txt"]),
        ("**/**/c.txt", ["sub/deep/c.txt"]),
        ("s**/*.txt", ["sub/b.txt", "sub/deep/c.txt"]),
    ],
)
def test_two_stars_stand_for_any_number_of_folders_also_none(tmp_path, monkeypatch, pattern, found):
    make(tmp_path, "a.txt", "sub/b.txt", "sub/deep/c.txt", ".hidden.txt", "sub/.git/d.txt")
    monkeypatch.chdir(tmp_path)
    assert [entry.path for entry in storage.match(pattern)] == found
    assert [entry.path for entry in storage.match(f"{tmp_path}/{pattern}")] == [
        f"{tmp_path}/{name}" for name in found
    ]


def test_a_folder_with_a_dot_is_looked_into_where_the_pattern_names_it(tmp_path):
    make(tmp_path, ".data/sub/a.txt", ".data/.b.txt")
    assert [entry.path for entry in storage.match(f"{tmp_path}/.data/**")] == [f"{tmp_path}/.data/sub/a.txt"]


def test_list_folder(tmp_path):
    make(tmp_path, "b", "a", "sub/c")
    assert storage.list_folder(str(tmp_path)) == [
        FileEntry(f"{tmp_path}/a", 1),
        FileEntry(f"{tmp_path}/b", 1),
    ]
    assert storage.list_folder(f"{tmp_path}/none") == []


def test_reading(tmp_path):
    make(tmp_path, "abcdef")
    path = f"{tmp_path}/abcdef"
    assert storage.read_bytes(path) == b"abcdef"
    assert storage.size_bytes(path) == 6
    with storage.open_read(path, offset=4) as stream:
        assert stream.read() == b"ef"
    assert storage.exists(path)
    assert not storage.exists(path + "x")
    assert storage.is_folder(str(tmp_path))
    assert not storage.is_folder(path)


def test_compressed_bytes_are_left_as_stored(tmp_path):
    storage.write_bytes(f"{tmp_path}/a.gz", b"plain")
    assert storage.read_bytes(f"{tmp_path}/a.gz") == b"plain"


@pytest.mark.parametrize(
    "read", [storage.read_bytes, storage.open_read, storage.size_bytes], ids=lambda f: f.__name__
)
def test_a_missing_file_is_named(tmp_path, read):
    with pytest.raises(
        ClozelineError, match=re.escape(f"can't read {tmp_path}/none: No such file or directory")
    ):
        read(f"{tmp_path}/none")


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(ClozelineError, match=re.escape(f"can't read {tmp_path}: Is a directory")):
        storage.read_bytes(str(tmp_path))


def test_an_unknown_scheme_is_a_usage_error():
    for action in (storage.match, storage.read_bytes, storage.exists, storage.is_folder):
        with pytest.raises(
            UsageError, match=r"nowhere://bucket/a: no file system is installed for nowhere://"
        ):
            action("nowhere://bucket/a")


def test_a_write_appears_when_it_is_whole(tmp_path):
    path = f"{tmp_path}/out/a.bin"
    work = f"{tmp_path}/out/_work"
    with storage.write_atomically(path, work) as stream:
        stream.write(b"one")
        assert not os.path.exists(path)
        (temporary,) = os.listdir(work)
        assert temporary.startswith("a.bin.")
    assert storage.read_bytes(path) == b"one"
    assert os.listdir(work) == []
    storage.write_bytes(path, b"two")
    assert storage.read_bytes(path) == b"two"


def test_a_write_that_fails_leaves_nothing(tmp_path):
    path = f"{tmp_path}/a.bin"
    storage.write_bytes(path, b"old")

    def write_half():
        with storage.write_atomically(path) as stream:
            stream.write(b"half")
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        write_half()
    assert os.listdir(tmp_path) == ["a.bin"]
    assert storage.read_bytes(path) == b"old"


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path):
    path = f"{tmp_path}/a.bin"
    expected = re.escape(f"can't write {path}: No space left on device")
    with pytest.raises(ClozelineError, match=expected), storage.write_atomically(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert os.listdir(tmp_path) == []


def test_a_disk_that_fills_up_leaves_nothing(tmp_path):
    (tmp_path / "work").mkdir()
    real_create = storage.FileSystems.create

    class FullDisk(io.RawIOBase):
        def writable(self):
            return True

        def write(self, content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def create_full(path, **options):
        real_create(path, **options).close()
        return io.BufferedWriter(FullDisk(), 10)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage.FileSystems, "create", staticmethod(create_full))
        with pytest.raises(ClozelineError, match=r"can't write .*a\.bin: No space left on device"):
            storage.write_bytes(f"{tmp_path}/a.bin", b"x" * 100_000, f"{tmp_path}/work")
    assert os.listdir(tmp_path) == ["work"]
    assert os.listdir(tmp_path / "work") == []


def test_an_unwritable_place_is_an_error_that_names_it(tmp_path):
    make(tmp_path, "file")
    with pytest.raises(ClozelineError, match=r"can't write .*/file/a\.bin: (Not a directory|File exists)"):
        storage.write_bytes(f"{tmp_path}/file/a.bin", b"")
    with pytest.raises(ClozelineError, match=r"can't make the folder .*/file/sub: Not a directory"):
        storage.make_folder(f"{tmp_path}/file/sub")


def test_delete(tmp_path):
    make(tmp_path, "a", "sub/b", "[ab]", "c")
    for name in ("a", "sub", "[ab]", "none"):
        storage.delete(f"{tmp_path}/{name}")
    assert os.listdir(tmp_path) == ["c"]
    os.symlink(tmp_path / "elsewhere", tmp_path / "link")
    make(tmp_path, "elsewhere/kept")
    storage.delete(f"{tmp_path}/link")
    assert sorted(os.listdir(tmp_path)) == ["c", "elsewhere"]
    assert os.listdir(tmp_path / "elsewhere") == ["kept"]


# ---------------------------------------------------------------- object stores


class ClientError(Exception):
    """What the client library of an object store raises."""


ClientError.__module__ = "botocore.exceptions"


class MemoryStore(FileSystem):
    """An object store without folders, as Beam sees one; like its S3 client it insists on options."""

    objects: ClassVar[dict[str, bytes]] = {}

    def __init__(self, pipeline_options):
        super().__init__(pipeline_options)
        if pipeline_options is None:
            raise ValueError("Must provide one of client or options")
        self.options = pipeline_options.get_all_options()

    @classmethod
    def scheme(cls):
        return "memory"

    def has_dirs(self):
        return False

    def _list(self, dir_or_prefix):
        for path, content in self.objects.items():
            if path.startswith(dir_or_prefix):
                yield FileMetadata(path, len(content))

    def create(self, path, mime_type="", compression_type=""):
        if "forbidden" in path:
            raise ClientError("AccessDenied\nand more", 403)
        store = self.objects

        class Upload(io.BytesIO):
            def close(self):
                if not self.closed:
                    store[path] = self.getvalue()
                super().close()

        return Upload()

    def open(self, path, mime_type="", compression_type=""):
        if path not in self.objects:
            raise OSError("Not found: " + path)
        return io.BytesIO(self.objects[path])

    def exists(self, path):
        return path in self.objects

    def metadata(self, path):
        return FileMetadata(path, len(self.objects[path]))

    def rename(self, sources, destinations):
        for source, destination in zip(sources, destinations, strict=True):
            self.objects[destination] = self.objects.pop(source)

    def delete(self, paths):
        for path in paths:
            for name in [n for n in self.objects if n == path or (path.endswith("/") and n.startswith(path))]:
                del self.objects[name]

    def _unused(self, *_):
        raise NotImplementedError

    join = split = mkdirs = copy = size = last_updated = checksum = _unused


@pytest.fixture
def objects(monkeypatch):
    monkeypatch.setattr(MemoryStore, "objects", {})
    monkeypatch.setattr(FileSystems, "_pipeline_options", None)
    # As a pipeline leaves it that ran in this process.
    monkeypatch.setattr(RuntimeValueProvider, "runtime_options", {})
    return MemoryStore.objects


def test_an_object_store_is_read_and_written(objects):
    storage.make_folder("memory://k/out")
    storage.write_bytes("memory://k/out/b.bin", b"bb", "memory://k/out/_work")
    storage.write_bytes("memory://k/out/a.bin", b"a")
    objects["memory://k/out/"] = b""
    expected = [FileEntry("memory://k/out/a.bin", 1), FileEntry("memory://k/out/b.bin", 2)]
    assert storage.match("memory://k/out/*.bin") == expected
    assert storage.match("memory://k/out/a.bin") == expected[:1]
    assert storage.list_folder("memory://k/out") == expected
    assert storage.list_folder("memory://k/none") == []
    assert storage.size_bytes("memory://k/out/b.bin") == 2
    with storage.open_read("memory://k/out/b.bin", 1) as stream:
        assert stream.read() == b"b"
    assert [storage.is_folder(f"memory://k/{name}") for name in ("out", "out/a.bin", "none")] == [
        True,
        False,
        False,
    ]
    assert [storage.exists(f"memory://k/out/{name}") for name in ("a.bin", "none")] == [True, False]
    storage.delete("memory://k/out/a.bin")
    storage.delete("memory://k/none")
    assert sorted(objects) == ["memory://k/out/", "memory://k/out/b.bin"]
    storage.delete("memory://k/out")
    assert objects == {}


def test_a_failed_upload_leaves_no_object(objects):
    with (
        pytest.raises(ClozelineError, match=r"^can't write memory://k/a: gone$"),
        storage.write_atomically("memory://k/a"),
    ):
        raise OSError("gone")
    assert objects == {}


def test_errors_of_an_object_store_are_named(objects):
    with pytest.raises(ClozelineError, match=r"^can't read memory://k/a: Not found: memory://k/a$"):
        storage.read_bytes("memory://k/a")
    with pytest.raises(ClozelineError, match=r"^can't read memory://k/a: no such file$"):
        storage.size_bytes("memory://k/a")
    with pytest.raises(ClozelineError, match=r"^can't write memory://forbidden/a: AccessDenied$"):
        storage.write_bytes("memory://forbidden/a", b"")


def test_options_of_beam_reach_the_object_store(objects):
    storage.use_options(["--s3_region_name=mars"])
    store = FileSystems.get_filesystem("memory://k/a")
    assert store.options["s3_region_name"] == "mars"


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("/a", "/a/b/c"),
        ("/a/", "/a/b/c"),
        ("a", "a/b/c"),
        ("gs://k/a", "gs://k/a/b/c"),
        ("s3://k/", "s3://k/b/c"),
    ],
)
def test_join(folder, expected):
    assert storage.join(folder, "b", "c") == expected
    assert storage.base_name(expected) == "c"
    assert storage.is_local(folder) == ("://" not in folder)
