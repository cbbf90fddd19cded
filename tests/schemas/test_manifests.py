"""Manifests: what is refused, what the counts must add up to, and the exported JSON Schemas."""

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.configs import BuildConfig, IngestConfig
from schemas.errors import CorruptDataError
from schemas.manifests import (
    CorpusFile,
    CorpusManifest,
    DatasetManifest,
    MaskingCounts,
    RowGroup,
    ShardRecord,
    TokenizerRecord,
    dump_manifest,
    manifest_json_schema,
    parse_manifest,
)
from schemas.sealing import seal_json

TOKENIZER = TokenizerRecord(
    sha256="a" * 64, vocab_size=100, pad_id=0, unk_id=1, cls_id=2, sep_id=3, mask_id=4
)
SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


def corpus_manifest() -> CorpusManifest:
    group = RowGroup(digest="0" * 16, num_documents=3, num_sentences=5, num_tokens=40)
    return CorpusManifest(
        created_by="clozeline 0.1.0",
        config=IngestConfig(inputs=("a.txt",)),
        tokenizer=TOKENIZER,
        num_input_files=1,
        num_input_bytes=300,
        num_documents_read=4,
        num_documents=3,
        num_rejected=1,
        rejected={"empty": 1},
        num_sentences=5,
        num_tokens=40,
        num_text_bytes=290,
        files=(
            CorpusFile(
                name="train/a.parquet", split="train", sha256="b" * 64, size_bytes=9, row_groups=(group,)
            ),
        ),
    )


def dataset_manifest() -> DatasetManifest:
    counts = MaskingCounts(
        num_maskable_tokens=40,
        num_chosen_tokens=6,
        num_masked_tokens=4,
        num_random_tokens=1,
        num_kept_tokens=1,
    )
    shard = ShardRecord(
        name="train-00000-of-00001.tar",
        split="train",
        sha256="c" * 64,
        size_bytes=10,
        num_examples=1001,
        num_blocks=2,
        num_tokens=46,
        num_is_next=500,
        num_not_next=501,
        expected_not_next=500.5,
        masking=counts,
        num_documents=3,
        num_documents_unused=0,
    )
    return DatasetManifest(
        created_by="clozeline 0.1.0",
        config=BuildConfig(),
        tokenizer=TOKENIZER,
        corpus_fingerprint="d" * 64,
        num_examples=1001,
        num_tokens=46,
        shards=(shard,),
    )


@pytest.mark.parametrize("manifest", [corpus_manifest(), dataset_manifest()], ids=["corpus", "dataset"])
def test_a_manifest_survives_writing_and_reading(manifest: CorpusManifest | DatasetManifest) -> None:
    content = dump_manifest(manifest)
    assert parse_manifest(type(manifest), content, "x") == manifest
    assert content.endswith(b"}\n")


def test_the_checksum_is_that_of_the_other_fields_as_compact_json() -> None:
    raw = json.loads(dump_manifest(dataset_manifest()))
    checksum = raw.pop("checksum")
    compact = json.dumps(raw, sort_keys=True, separators=(",", ":")).encode()
    assert checksum == hashlib.sha256(compact).hexdigest()


@settings(deadline=None)
@given(st.data())
@pytest.mark.parametrize("kind", [CorpusManifest, DatasetManifest])
def test_a_flipped_bit_anywhere_is_found(
    kind: type[CorpusManifest] | type[DatasetManifest], data: st.DataObject
) -> None:
    manifest = corpus_manifest() if kind is CorpusManifest else dataset_manifest()
    # The number and the name have another spelling one bit away: 1E-05, "\\u00E9.txt".
    changes = {"masked_lm_prob": 1e-05} if kind is DatasetManifest else {"inputs": ("\u00e9.txt",)}
    manifest = manifest.model_copy(update={"config": manifest.config.model_copy(update=changes)})
    content = bytearray(dump_manifest(manifest))
    assert parse_manifest(kind, bytes(content), "x") == manifest
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptDataError, match=r"^folder/manifest"):
        parse_manifest(kind, bytes(content), "folder/manifest")


@pytest.mark.parametrize(("old", "new"), [(b"1e-05", b"1E-05"), (b"\n", b"\r\n"), (b' "', b'"')])
def test_another_spelling_of_the_same_values_is_found(old: bytes, new: bytes) -> None:
    config = BuildConfig(masked_lm_prob=1e-05)
    content = dump_manifest(dataset_manifest().model_copy(update={"config": config}))
    assert old in content
    with pytest.raises(CorruptDataError, match=r"d/dataset\.json was changed after it was written"):
        parse_manifest(DatasetManifest, content.replace(old, new), "d/dataset.json")


