from __future__ import annotations

import hashlib
import json
import tarfile
from collections import Counter
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pytest
from tokenizers import Tokenizer

from pipelines import build_steps
from pipelines.build import run_build
from pipelines.tokenizer_files import bert_tokenizer
from schemas.configs import BuildConfig
from schemas.errors import ClozelineError, CorruptDataError, UsageError
from schemas.examples import example_schema
from schemas.manifests import DatasetManifest, parse_manifest
from tests.pipelines.corpora import Document, make_documents, write_corpus

GROUPS = [make_documents(30, ids=range(60, 180), name=f"group {index}") for index in range(6)]
CONFIG = BuildConfig(seed=7, max_seq_length=48, examples_per_block=40)


@pytest.fixture
def corpus(tmp_path: Path, tiny_tokenizer: Tokenizer) -> Path:
    files = {
        "train/a.parquet": GROUPS[:3],
        "train/b.parquet": GROUPS[3:5],
        "validation/a.parquet": GROUPS[5:],
    }
    write_corpus(tmp_path / "corpus", tiny_tokenizer, files)
    return tmp_path / "corpus"


@pytest.fixture
def two_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small corpora are cut into several pools."""
    monkeypatch.setattr("pipelines.pools.MIN_POOL_TOKENS", 8_000)


def build(corpus: Path, output: Path, config: BuildConfig = CONFIG, **settings: object) -> DatasetManifest:
    return run_build(config, str(corpus), str(output), **{"workers": 1, **settings}).manifest


def hashes_of(output: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(output.iterdir())}


def read_examples(output: Path, split: str = "train") -> list[dict]:
    rows = []
    for path in sorted(output.glob(f"{split}-*.tar")):
        with tarfile.open(path) as archive:
            for member in archive:
                content = archive.extractfile(member)
                assert content is not None
                rows += pa.ipc.open_file(content.read()).read_all().to_pylist()
    return rows


def restore(row: dict) -> tuple[list[int], list[int]]:
    """The segments A and B before masking, of a row with a special token at both ends of each."""
    ids = list(row["input_ids"])
    for position, original in zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True):
        ids[position] = original
    cut = row["segment_a_length"]
    return ids[1 : cut - 1], ids[cut:-1]


def is_part_of(tokens: list[int], document: Document) -> bool:
    text = [token for sentence in document for token in sentence]
    return any(text[i : i + len(tokens)] == tokens for i in range(len(text) - len(tokens) + 1))


def test_a_dataset_holds_what_its_manifest_says(corpus: Path, tmp_path: Path, two_pools: None) -> None:
    output = tmp_path / "dataset"

    manifest = build(corpus, output)

    assert parse_manifest(DatasetManifest, (output / "dataset.json").read_bytes(), "") == manifest
    names = [shard.name for shard in manifest.shards]
    assert names == [
        "train-00000-of-00002.tar",
        "train-00001-of-00002.tar",
        "validation-00000-of-00001.tar",
    ]
    assert sorted(path.name for path in output.iterdir()) == ["dataset.json", "tokenizer.json", *names]
    assert (output / "tokenizer.json").read_bytes() == (corpus / "tokenizer.json").read_bytes()
    for shard in manifest.shards:
        content = (output / shard.name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == shard.sha256
        assert len(content) == shard.size_bytes
        with tarfile.open(output / shard.name) as archive:
            stem = shard.name[: -len("-of-00002.tar")]
            assert archive.getnames() == [f"{stem}-{i:06d}.arrow" for i in range(shard.num_blocks)]
    for split in ("train", "validation"):
        shards = manifest.shards_of(split)
        rows = read_examples(output, split)
        labels = Counter(row["next_sentence_label"] for row in rows)
        assert sum(shard.num_examples for shard in shards) == len(rows)
        assert sum(shard.num_tokens for shard in shards) == sum(len(row["input_ids"]) for row in rows)
        assert sum(shard.num_is_next for shard in shards) == labels[0]
        assert sum(shard.num_not_next for shard in shards) == labels[1]
        chosen = sum(len(row["masked_lm_ids"]) for row in rows)
        assert sum(shard.masking.num_chosen_tokens for shard in shards) == chosen
        assert sum(shard.num_documents_unused for shard in shards) == 0
    assert sum(shard.num_documents for shard in manifest.shards_of("train")) == 150
    assert sum(shard.num_documents for shard in manifest.shards_of("validation")) == 30


def test_examples_are_text_of_their_split(corpus: Path, tmp_path: Path, two_pools: None) -> None:
    build(corpus, tmp_path / "dataset")

    for split, groups in (("train", GROUPS[:5]), ("validation", GROUPS[5:])):
        documents = [document for group in groups for document in group]
        rows = read_examples(tmp_path / "dataset", split)
        for row in rows[:60]:
            a, b = restore(row)
            sources_a = [i for i, document in enumerate(documents) if is_part_of(a, document)]
            sources_b = [i for i, document in enumerate(documents) if is_part_of(b, document)]
            assert sources_a
            assert sources_b
            if row["next_sentence_label"] == 0:
                assert set(sources_a) & set(sources_b)


def test_two_workers_and_other_file_names_give_the_same_bytes(
    corpus: Path, tmp_path: Path, tiny_tokenizer: Tokenizer, two_pools: None
) -> None:
    renamed = {
        "train/z.parquet": GROUPS[4:5],
        "train/y.parquet": [GROUPS[3], GROUPS[1]],
        "train/x.parquet": [GROUPS[2], GROUPS[0]],
        "validation/q.parquet": GROUPS[5:],
    }
    write_corpus(tmp_path / "elsewhere", tiny_tokenizer, renamed)

    build(corpus, tmp_path / "one", workers=1)
    build(tmp_path / "elsewhere", tmp_path / "two", workers=2)

    assert hashes_of(tmp_path / "one") == hashes_of(tmp_path / "two")


def test_another_seed_gives_other_pairs_masks_and_order_of_the_same_documents(
    corpus: Path, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    build(corpus, first)
    build(corpus, second, CONFIG.model_copy(update={"seed": 8}))

    assert hashes_of(first)["tokenizer.json"] == hashes_of(second)["tokenizer.json"]
    for split in ("train", "validation"):
        rows, other_rows = read_examples(first, split), read_examples(second, split)
        segments = {tuple(restore(row)[0]) for row in rows}
        other_segments = {tuple(restore(row)[0]) for row in other_rows}
        # Sentences at the start of documents begin an A under every seed; the rest is cut otherwise.
        assert segments != other_segments
        assert segments & other_segments
        masks = {tuple(restore(row)[0]): tuple(row["masked_lm_positions"]) for row in rows}
        other_masks = {tuple(restore(row)[0]): tuple(row["masked_lm_positions"]) for row in other_rows}
        shared = [key for key in masks if key in other_masks and len(key) > 8]
        assert sum(masks[key] != other_masks[key] for key in shared) > len(shared) / 2
        order = [key for key in masks if key in other_masks]
        assert order != [key for key in other_masks if key in masks]
    # Every document of the split, and no other, gives an A under both seeds.
    for output in (first, second):
        sources = [
            {index for index, document in enumerate(GROUPS[5]) if is_part_of(restore(row)[0], document)}
            for row in read_examples(output, "validation")
        ]
        assert all(sources)
        assert set().union(*sources) == set(range(len(GROUPS[5])))


def test_an_interrupted_build_is_finished_and_keeps_what_was_done(
    corpus: Path, tmp_path: Path, two_pools: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = build(corpus, tmp_path / "uninterrupted")
    output = tmp_path / "dataset"
    with monkeypatch.context() as patched:
        patched.setattr(build_steps.CommitDatasetFn, "process", _fail)
        with pytest.raises(ClozelineError, match="no space on the moon"):
            build(corpus, output)
    assert not (output / "dataset.json").exists()
    kept, damaged, lost = (output / shard.name for shard in expected.shards)
    before = kept.stat().st_ino
    damaged.write_bytes(damaged.read_bytes()[:-1])
    lost.unlink()
    calls: list[tuple[int, int]] = []

    manifest = build(corpus, output, progress=lambda done, total: calls.append((done, total)))

    assert manifest == expected
    assert kept.stat().st_ino == before
    assert hashes_of(output) == hashes_of(tmp_path / "uninterrupted")
    assert calls[-1] == (3, 3)


def _fail(self: beam.DoFn, num_finished: int) -> None:
    raise ClozelineError("no space on the moon")


def test_a_failed_shard_leaves_no_file_behind(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_at_the_second_block(self: object, block: pa.RecordBatch, masking: object) -> None:
        raise ClozelineError("the disk is full")

    monkeypatch.setattr("pipelines.shard_record.ShardCounts.add", fail_at_the_second_block)
    output = tmp_path / "dataset"

    with pytest.raises(ClozelineError, match="the disk is full"):
        build(corpus, output)

    assert not list(output.glob("*.tar"))
    assert not list(output.glob("_work/*.tmp"))


def test_a_finished_dataset_is_returned_at_once(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "dataset"
    manifest = build(corpus, output)
    before = {path: path.stat().st_mtime_ns for path in output.iterdir()}

    assert build(corpus, output) == manifest
    assert {path: path.stat().st_mtime_ns for path in output.iterdir()} == before


def test_another_configuration_is_refused_unless_told_to_overwrite(
    corpus: Path, tmp_path: Path, two_pools: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "dataset"
    build(corpus, output)
    monkeypatch.undo()
    other = CONFIG.model_copy(update={"seed": 8})

    with pytest.raises(UsageError, match=r"config\.seed was 7, is now 8[\s\S]*--overwrite"):
        build(corpus, output, other)
    manifest = build(corpus, output, other, overwrite=True)

    assert manifest.config == other
    assert [shard.name for shard in manifest.shards_of("train")] == ["train-00000-of-00001.tar"]
    assert sorted(path.name for path in output.glob("*.tar")) == [shard.name for shard in manifest.shards]


def test_a_shard_does_not_depend_on_other_pools(corpus: Path, tmp_path: Path, two_pools: None) -> None:
    """Every step sees one pool at a time, and its state doesn't outlive the pool."""
    from pipelines.pool_assignment import assign_pools
    from pipelines.pool_reader import read_corpus_manifest
    from pipelines.table_batch import TableBatch

    pools, _ = assign_pools(read_corpus_manifest(str(corpus)), CONFIG)
    read = build_steps.ReadPoolFn(str(corpus), read_corpus_manifest(str(corpus)).tokenizer.vocab_size)
    pair, shuffle = build_steps.SamplePairsFn(CONFIG), build_steps.ShuffleExamplesFn(CONFIG.seed)
    mask = build_steps.MaskTokensFn(CONFIG, str(corpus))
    mask.setup()

    def blocks_of(index: int) -> list[pa.Table]:
        (tokens,) = read.process(pools[index])
        (pairs,) = pair.process(tokens)
        (shuffled,) = shuffle.process(pairs)
        batches: list[TableBatch] = list(mask.process(shuffled))
        assert [batch.sequence for batch in batches] == list(range(len(batches)))
        assert [batch.is_last for batch in batches] == [False] * (len(batches) - 1) + [True]
        return [batch.tables["examples"] for batch in batches]

    forwards = [blocks_of(index) for index in range(3)]
    backwards = [blocks_of(index) for index in reversed(range(3))][::-1]
    assert forwards == backwards


