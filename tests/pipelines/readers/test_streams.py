import bz2
import gzip
import lzma
import re

import pytest
import zstandard

from pipelines.readers.streams import open_plain, read_fully
from schemas.errors import ClozelineError

COMPRESSORS = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}
PADDED = ("gzip", "bzip2", "xz")
FIRST, SECOND = b"one\n" * 1_000_000, b"two\n" * 1000


def read_all(path, compression, portion=1 << 20):
    with open_plain(str(path), compression) as stream:
        return b"".join(iter(lambda: stream.read(portion), b""))


@pytest.mark.parametrize("compression", COMPRESSORS)
@pytest.mark.parametrize("portion", [1000, 1 << 23])
def test_streams_in_a_row_are_one(tmp_path, compression, portion):
    path = tmp_path / "a"
    path.write_bytes(COMPRESSORS[compression](FIRST) + COMPRESSORS[compression](SECOND))
    assert read_all(path, compression, portion) == FIRST + SECOND


@pytest.mark.parametrize("compression", PADDED)
def test_zeros_between_and_behind_streams_are_padding(tmp_path, compression):
    path = tmp_path / "a"
    compress = COMPRESSORS[compression]
    # More than is read at a time, so that a portion is nothing but padding.
    path.write_bytes(compress(FIRST) + bytes(5_000_000) + compress(SECOND) + bytes(8))
    assert read_all(path, compression) == FIRST + SECOND


@pytest.mark.parametrize("compression", COMPRESSORS)
def test_one_wrong_byte_where_a_second_stream_begins_is_an_error(tmp_path, compression):
    path = tmp_path / "a"
    second = COMPRESSORS[compression](SECOND)
    path.write_bytes(COMPRESSORS[compression](FIRST) + b"?" + second[1:])
    with pytest.raises(ClozelineError, match=re.escape(f"{path} is no valid {compression} file: ")):
        read_all(path, compression)


@pytest.mark.parametrize("compression", COMPRESSORS)
@pytest.mark.parametrize("kept", [10, -1])
def test_a_second_stream_cut_short_is_an_error(tmp_path, compression, kept):
    path = tmp_path / "a"
    path.write_bytes(COMPRESSORS[compression](FIRST) + COMPRESSORS[compression](SECOND)[:kept])
    with pytest.raises(ClozelineError, match=re.escape(f"{path} is truncated: its {compression} data")):
        read_all(path, compression)


@pytest.mark.parametrize("compression", COMPRESSORS)
def test_a_compressed_file_of_no_byte_is_truncated_and_one_of_no_text_is_not(tmp_path, compression):
    path = tmp_path / "a"
    path.write_bytes(COMPRESSORS[compression](b""))
    assert read_all(path, compression) == b""
    path.write_bytes(b"")
    with pytest.raises(ClozelineError, match=re.escape(f"{path} is truncated: its {compression} data")):
        read_all(path, compression)


def test_reading_fully_goes_on_over_short_portions(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(bz2.compress(FIRST) + bz2.compress(SECOND))
    with open_plain(str(path), "bzip2") as stream:
        assert read_fully(stream, len(FIRST) + 4) == FIRST + b"two\n"