def test_an_edited_value_is_found_unless_the_manifest_is_sealed_anew() -> None:
    raw = json.loads(dump_manifest(dataset_manifest()))
    raw["shards"][0]["num_is_next"] = 499
    edited = (json.dumps(raw, indent=1, sort_keys=True) + "\n").encode()
    with pytest.raises(CorruptDataError, match=r"d/dataset\.json was changed .*\nCopy it anew, or make it"):
        parse_manifest(DatasetManifest, edited, "d/dataset.json")
    assert parse_manifest(DatasetManifest, seal_json(raw), "d").shards[0].num_is_next == 499


@pytest.mark.parametrize("manifest", [corpus_manifest(), dataset_manifest()], ids=["corpus", "dataset"])
def test_a_manifest_without_a_checksum_is_refused(manifest: CorpusManifest | DatasetManifest) -> None:
    raw = json.loads(dump_manifest(manifest))
    del raw["checksum"]
    with pytest.raises(CorruptDataError, match=r"^a/b\.json has no checksum: .*\n.*make it anew with `cloz"):
        parse_manifest(type(manifest), json.dumps(raw).encode(), "a/b.json")


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../x.tar", "a/../../x", "pipe:cat x", "gs://b/x", "a\\b", "", ".", "a//b", "a\nb"],
)
def test_a_shard_name_that_could_lead_elsewhere_is_refused(name: str) -> None:
    raw = json.loads(dump_manifest(dataset_manifest()))
    raw["shards"][0]["name"] = name
    with pytest.raises(CorruptDataError, match=r"d/dataset\.json is no valid DatasetManifest: shards"):
        parse_manifest(DatasetManifest, json.dumps(raw).encode(), "d/dataset.json")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_rejected", 2),
        ("num_documents_read", 5),
        ("num_documents", 4),
        ("num_tokens", 41),
        ("version", 2),
    ],
)
def test_a_corpus_whose_counts_do_not_add_up_is_refused(field: str, value: int) -> None:
    raw = json.loads(dump_manifest(corpus_manifest()))
    raw[field] = value
    with pytest.raises(CorruptDataError, match=field):
        parse_manifest(CorpusManifest, json.dumps(raw).encode(), "c/corpus.json")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"{}", b"[" * 5000])
def test_bytes_that_are_no_manifest_are_refused(content: bytes) -> None:
    with pytest.raises(CorruptDataError):
        parse_manifest(DatasetManifest, content, "d/dataset.json")


def test_the_number_of_blocks_follows_from_the_number_of_examples() -> None:
    raw = json.loads(dump_manifest(dataset_manifest()))
    raw["shards"][0]["num_blocks"] = 3
    with pytest.raises(CorruptDataError, match="num_blocks"):
        parse_manifest(DatasetManifest, json.dumps(raw).encode(), "d")


def test_the_fingerprint_depends_on_tokens_and_not_on_file_names() -> None:
    manifest = corpus_manifest()
    renamed = manifest.files[0].model_copy(update={"name": "train/b.parquet", "sha256": "e" * 64})
    assert manifest.model_copy(update={"files": (renamed,)}).fingerprint == manifest.fingerprint
    group = manifest.files[0].row_groups[0].model_copy(update={"digest": "1" * 16})
    changed = manifest.files[0].model_copy(update={"row_groups": (group,)})
    assert manifest.model_copy(update={"files": (changed,)}).fingerprint != manifest.fingerprint


@pytest.mark.parametrize("ids", [(0, 1, 2, 3, 3), (0, 1, 2, 3, 100)], ids=["repeated", "out of range"])
def test_special_ids_are_distinct_and_in_the_vocabulary(ids: tuple[int, ...]) -> None:
    names = ("pad_id", "unk_id", "cls_id", "sep_id", "mask_id")
    with pytest.raises(ValueError, match="special ids"):
        TokenizerRecord(sha256="a" * 64, vocab_size=100, **dict(zip(names, ids, strict=True)))


@pytest.mark.parametrize("kind", [CorpusManifest, DatasetManifest])
def test_the_exported_json_schema_is_current(kind: type[CorpusManifest] | type[DatasetManifest]) -> None:
    name = "corpus" if kind is CorpusManifest else "dataset"
    exported = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    assert exported == manifest_json_schema(kind), "run `make golden` to export it anew"
