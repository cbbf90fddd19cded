import io
from pathlib import Path

from workflows.report.seekable_file import SeekableFile


def test_it_reads_as_a_local_file_does(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)))
    with path.open("rb") as plain, SeekableFile(str(path), 256) as file:
        for offset, whence, size in [
            (0, io.SEEK_SET, 4),
            (-8, io.SEEK_END, 3),
            (2, io.SEEK_CUR, -1),
            (250, io.SEEK_SET, 100),
            (300, io.SEEK_SET, 5),
            (-10, io.SEEK_CUR, 0),
        ]:
            assert file.seek(offset, whence) == plain.seek(offset, whence)
            assert file.read(size) == plain.read(size)
            assert file.tell() == plain.tell()
        assert file.readable()
        assert file.seekable()