def test_a_vocabulary_of_seventy_thousand(tmp_path: Path) -> None:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [f"w{index}" for index in range(70_000 - 5)]
    tokenizer = bert_tokenizer({token: index for index, token in enumerate(special + words)})
    documents = make_documents(60, ids=range(65_500, 70_000), max_tokens=8)
    write_corpus(tmp_path / "corpus", tokenizer, {"train/a.parquet": [documents]})

    manifest = build(tmp_path / "corpus", tmp_path / "dataset")

    assert manifest.tokenizer.vocab_size == 70_000
    with tarfile.open(tmp_path / "dataset" / manifest.shards[0].name) as archive:
        content = archive.extractfile(archive.getmembers()[0])
        assert content is not None
        table = pa.ipc.open_file(content.read()).read_all()
    assert table.schema.equals(example_schema(70_000))
    assert table.schema.field("input_ids").type.value_type == pa.uint32()
    rows = read_examples(tmp_path / "dataset")
    for row in rows:
        a, b = restore(row)
        assert all(65_500 <= token < 70_000 for token in a + b)
        assert any(is_part_of(a, document) for document in documents)
    assert any(max(row["masked_lm_ids"]) > 65_535 for row in rows)


@pytest.mark.parametrize("objective", ["sentence-order", "mlm"])
def test_other_objectives(corpus: Path, tmp_path: Path, objective: str) -> None:
    manifest = build(corpus, tmp_path / "dataset", CONFIG.model_copy(update={"objective": objective}))

    rows = read_examples(tmp_path / "dataset")
    labels = {row["next_sentence_label"] for row in rows}
    assert labels == ({None} if objective == "mlm" else {0, 1})
    assert all(len(row["input_ids"]) <= 48 for row in rows)
    alone = sum(len(document) == 1 for group in GROUPS[:5] for document in group)
    unused = sum(shard.num_documents_unused for shard in manifest.shards_of("train"))
    assert unused == (0 if objective == "mlm" else alone)
    if objective == "mlm":
        tokens = Counter(token for row in rows for segment in restore(row) for token in segment)
        text = Counter(token for group in GROUPS[:5] for d in group for s in d for token in s)
        assert tokens == text


