"""`ingest` from end to end: what it writes, for whom it is the same, and what it says when it can't."""

from __future__ import annotations

import gzip
import json
import lzma
import random
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from pipelines import ingest, ingest_plan, splits
from pipelines.corpus_manifest import IngestJob, load_corpus_manifest
from pipelines.ingest import Ingest, run_ingest
from pipelines.ingest_plan import dump_plan, load_plan, plan_ingest
from pipelines.row_groups import digest_row_group
from pipelines.table_batch import TableBatchCoder
from pipelines.work_folder import WorkFolder
from schemas.configs import IngestConfig
from schemas.errors import ClozelineError, UsageError
from schemas.manifests import CorpusManifest
from tests.pipelines.worker_processes import find_workers

WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "mat",
    "it",
    "purred",
    "softly",
    "a",
    "dog",
    "ran",
    "fast",
    "over",
    "hill",
]
READ_BYTES = 4_000


@pytest.fixture(autouse=True)
def small_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut small inputs into several reads and row groups, as large ones are."""
    monkeypatch.setattr(ingest_plan, "choose_read_bytes", lambda _: READ_BYTES)
    monkeypatch.setattr(ingest, "choose_row_group_tokens", lambda _: 150)


def make_text(seed: int) -> str:
    rng = random.Random(seed)
    sentences = [
        " ".join(rng.choices(WORDS, k=rng.randint(3, 12))).capitalize() for _ in range(rng.randint(1, 6))
    ]
    return ". ".join(sentences) + "."


def write_inputs(folder: Path) -> list[str]:
    """160 documents to keep in four files of three formats, and five to leave out."""
    folder.mkdir()
    lines = [json.dumps({"id": f"a{seed}", "text": make_text(seed)}) for seed in range(100)]
    broken = [
        '{"id": "blank", "text": "  "}',
        '{"id": "none"}',
        "{not json",
        '{"id": "nul", "text": "\\u0000"}',
    ]
    (folder / "a.jsonl").write_text("\n".join([*lines[:50], *broken, *lines[50:]]) + "\n")
    with gzip.open(folder / "b.jsonl.gz", "wt") as stream:
        stream.writelines(json.dumps({"text": make_text(seed)}) + "\n" for seed in range(100, 130))
    table = pa.table(
        {"text": [make_text(seed) for seed in range(130, 159)], "id": list(map(str, range(130, 159)))}
    )
    pq.write_table(table, folder / "c.parquet", row_group_size=10)
    (folder / "d.txt").write_text(make_text(159))
    (folder / "e.txt").write_bytes(b"bad \xff byte")
    return [str(path) for path in sorted(folder.iterdir())]


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run(inputs: list[str], tokenizer: Path, output: Path, **arguments: object) -> CorpusManifest:
    settings = {"validation_fraction": 0.2, **arguments.pop("config", {})}
    return run_ingest(
        IngestConfig(inputs=tuple(inputs), **settings),
        str(tokenizer),
        str(output),
        **{"workers": 1, **arguments},
    )


def test_the_same_bytes_with_one_and_two_workers_and_other_orders(
    tmp_path: Path, tiny_tokenizer_path: Path
) -> None:
    inputs = write_inputs(tmp_path / "in")
    calls: list[tuple[int, int]] = []
    first = run(inputs, tiny_tokenizer_path, tmp_path / "one", progress=lambda *call: calls.append(call))
    globs = [str(tmp_path / "in" / "?.*"), inputs[-1], inputs[0]]
    second = run(inputs[::-1], tiny_tokenizer_path, tmp_path / "two", workers=2)
    assert second == first
    expected = read_files(tmp_path / "one")
    assert read_files(tmp_path / "two") == expected
    assert sum(name.endswith(".parquet") for name in expected) > 8
    # Named by a glob, the configuration in the manifest differs, and nothing else does.
    run(globs, tiny_tokenizer_path, tmp_path / "glob")
    assert {**read_files(tmp_path / "glob"), "corpus.json": b""} == {**expected, "corpus.json": b""}
    total = len(plan_ingest(IngestConfig(inputs=tuple(inputs))).reads)
    assert total > 5
    assert calls[-1] == (total, total)
    assert calls == sorted(calls)
    assert not find_workers()


def test_documents_in_are_documents_kept_and_rejected(tmp_path: Path, tiny_tokenizer_path: Path) -> None:
    manifest = run(write_inputs(tmp_path / "in"), tiny_tokenizer_path, tmp_path / "out")
    assert (manifest.num_documents_read, manifest.num_documents, manifest.num_rejected) == (165, 160, 5)
    reasons = {"empty": 1, "missing_text": 1, "invalid_json": 1, "no_tokens": 1, "invalid_utf8": 1}
    assert manifest.rejected == reasons
    rejects = [
        json.loads(line)
        for path in (tmp_path / "out" / "rejects").iterdir()
        for line in path.read_text().splitlines()
    ]
    assert sorted(reject["reason"] for reject in rejects) == sorted(reasons)
    assert {reject["document_id"] for reject in rejects} >= {"blank", "none", "nul"}
    assert all(set(reject) == {"document_id", "reason", "detail"} for reject in rejects)
    assert manifest.num_text_bytes == sum(len(make_text(seed)) for seed in range(160))
    assert manifest.num_input_files == 5
    assert load_corpus_manifest(str(tmp_path / "out")) == manifest
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "corpus.json", "tokenizer.json", "train", "validation", "rejects",
    }  # fmt: skip


def test_the_files_hold_the_librarys_tokens(
    tmp_path: Path, tiny_tokenizer_path: Path, tiny_tokenizer: Tokenizer
) -> None:
    inputs = write_inputs(tmp_path / "in")
    manifest = run(inputs, tiny_tokenizer_path, tmp_path / "out")
    found: dict[str, list[int]] = {}
    for file in manifest.files:
        parquet = pq.ParquetFile(tmp_path / "out" / file.name)
        assert parquet.num_row_groups == len(file.row_groups)
        for index, group in enumerate(file.row_groups):
            table = parquet.read_row_group(index)
            assert digest_row_group(table) == group.digest
            assert (
                pa.compute.sum(pa.compute.list_value_length(table["token_ids"])).as_py() == group.num_tokens
            )
            for row in table.to_pylist():
                assert sum(row["sentence_lengths"]) == len(row["token_ids"])
                found[row["document_id"]] = row["token_ids"]
                if row["document_id"].startswith("a"):
                    text = make_text(int(row["document_id"][1:]))
                    assert splits.assign_split(text, 0.2) == file.split
        assert all(group.num_tokens >= 150 for group in file.row_groups[:-1])
    assert len(found) == 160
    for seed in range(100):
        assert found[f"a{seed}"] == tiny_tokenizer.encode(make_text(seed), add_special_tokens=False).ids
    offset = len(json.dumps({"text": make_text(100)})) + 1
    assert f"{inputs[1]}:{offset}" in found
    assert f"{inputs[3]}:0" in found
    assert {file.split for file in manifest.files} == {"train", "validation"}


def test_a_large_vocabulary_takes_uint32(tmp_path: Path) -> None:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{index}" for index in range(70_000))]
    tokenizer = Tokenizer(
        models.WordPiece({token: index for index, token in enumerate(tokens)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "in.txt").write_text("w69999 w3.")
    run(
        [str(tmp_path / "in.txt")],
        tmp_path / "tokenizer.json",
        tmp_path / "out",
        config={"validation_fraction": 0.0},
    )
    (file,) = (tmp_path / "out" / "train").iterdir()
    assert pq.read_table(file)["token_ids"].to_pylist() == [[70_004, 8, 1]]
    assert pq.read_schema(file).field("token_ids").type.value_type == pa.uint32()


def test_a_finished_corpus_is_found_done(tmp_path: Path, tiny_tokenizer_path: Path) -> None:
    inputs = write_inputs(tmp_path / "in")
    manifest = run(inputs, tiny_tokenizer_path, tmp_path / "out")
    before = {path: path.stat() for path in (tmp_path / "out").rglob("*")}
    (tmp_path / "out" / "_work").mkdir()  # what a process leaves that ends right after its commit
    assert run(inputs, tiny_tokenizer_path, tmp_path / "out") == manifest
    assert {path: path.stat() for path in (tmp_path / "out").rglob("*")}.keys() == before.keys()
    assert all(path.stat().st_mtime_ns == stat.st_mtime_ns for path, stat in before.items() if path.is_file())


def test_another_corpus_needs_overwrite(tmp_path: Path, tiny_tokenizer_path: Path) -> None:
    inputs = write_inputs(tmp_path / "in")
    output = tmp_path / "out"
    run(inputs, tiny_tokenizer_path, output)
    expected = read_files(output)
    with pytest.raises(UsageError, match=r"config\.language was \"en\", is now \"de\"\n.*--overwrite"):
        run(inputs, tiny_tokenizer_path, output, config={"language": "de"})
    glob = [str(tmp_path / "in" / "*")]
    run(glob, tiny_tokenizer_path, output, overwrite=True)
    with (tmp_path / "in" / "f.txt").open("w") as stream:
        stream.write(make_text(1))
    with pytest.raises(UsageError, match=r"num_input_bytes was \d+, is now \d+"):
        run(glob, tiny_tokenizer_path, output)
    (tmp_path / "in" / "f.txt").unlink()
    run(inputs, tiny_tokenizer_path, output, overwrite=True)
    assert read_files(output) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": ["missing.jsonl"]}, r"missing\.jsonl: no such file"),
        ({"inputs": ["in/*.csv"]}, r"in/\*\.csv matches no file"),
        ({"inputs": ["in"]}, r"in is a folder"),
        ({"inputs": ["noformat"]}, r"noformat: its name does not tell its format"),
        ({"tokenizer": "missing"}, r"no tokenizer at .*missing"),
        ({"tokenizer": "in"}, r"in has neither tokenizer\.json nor vocab\.txt"),
        ({"tokenizer": "vocab.txt"}, r"vocab\.txt lacks \[PAD\]"),
    ],
    ids=[
        "no file",
        "no match",
        "folder",
        "unknown format",
        "no tokenizer",
        "no vocabulary",
        "no special tokens",
    ],
)
def test_mistakes_are_found_before_anything_is_written(
    tmp_path: Path, tiny_tokenizer_path: Path, change: dict[str, object], message: str
) -> None:
    write_inputs(tmp_path / "in")
    (tmp_path / "noformat").write_text("x")
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    inputs = [str(tmp_path / name) for name in change.get("inputs", ["in/a.jsonl"])]
    tokenizer = tmp_path / str(change["tokenizer"]) if "tokenizer" in change else tiny_tokenizer_path
    with pytest.raises(UsageError, match=message):
        run(inputs, tokenizer, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_output_that_cant_be_written_is_named(tmp_path: Path, tiny_tokenizer_path: Path) -> None:
    (tmp_path / "in.txt").write_text(make_text(1))
    (tmp_path / "file").write_text("x")
    for output in (tmp_path / "file" / "out", Path("/proc/clozeline")):
        with pytest.raises(ClozelineError, match=str(output)) as caught:
            run([str(tmp_path / "in.txt")], tiny_tokenizer_path, output)
        assert len(str(caught.value).splitlines()) <= 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no document in the input, 0 bytes in all"),
        (
            '{"body": "a"}\n{"text": 7}\n{"text": " "}\n',
            "none of the 3 documents read could be kept: 1 empty, 2 missing",
        ),
        ('{"body": "a"}\n', r"the keys are 'body'\. Name the field .* with --text-field\."),
        ("a\n{\n", r"2 invalid_json\n.*\. JSONL has an object on each line.*--format\."),
    ],
    ids=["nothing", "all rejected", "another field", "another format"],
)
def test_a_corpus_without_documents_is_an_error_that_says_why(
    tmp_path: Path, tiny_tokenizer_path: Path, content: str, message: str
) -> None:
    (tmp_path / "in.jsonl").write_text(content)
    with pytest.raises(ClozelineError, match=message) as caught:
        run([str(tmp_path / "in.jsonl")], tiny_tokenizer_path, tmp_path / "out")
    assert len(str(caught.value).splitlines()) == 2
    assert not (tmp_path / "out").exists()


def test_rows_of_csv_and_tsv_are_documents(tmp_path: Path, tiny_tokenizer_path: Path) -> None:
    rows = [f'{seed},"{make_text(seed)}\n{make_text(seed)}"' for seed in range(40)]
    (tmp_path / "a.csv").write_text("\n".join(["id,text", *rows[:20], "one field", *rows[20:]]))
    (tmp_path / "b.tsv.xz").write_bytes(lzma.compress(f"text\tid\n{make_text(40)}\t40\n".encode()))
    inputs = [str(tmp_path / "a.csv"), str(tmp_path / "b.tsv.xz")]
    manifest = run(inputs, tiny_tokenizer_path, tmp_path / "out")
    assert (manifest.num_documents_read, manifest.num_documents) == (42, 41)
    assert manifest.rejected == {"invalid_csv": 1}
    tables = [pq.read_table(tmp_path / "out" / file.name) for file in manifest.files]
    found = [name for table in tables for name in table["document_id"].to_pylist()]
    assert sorted(found, key=int) == [str(seed) for seed in range(41)]
    (rejects,) = (tmp_path / "out" / "rejects").iterdir()
    assert json.loads(rejects.read_text())["detail"] == "expected 2 fields as in the header, found 1"


def test_a_csv_file_without_a_text_column_ends_the_job(tmp_path: Path, tiny_tokenizer_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,body\n1,One.\n")
    with pytest.raises(ClozelineError, match=r"a\.csv has no column 'text'; its columns are 'id', 'body'\n"):
        run([str(tmp_path / "a.csv")], tiny_tokenizer_path, tmp_path / "out")


def test_a_parquet_file_without_rows_has_no_document(tmp_path: Path, tiny_tokenizer_path: Path) -> None:
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "in.parquet")
    with pytest.raises(ClozelineError, match="no document in the input, "):
        run([str(tmp_path / "in.parquet")], tiny_tokenizer_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_all_documents_may_be_held_out(tmp_path: Path, tiny_tokenizer_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(
        "".join(json.dumps({"text": make_text(seed)}) + "\n" for seed in range(5))
    )
    manifest = run(
        [str(tmp_path / "in.jsonl")],
        tiny_tokenizer_path,
        tmp_path / "out",
        config={"validation_fraction": 0.999999},
    )
    assert {file.split for file in manifest.files} == {"validation"}
    assert not (tmp_path / "out" / "train").exists()
    assert not (tmp_path / "out" / "rejects").exists()


def test_the_plan_survives_its_file(tmp_path: Path) -> None:
    plan = plan_ingest(IngestConfig(inputs=tuple(write_inputs(tmp_path / "in"))))
    (tmp_path / "reads.jsonl").write_bytes(dump_plan(plan.reads))
    assert tuple(load_plan(str(tmp_path / "reads.jsonl"))) == plan.reads
    sizes = [read.size_bytes for read in plan.reads]
    assert sizes == sorted(sizes, reverse=True)
    assert len({read.name for read in plan.reads}) == len(sizes)


def test_the_graph_is_small_and_tables_have_their_coder(tmp_path: Path, tiny_tokenizer_path: Path) -> None:
    manifest = run(write_inputs(tmp_path / "in"), tiny_tokenizer_path, tmp_path / "out")
    job = IngestJob(
        config=manifest.config,
        tokenizer=manifest.tokenizer,
        num_reads=1_000_000,
        num_input_files=1_000_000,
        num_input_bytes=1 << 50,
        created_by="test",
        work=WorkFolder("gs://bucket/corpus"),
    )
    pipeline = beam.Pipeline(runner="pipelines.local_runner.LocalRunner")
    _ = pipeline | Ingest(job)
    proto = pipeline.to_runner_api()
    assert len(proto.SerializeToString()) < 100_000
    transforms = proto.components.transforms
    (whole,) = (transform for transform in transforms.values() if transform.unique_name == "Ingest")
    assert [transforms[key].unique_name.removeprefix("Ingest/") for key in whole.subtransforms] == [
        "ListReads",
        "FindFinished",
        "FindDuplicates",
        "ReadDocuments",
        "SegmentSentences",
        "TokenizeSentences",
        "WriteCorpus",
        "JoinRecords",
        "WriteManifest",
    ]
    context = beam.runners.pipeline_context.PipelineContext(proto.components)
    for name in ("ReadDocuments", "SegmentSentences"):
        (transform,) = (t for t in transforms.values() if t.unique_name == f"Ingest/{name}")
        (collection,) = transform.outputs.values()
        coder = context.coders.get_by_id(proto.components.pcollections[collection].coder_id)
        assert isinstance(coder, TableBatchCoder)
