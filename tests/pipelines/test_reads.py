import os
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.reads import (
    MAX_FILES_PER_READ,
    ReadDescriptor,
    ReadPiece,
    check_formats,
    choose_read_bytes,
    detect_format,
    expand_inputs,
    group_files,
    split_into_reads,
)
from pipelines.storage import FileEntry
from schemas.configs import IngestConfig
from schemas.errors import UsageError

MIB = 1 << 20


def config(**fields):
    return IngestConfig(inputs=("x",), **fields)


# ---------------------------------------------------------------- inputs


def test_inputs_are_sorted_and_taken_once(tmp_path):
    for name in ("b.txt", "a.txt", "c.jsonl"):
        (tmp_path / name).write_text("x")
    patterns = [f"{tmp_path}/c.jsonl", f"{tmp_path}/*.txt", f"{tmp_path}/b.txt"]
    expected = [FileEntry(f"{tmp_path}/{name}", 1) for name in ("a.txt", "b.txt", "c.jsonl")]
    assert expand_inputs(patterns) == expected
    assert expand_inputs(patterns[::-1]) == expected


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("none.txt", "--input {}/none.txt: no such file"),
        ("*.md", "--input {}/*.md matches no file\n"),
        ("sub", "--input {}/sub is a folder; expected a file or a glob\nName its files: --input '{}/sub/*'"),
        (
            "sub/",
            "--input {}/sub/ is a folder; expected a file or a glob\nName its files: --input '{}/sub/*'",
        ),
    ],
)
def test_an_input_that_names_no_file_is_a_usage_error(tmp_path, pattern, message):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("x")
    with pytest.raises(UsageError, match=re.escape(message.replace("{}", str(tmp_path)))):
        expand_inputs([f"{tmp_path}/{pattern}"])


def test_a_pipe_is_a_usage_error_and_is_not_opened(tmp_path):
    path = f"{tmp_path}/a.txt"
    os.mkfifo(path)
    with pytest.raises(UsageError, match=re.escape(f"--input {path} is a pipe or a device; expected a file")):
        expand_inputs([path])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.jsonl", ("jsonl", None)),
        ("/x.y/a.NDJSON.GZ", ("jsonl", "gzip")),
        ("gs://b/a.json.zst", ("jsonl", "zstd")),
        ("a.b.parquet", ("parquet", None)),
        ("a.txt.bz2", ("text", "bzip2")),
        ("a.text.xz", ("text", "xz")),
        ("a.csv", ("csv", None)),
        ("a.CSV.zst", ("csv", "zstd")),
        ("a.tsv.xz", ("tsv", "xz")),
    ],
)
def test_format_goes_by_the_name(path, expected):
    assert detect_format(path, config()) == expected


def test_a_format_that_is_given_goes_before_the_name():
    assert detect_format("a.jsonl.gz", config(format="text-lines")) == ("text-lines", "gzip")
    assert detect_format("a", config(format="text-sentences")) == ("text-sentences", None)


@pytest.mark.parametrize("path", ["/x.txt/a", "a.gz", "a.xlsx", ".txt.zip"])
def test_an_unknown_name_is_a_usage_error_that_names_the_option(path):
    with pytest.raises(UsageError, match=rf"^{re.escape(path)}: .*\n.*--format"):
        check_formats([FileEntry("a.txt", 1), FileEntry(path, 1)], config())


def test_compressed_parquet_is_a_usage_error():
    with pytest.raises(UsageError, match=r"a\.parquet\.gz: .*\nDecompress it first"):
        check_formats([FileEntry("a.parquet.gz", 1)], config())


# ---------------------------------------------------------------- reads