def test_each_copy_of_a_document_has_masks_of_its_own(corpus: Path, tmp_path: Path) -> None:
    """Full sentences of one length are packed alike in each copy, so that the masks alone can differ."""
    changes = {"objective": "mlm", "short_seq_prob": 0.0, "duplicate_factor": 3}

    build(corpus, tmp_path / "dataset", CONFIG.model_copy(update=changes))

    masks: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for row in read_examples(tmp_path / "dataset"):
        masks.setdefault(tuple(restore(row)[0]), []).append(tuple(row["masked_lm_positions"]))
    long = [copies for tokens, copies in masks.items() if len(tokens) > 40]
    assert len(long) > 80
    assert all(len(copies) == 3 for copies in long)
    # Six of 41 places or more can be chosen in four million ways.
    assert all(len(set(copies)) == 3 for copies in long)


@pytest.mark.parametrize("objective", ["next-sentence", "sentence-order", "mlm"])
def test_examples_of_two_thousand_tokens(tmp_path: Path, tiny_tokenizer: Tokenizer, objective: str) -> None:
    documents = make_documents(8, ids=range(60, 180), max_sentences=400, max_tokens=30, name="long")
    write_corpus(tmp_path / "corpus", tiny_tokenizer, {"train/a.parquet": [documents]})
    config = BuildConfig(max_seq_length=2048, short_seq_prob=0.0, objective=objective)

    build(tmp_path / "corpus", tmp_path / "dataset", config)

    rows = read_examples(tmp_path / "dataset")
    assert max(len(row["input_ids"]) for row in rows) > 2040
    assert all(len(row["input_ids"]) <= 2048 for row in rows)
    assert max(row["masked_lm_positions"][-1] for row in rows) > 2000
    texts = [[token for sentence in document for token in sentence] for document in documents]
    as_bytes = [bytes(text) for text in texts]
    for row in rows:
        num_maskable = len(row["input_ids"]) - (2 if objective == "mlm" else 3)
        assert len(row["masked_lm_ids"]) == min(308, max(1, round(0.15 * num_maskable)))
        for segment in restore(row):
            assert any(bytes(segment) in text for text in as_bytes)


