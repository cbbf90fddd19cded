import gzip
import lzma
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
    plan = plan_sample(files, make_config(5000))
    assert [piece.path for read in plan.reads for piece in read.pieces] == [file.path for file in files]
    assert plan.read_share == 1.0
    assert plan.fraction == pytest.approx(0.5)


def test_of_large_inputs_only_some_files_are_looked_at() -> None:
    files = make_files(1000, 100 << 20)
    plan = plan_sample(files, make_config(100 << 20))
    reads = plan.reads
    paths = [piece.path for read in reads for piece in read.pieces]
    read_bytes = sum(read.size_bytes for read in reads)
    assert 800 << 20 <= read_bytes <= 900 << 20
    assert plan.read_share == pytest.approx(read_bytes / (1000 * 100 << 20))
    assert plan.fraction == pytest.approx((100 << 20) / read_bytes)
    assert paths == sorted(paths)
    assert len(set(paths)) > 4
    assert plan_sample(files, make_config(100 << 20)) == plan
    assert plan_sample(files, make_config(100 << 20, seed=1)).reads != reads


@pytest.mark.parametrize(
    ("names", "num_lines"),
    [
        (["0.jsonl.gz"], 1000),
        ([f"{index}.jsonl.gz" for index in range(6)], 6000),
        (["6.jsonl.xz"], 5000),
        (["7.jsonl"], 700),
        ([*(f"{index}.jsonl.gz" for index in range(6)), "6.jsonl.xz", "7.jsonl"], 11_700),
    ],
    ids=["gzip", "six of gzip", "xz", "plain", "all"],
)
def test_compressed_files_count_for_what_is_in_them(tmp_path: Path, names: list[str], num_lines: int) -> None:
    line = b'{"text": "a line that compresses well"}\n'
    contents = {
        ".gz": gzip.compress(line * 1000),
        ".xz": lzma.compress(line * 5000),
        ".jsonl": line * 700,
    }
    for name in names:
        (tmp_path / name).write_bytes(contents[Path(name).suffix])
    files = [FileEntry(str(path), path.stat().st_size) for path in sorted(tmp_path.iterdir())]

    plan = plan_sample(files, make_config(9000))

    assert plan.fraction == pytest.approx(9000 / (num_lines * len(line)))


def test_empty_files_make_no_trouble() -> None:
    plan = plan_sample(make_files(2, 0), make_config(10))
    assert len(plan.reads) == 1
    assert plan.fraction >= 1.0
