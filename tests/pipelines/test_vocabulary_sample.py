from pathlib import Path

import pyarrow as pa
import pytest

from pipelines.storage import FileEntry
from pipelines.vocabulary_sample import plan_sample, sample_texts
from schemas.configs import VocabConfig

TEXTS = pa.array([f"document {index}" for index in range(4000)], pa.large_string())


def make_config(sample_bytes: int, seed: int = 0) -> VocabConfig:
    return VocabConfig(inputs=("unused",), sample_bytes=sample_bytes, seed=seed)


def make_files(num_files: int, size_bytes: int, suffix: str = ".jsonl") -> list[FileEntry]:
    return [FileEntry(f"/in/{index:04d}{suffix}", size_bytes) for index in range(num_files)]


def test_takes_about_the_share_of_documents() -> None:
    # The number is binomial(4000, 1/4): 27.4 is a standard deviation.
    assert abs(len(sample_texts(TEXTS, 0, 0.25)) - 1000) < 5 * 27.4


def test_a_document_is_taken_or_not_wherever_it_stands() -> None:
    whole = sample_texts(TEXTS, 7, 0.3).to_pylist()
    parts = [sample_texts(TEXTS.slice(start, 100), 7, 0.3).to_pylist() for start in range(0, 4000, 100)]
    assert [text for part in parts for text in part] == whole
    assert sample_texts(TEXTS, 8, 0.3).to_pylist() != whole


def test_a_share_of_one_takes_all() -> None:
    assert sample_texts(TEXTS, 0, 1.0) is TEXTS


def test_small_inputs_are_read_whole() -> None:
    files = make_files(10, 1000)
    reads, fraction = plan_sample(files, make_config(5000))
    assert [piece.path for read in reads for piece in read.pieces] == [file.path for file in files]
    assert fraction == pytest.approx(0.5)


def test_of_large_inputs_only_some_files_are_looked_at() -> None:
    files = make_files(1000, 100 << 20)
    reads, fraction = plan_sample(files, make_config(100 << 20))
    paths = [piece.path for read in reads for piece in read.pieces]
    read_bytes = sum(read.size_bytes for read in reads)
    assert 800 << 20 <= read_bytes <= 900 << 20
    assert fraction == pytest.approx((100 << 20) / read_bytes)
    assert paths == sorted(paths)
    assert len(set(paths)) > 4
    assert plan_sample(files, make_config(100 << 20))[0] == reads
    assert plan_sample(files, make_config(100 << 20, seed=1))[0] != reads


def test_compressed_files_count_for_more_text() -> None:
    _, fraction = plan_sample(make_files(3, 1000, ".jsonl.gz"), make_config(900))
    assert fraction == pytest.approx(0.1)


def test_empty_files_make_no_trouble(tmp_path: Path) -> None:
    reads, fraction = plan_sample(make_files(2, 0), make_config(10))
    assert len(reads) == 1
    assert fraction >= 1.0
