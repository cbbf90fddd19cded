"""Repeated texts: compared with a dictionary, over any division into reads and ranges of buckets."""

import hashlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines import duplicates
from schemas.errors import CorruptDataError


def texts_of(texts: list[str]) -> pa.Array:
    return pa.array(texts, pa.large_string())


def expected_repeats(reads: list[list[str]]) -> list[list[int]]:
    seen: set[str] = set()
    repeats: list[list[int]] = []
    for texts in reads:
        rows = []
        for row, text in enumerate(texts):
            if text in seen:
                rows.append(row)
            seen.add(text)
        repeats.append(rows)
    return repeats


def test_a_hash_is_blake2b_of_the_text() -> None:
    records = duplicates.hash_texts(texts_of(["x", "", "é"]).slice(1), first_row=7)
    for record, text, row in zip(records, ["", "é"], [7, 8], strict=True):
        digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
        assert record["high"] == int.from_bytes(digest[:8], "little")
        assert record["low"] == int.from_bytes(digest[8:], "little")
        assert record["row"] == row


@given(st.lists(st.lists(st.sampled_from(["a", "b", "c", "d", "é", "a b"]) | st.text(max_size=2))))
def test_repeats_are_those_of_a_dictionary(reads: list[list[str]]) -> None:
    found = duplicates.find_repeats([duplicates.hash_texts(texts_of(texts), 0) for texts in reads])
    assert [rows.tolist() for rows in found] == expected_repeats(reads)


@pytest.mark.parametrize("num_ranges", [1, 3, 256])
def test_the_way_through_files_changes_nothing(tmp_path: Path, num_ranges: int) -> None:
    # 300 texts of 100 kinds, so that every range of buckets has work and most reads have repeats.
    reads = [[f"text {(7 * row + 3 * read) % 100}" for row in range(50)] for read in range(6)]
    reads.insert(2, [])
    hash_paths, repeat_paths = [], []
    for number, texts in enumerate(reads):
        hash_paths.append(str(tmp_path / f"{number}.hashes"))
        with open(hash_paths[-1], "wb") as stream:
            duplicates.write_hashes(stream, duplicates.hash_texts(texts_of(texts), 0))
    bounds = [256 * number // num_ranges for number in range(num_ranges + 1)]
    for first, end in pairwise(bounds):
        repeat_paths.append(str(tmp_path / f"{first}.repeats"))
        with open(repeat_paths[-1], "wb") as stream:
            parts = [duplicates.read_hashes(path, first, end) for path in hash_paths]
            duplicates.write_repeats(stream, duplicates.find_repeats(parts))
    found = [duplicates.read_repeats(repeat_paths, read, len(reads)).tolist() for read in range(len(reads))]
    assert found == expected_repeats(reads)


@pytest.mark.parametrize(
    ("num_documents", "num_ranges"),
    [(0, 1), (4_000_000, 1), (4_000_001, 2), (100_000_000, 25), (10**10, 256)],
)
def test_ranges_cover_all_buckets_and_hold_what_fits(num_documents: int, num_ranges: int) -> None:
    ranges = duplicates.divide_buckets(num_documents)
    assert len(ranges) == num_ranges
    assert [bucket for first, end in ranges for bucket in range(first, end)] == list(range(256))


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.hashes"
    with path.open("wb") as stream:
        duplicates.write_hashes(stream, duplicates.hash_texts(texts_of(["a", "b"]), 0))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptDataError, match=r"x\.hashes ends after"):
        duplicates.read_hashes(str(path), 0, 256)


def test_rows_of_many_batches_are_told_apart() -> None:
    first = duplicates.hash_texts(texts_of(["a", "b"]), 0)
    second = duplicates.hash_texts(texts_of(["b", "c", "a"]), 2)
    found = duplicates.find_repeats([np.concatenate([first, second])])
    assert found[0].tolist() == [2, 4]