@pytest.mark.parametrize(
    ("total", "expected"), [(0, MIB), (64 * MIB, MIB), (640 * MIB, 10 * MIB), (1 << 40, 64 * MIB)]
)
def test_read_bytes_follow_from_the_size_of_the_inputs(total, expected):
    assert choose_read_bytes([FileEntry("a", total // 2), FileEntry("b", total - total // 2)]) == expected


def test_small_files_share_a_read():
    files = [
        FileEntry(name, size) for name, size in [("a", 4), ("b", 5), ("c", 2), ("d", 30), ("e", 1), ("f", 9)]
    ]
    assert [[file.path for file in group] for group in group_files(files, 10)] == [
        ["a", "b"],
        ["c"],
        ["d"],
        ["e", "f"],
    ]


def test_a_read_has_a_bounded_number_of_files():
    files = [FileEntry(f"{index:06d}", 0) for index in range(10_000)]
    groups = group_files(files, MIB)
    assert [len(group) for group in groups] == [
        MAX_FILES_PER_READ,
        MAX_FILES_PER_READ,
        10_000 - 2 * MAX_FILES_PER_READ,
    ]


@given(st.lists(st.integers(0, 50)), st.integers(1, 60))
def test_groups_hold_all_files_in_order_and_little_more_than_a_read(sizes, read_bytes):
    files = [FileEntry(f"{index:04d}", size) for index, size in enumerate(sizes)]
    groups = group_files(files, read_bytes)
    assert [file for group in groups for file in group] == files
    assert all(len(group) == 1 or sum(file.size_bytes for file in group) <= read_bytes for group in groups)


@given(st.integers(0, 10_000), st.integers(1, 3_000))
def test_a_plain_file_is_cut_into_equal_ranges(size, read_bytes):
    reads = split_into_reads([FileEntry("a.jsonl", size)], config(), read_bytes)
    pieces = [piece for read in reads for piece in read.pieces]
    assert [pieces[0].start, *(piece.end for piece in pieces)] == [*(piece.start for piece in pieces), size]
    lengths = [read.size_bytes for read in reads]
    assert sum(lengths) == size
    assert max(lengths) - min(lengths) <= 1
    assert max(lengths) <= 1.5 * read_bytes + 1


@pytest.mark.parametrize("path", ["a.jsonl.gz", "a.txt", "a.txt.zst", "a.csv", "a.tsv"])
def test_a_file_that_can_not_be_cut_is_read_whole(path):
    (read,) = split_into_reads([FileEntry(path, 1000)], config(), 10)
    assert [(piece.start, piece.end) for piece in read.pieces] == [(0, None)]
    assert read.size_bytes == 1000


def test_several_files_make_one_read():
    files = [FileEntry("a.txt", 3), FileEntry("b.jsonl.gz", 4), FileEntry("c.parquet", 5)]
    (read,) = split_into_reads(files, config(), 100)
    assert read.pieces == (
        ReadPiece("a.txt", "text", None, 0, None, 3),
        ReadPiece("b.jsonl.gz", "jsonl", "gzip", 0, None, 4),
        ReadPiece("c.parquet", "parquet", None, 0, None, 5),
    )
    assert (read.size_bytes, read.path) == (12, "a.txt")


def test_the_name_of_a_read_is_stable_and_tells_reads_apart():
    piece = ReadPiece("a.jsonl", "jsonl", None, 0, 10, 20)
    read = ReadDescriptor((piece,), 10)
    assert read.name == "0defb8e802a8b9c3"
    assert pickle.loads(pickle.dumps(read)).name == read.name
    others = [
        ReadPiece("b.jsonl", "jsonl", None, 0, 10, 20),
        ReadPiece("a.jsonl", "text-lines", None, 0, 10, 20),
        ReadPiece("a.jsonl", "jsonl", "gzip", 0, 10, 20),
        ReadPiece("a.jsonl", "jsonl", None, 1, 10, 20),
        ReadPiece("a.jsonl", "jsonl", None, 0, None, 20),
        ReadPiece("a.jsonl", "jsonl", None, 0, 10, 21),
    ]
    names = {ReadDescriptor((other,), 10).name for other in others} | {
        ReadDescriptor((piece, piece), 10).name
    }
    assert len(names | {read.name}) == 8
    assert all(re.fullmatch("[0-9a-f]{16}", name) for name in names)
