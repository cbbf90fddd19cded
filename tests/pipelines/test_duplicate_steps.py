"""Repeated documents through the whole of `ingest`: dropped, counted, and the first one kept."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import duplicates, ingest_plan, ingest_steps
from pipelines.duplicate_steps import TextsFingerprint, split_repeats
from pipelines.ingest import run_ingest
from schemas.configs import IngestConfig
from schemas.errors import ClozelineError
from schemas.manifests import CorpusManifest

NUM_TEXTS = 60


@pytest.fixture(autouse=True)
def small_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several reads a file, and a comparison in several ranges."""
    monkeypatch.setattr(ingest_plan, "choose_read_bytes", lambda _: 1_000)
    monkeypatch.setattr(duplicates, "MAX_COMPARED_DOCUMENTS", 50)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """60 texts; a second file repeats the even ones, and adds one of its own twice."""
    folder = tmp_path / "in"
    folder.mkdir()
    texts = [f"the cat sat on the mat {number}" for number in range(NUM_TEXTS)]
    first = [{"id": f"a{number}", "text": text} for number, text in enumerate(texts)]
    second = [{"id": f"b{number}", "text": texts[number]} for number in range(0, NUM_TEXTS, 2)]
    second += [{"id": f"own{number}", "text": "it purred softly"} for number in range(2)]
    for name, rows in (("a.jsonl", first), ("b.jsonl", second)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def run(folder: Path, tokenizer: Path, output: Path, workers: int = 1, **config: object) -> CorpusManifest:
    settings = IngestConfig(inputs=(str(folder / "*.jsonl"),), validation_fraction=0.2, **config)
    return run_ingest(settings, str(tokenizer), str(output), workers=workers)


def ids_in(corpus: Path) -> list[str]:
    tables = [pq.read_table(path, partitioning=None) for path in corpus.rglob("*.parquet")]
    return sorted(pa.concat_tables(tables)["document_id"].to_pylist())


def test_the_first_of_equal_texts_is_kept(folder: Path, tmp_path: Path, tiny_tokenizer_path: Path) -> None:
    manifest = run(folder, tiny_tokenizer_path, tmp_path / "out")
    assert manifest.rejected == {"duplicate": NUM_TEXTS // 2 + 1}
    assert manifest.num_documents_read == NUM_TEXTS + NUM_TEXTS // 2 + 2
    assert manifest.num_documents == NUM_TEXTS + 1
    assert ids_in(tmp_path / "out") == sorted([*(f"a{number}" for number in range(NUM_TEXTS)), "own0"])
    rejects = [
        json.loads(line)
        for path in (tmp_path / "out" / "rejects").iterdir()
        for line in path.read_text().splitlines()
    ]
    assert sorted(reject["document_id"] for reject in rejects) == sorted(
        [*(f"b{number}" for number in range(0, NUM_TEXTS, 2)), "own1"]
    )


def test_two_workers_drop_the_same(folder: Path, tmp_path: Path, tiny_tokenizer_path: Path) -> None:
    run(folder, tiny_tokenizer_path, tmp_path / "one")
    run(folder, tiny_tokenizer_path, tmp_path / "two", workers=2)
    one, two = (
        {str(path.relative_to(tmp_path / name)): path.read_bytes() for path in (tmp_path / name).rglob("*.*")}
        for name in ("one", "two")
    )
    assert one == two


def test_duplicates_can_be_kept(folder: Path, tmp_path: Path, tiny_tokenizer_path: Path) -> None:
    manifest = run(folder, tiny_tokenizer_path, tmp_path / "out", keep_duplicates=True)
    assert manifest.rejected == {}
    assert manifest.num_documents == NUM_TEXTS + NUM_TEXTS // 2 + 2


def test_a_file_that_changed_between_its_two_readings_is_an_error_until_all_is_made_anew(
    folder: Path, tmp_path: Path, tiny_tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_off(*_: object) -> None:
        raise ClozelineError("broken off")

    with monkeypatch.context() as patch:
        patch.setattr(ingest_steps, "segment_documents", break_off)
        with pytest.raises(ClozelineError, match="broken off"):
            run(folder, tiny_tokenizer_path, tmp_path / "out")
    content = (folder / "a.jsonl").read_bytes()
    # Of the same size, so that nothing but the texts can tell: what "b58" repeated is no more.
    (folder / "a.jsonl").write_bytes(content.replace(b"the mat 58", b"the mut 58"))
    message = r"a\.jsonl was changed after it was first read\nBegin anew with --overwrite"
    for _ in range(2):
        with pytest.raises(ClozelineError, match=message):
            run(folder, tiny_tokenizer_path, tmp_path / "out")
    settings = IngestConfig(inputs=(str(folder / "*.jsonl"),))
    manifest = run_ingest(
        settings, str(tiny_tokenizer_path), str(tmp_path / "out"), workers=1, overwrite=True
    )
    assert manifest.num_documents == NUM_TEXTS + 2
    assert "b58" in ids_in(tmp_path / "out")


def test_a_fingerprint_is_that_of_the_texts_in_order_however_they_are_cut() -> None:
    def value(*batches: list[str]) -> str:
        fingerprint = TextsFingerprint()
        for batch in batches:
            fingerprint.add(pa.array(batch, pa.large_string()))
        return fingerprint.value

    assert value(["a", "b"], ["c"]) == value(["a"], [], ["b", "c"]) == value(["a", "b", "c"])
    assert len({value(["a", "b"]), value(["b", "a"]), value(["ab"]), value(["a"]), value([])}) == 5


@pytest.mark.parametrize(
    ("first_row", "kept", "repeated"),
    [(0, ["a", "c"], ["b"]), (2, ["a"], ["b", "c"]), (10, ["a", "b", "c"], [])],
)
def test_a_batch_is_parted_by_its_place(first_row: int, kept: list[str], repeated: list[str]) -> None:
    documents = pa.table({"document_id": ["a", "b", "c"]})
    parts = split_repeats(documents, first_row, pa.array([1, 3, 4], pa.uint32()).to_numpy())
    assert [part["document_id"].to_pylist() for part in parts] == [kept, repeated]