def test_shards_by_choice(corpus: Path, tmp_path: Path) -> None:
    """More shards than the five row groups, and no token lost or doubled."""
    manifest = build(
        corpus, tmp_path / "dataset", CONFIG.model_copy(update={"objective": "mlm", "num_shards": 12})
    )

    assert [shard.name for shard in manifest.shards_of("train")] == [
        f"train-{index:05d}-of-00012.tar" for index in range(12)
    ]
    assert len(manifest.shards_of("validation")) == 2
    assert sum(shard.num_documents for shard in manifest.shards_of("train")) == 150
    found = Counter(
        token for row in read_examples(tmp_path / "dataset") for segment in restore(row) for token in segment
    )
    text = Counter(token for group in GROUPS[:5] for d in group for s in d for token in s)
    assert found == text


def test_examples_a_shard_by_choice(corpus: Path, tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"examples_per_shard": 50, "duplicate_factor": 2})

    manifest = build(corpus, tmp_path / "dataset", config)

    shards = manifest.shards_of("train")
    assert len(shards) > 5
    assert sum(shard.num_examples for shard in shards) / len(shards) == pytest.approx(50, rel=0.15)
    assert manifest.config == config


def test_shards_without_an_example_give_a_warning(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    # Six documents of the same text and one pair that differs.
    documents = [[[70, 71]]] * 6 + [[[72], [73]], [[74], [75]]]
    write_corpus(tmp_path / "corpus", tiny_tokenizer, {"train/a.parquet": [documents]})
    config = CONFIG.model_copy(update={"num_shards": 4})

    result = run_build(config, str(tmp_path / "corpus"), str(tmp_path / "dataset"), workers=1)

    num_shards = len(result.manifest.shards)
    assert 1 <= num_shards < 4
    assert any(f"train has {num_shards} shards, not 4" in warning for warning in result.warnings)


def test_one_document_is_a_clear_error(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    write_corpus(tmp_path / "corpus", tiny_tokenizer, {"train/a.parquet": [[[[70, 71], [72]]]]})

    with pytest.raises(ClozelineError, match="--objective mlm") as caught:
        build(tmp_path / "corpus", tmp_path / "dataset")
    assert len(str(caught.value).splitlines()) <= 2
    assert not (tmp_path / "dataset").exists()

    manifest = build(
        tmp_path / "corpus", tmp_path / "dataset", CONFIG.model_copy(update={"objective": "mlm"})
    )
    assert manifest.num_examples == 1


def test_equal_documents_of_one_sentence_are_a_clear_error(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    write_corpus(tmp_path / "corpus", tiny_tokenizer, {"train/a.parquet": [[[[70, 71]]] * 3]})

    with pytest.raises(ClozelineError, match=r"no document in `train`[\s\S]*the same text"):
        build(tmp_path / "corpus", tmp_path / "dataset")
    assert not list(tmp_path.glob("dataset/*"))


def test_a_validation_split_without_examples_is_left_out(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    files = {"train/a.parquet": GROUPS[:1], "validation/a.parquet": [[[[70, 71]]] * 3]}
    write_corpus(tmp_path / "corpus", tiny_tokenizer, files)

    result = run_build(CONFIG, str(tmp_path / "corpus"), str(tmp_path / "dataset"), workers=1)

    assert {shard.split for shard in result.manifest.shards} == {"train"}
    assert list(result.warnings) == [
        "3 of 33 documents gave no example of their own",
        "no document in validation gave an example: the split is left out",
    ]


def test_labels_out_of_balance_give_a_warning(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    documents = [[[60 + index % 100, 60 + index // 100]] for index in range(2000)]
    write_corpus(tmp_path / "corpus", tiny_tokenizer, {"train/a.parquet": [documents]})

    result = run_build(CONFIG, str(tmp_path / "corpus"), str(tmp_path / "dataset"), workers=1)

    assert any("0.0% of the pairs are IsNext" in warning for warning in result.warnings)


def test_a_missing_corpus(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no corpus at .*corpus\.json is missing"):
        build(tmp_path / "nowhere", tmp_path / "dataset")


def test_an_unfinished_corpus(corpus: Path, tmp_path: Path) -> None:
    (corpus / "corpus.json").unlink()
    (corpus / "_work").mkdir()

    with pytest.raises(UsageError, match=r"isn't finished[\s\S]*clozeline ingest"):
        build(corpus, tmp_path / "dataset")


def test_a_damaged_corpus(corpus: Path, tmp_path: Path) -> None:
    path = corpus / "train/a.parquet"
    path.write_bytes(path.read_bytes()[:-100])

    with pytest.raises(CorruptDataError, match=r"train/a\.parquet"):
        build(corpus, tmp_path / "dataset")
    assert not (tmp_path / "dataset/dataset.json").exists()


def test_a_corpus_made_with_another_tokenizer(corpus: Path, tmp_path: Path) -> None:
    path = corpus / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": "1.1"}))

    with pytest.raises(CorruptDataError, match=r"tokenizer\.json isn't the tokenizer of the corpus"):
        build(corpus, tmp_path / "dataset")


def test_the_corpus_is_no_place_for_the_dataset(corpus: Path) -> None:
    before = hashes_of(corpus / "train")

    with pytest.raises(UsageError, match="--corpus and --output are both"):
        build(corpus, corpus, overwrite=True)
    assert hashes_of(corpus / "train") == before
