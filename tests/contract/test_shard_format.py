"""A reader written from docs/shard-format.md alone: the standard library, NumPy and pyarrow, nothing of ours.

What it checks is what that page says of the bytes; a change of either shows here.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "shard-format.md"
SPECIAL_IDS = ("pad_id", "unk_id", "cls_id", "sep_id", "mask_id")


@pytest.fixture(scope="module")
def dataset(folder: Path) -> Path:
    return folder / "dataset"


@pytest.fixture(scope="module")
def manifest(dataset: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((dataset / "dataset.json").read_text(encoding="utf-8"))
    return content


def _members(shard: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(shard, format=tarfile.USTAR_FORMAT) as archive:
        return [(member, stream.read()) for member in archive if (stream := archive.extractfile(member))]


def _blocks(dataset: Path, manifest: dict[str, Any]) -> list[pa.RecordBatch]:
    return [
        pa.ipc.open_file(io.BytesIO(content)).get_batch(0)
        for shard in manifest["shards"]
        for _, content in _members(dataset / shard["name"])
    ]


def test_the_folder_holds_what_the_manifest_lists(dataset: Path, manifest: dict[str, Any]) -> None:
    assert (manifest["format"], manifest["version"]) == ("clozeline-dataset", 1)
    names = [shard["name"] for shard in manifest["shards"]]
    assert sorted(path.name for path in dataset.iterdir()) == sorted(
        ["dataset.json", "tokenizer.json", *names]
    )
    splits = [shard["split"] for shard in manifest["shards"]]
    assert set(splits) == {"train", "validation"}
    for name, split in zip(names, splits, strict=True):
        assert re.fullmatch(rf"{split}-\d{{5}}-of-\d{{5}}\.tar", name)
    for shard in manifest["shards"]:
        content = (dataset / shard["name"]).read_bytes()
        assert (hashlib.sha256(content).hexdigest(), len(content)) == (shard["sha256"], shard["size_bytes"])


@pytest.mark.parametrize("name", ["dataset/dataset.json", "corpus/corpus.json"])
def test_a_manifest_has_the_checksum_of_its_other_fields(folder: Path, name: str) -> None:
    content = (folder / name).read_text(encoding="utf-8")
    fields = json.loads(content)
    assert content == json.dumps(fields, sort_keys=True, indent=1) + "\n"
    checksum = fields.pop("checksum")
    compact = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    assert checksum == hashlib.sha256(compact.encode()).hexdigest()


def test_the_tokenizer_is_the_one_of_the_manifest(dataset: Path, manifest: dict[str, Any]) -> None:
    content = (dataset / "tokenizer.json").read_bytes()
    record = manifest["tokenizer"]
    assert hashlib.sha256(content).hexdigest() == record["sha256"]
    vocabulary = json.loads(content)["model"]["vocab"]
    assert len(vocabulary) == record["vocab_size"]
    tokens = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    assert [record[name] for name in SPECIAL_IDS] == [vocabulary[token] for token in tokens]


def test_a_shard_is_a_tar_of_blocks_in_order(dataset: Path, manifest: dict[str, Any]) -> None:
    size = manifest["config"]["examples_per_block"]
    for shard in manifest["shards"]:
        assert (dataset / shard["name"]).read_bytes()[257:263] == b"ustar\0"
        members = _members(dataset / shard["name"])
        stem = shard["name"].split("-of-")[0]
        assert [member.name for member, _ in members] == [
            f"{stem}-{number:06d}.arrow" for number in range(shard["num_blocks"])
        ]
        for member, _ in members:
            assert member.isreg()
            assert (member.mtime, member.uid, member.gid, member.mode) == (0, 0, 0, 0o644)
        sizes = [pa.ipc.open_file(io.BytesIO(content)).get_batch(0).num_rows for _, content in members]
        assert sizes[:-1] == [size] * (len(sizes) - 1)
        assert 1 <= sizes[-1] <= size
        assert sum(sizes) == shard["num_examples"]


def test_a_block_is_an_uncompressed_arrow_file_of_these_columns(
    dataset: Path, manifest: dict[str, Any]
) -> None:
    for shard in manifest["shards"]:
        for _, content in _members(dataset / shard["name"]):
            assert content.startswith(b"ARROW1")
            assert content.endswith(b"ARROW1")
            reader = pa.ipc.open_file(io.BytesIO(content))
            assert reader.num_record_batches == 1
            columns = [(field.name, str(field.type), field.nullable) for field in reader.schema]
            assert columns == [
                ("input_ids", "list<item: uint16 not null>", False),
                ("segment_a_length", "uint16", False),
                ("masked_lm_positions", "list<item: uint16 not null>", False),
                ("masked_lm_ids", "list<item: uint16 not null>", False),
                ("next_sentence_label", "uint8", True),
            ]
            # Uncompressed, the ids stand in the file as they are.
            ids = reader.get_batch(0).column("input_ids").flatten().to_numpy()
            assert ids.astype("<u2").tobytes() in content


def test_a_row_is_laid_out_as_the_page_says(dataset: Path, manifest: dict[str, Any]) -> None:
    pad, _, cls, sep, mask = (manifest["tokenizer"][name] for name in SPECIAL_IDS)
    rows = [row for block in _blocks(dataset, manifest) for row in block.to_pylist()]
    assert len(rows) == manifest["num_examples"]
    assert sum(len(row["input_ids"]) for row in rows) == manifest["num_tokens"]
    for row in rows:
        ids, cut, positions = row["input_ids"], row["segment_a_length"], row["masked_lm_positions"]
        assert len(ids) <= manifest["config"]["max_seq_length"]
        assert [place for place, token in enumerate(ids) if token in (cls, sep)] == [0, cut - 1, len(ids) - 1]
        assert (ids[0], ids[cut - 1], ids[-1]) == (cls, sep, sep)
        assert pad not in ids
        assert positions
        assert positions == sorted(set(positions))
        assert {0, cut - 1, len(ids) - 1}.isdisjoint(positions)
        assert len(row["masked_lm_ids"]) == len(positions)
        assert {place for place, token in enumerate(ids) if token == mask} <= set(positions)
        assert row["next_sentence_label"] in (0, 1)
    assert {row["next_sentence_label"] for row in rows} == {0, 1}


def test_a_row_group_of_the_corpus_has_the_digest_of_its_tokens(folder: Path) -> None:
    corpus = folder / "corpus"
    manifest = json.loads((corpus / "corpus.json").read_text(encoding="utf-8"))
    num_documents = 0
    for file in manifest["files"]:
        parquet = pq.ParquetFile(corpus / file["name"])
        schema = parquet.schema_arrow
        assert schema.names == ["document_id", "token_ids", "sentence_lengths"]
        assert schema.field("document_id").type == pa.string()
        assert schema.field("token_ids").type.value_type == pa.uint16()
        assert schema.field("sentence_lengths").type.value_type == pa.int32()
        for index, group in enumerate(file["row_groups"]):
            rows = parquet.read_row_group(index).to_pylist()
            num_documents += len(rows)
            ids = [token for row in rows for token in row["token_ids"]]
            lengths = [length for row in rows for length in row["sentence_lengths"]]
            content = np.array(ids, "<u4").tobytes() + np.array(lengths, "<i4").tobytes()
            content += np.array([len(row["sentence_lengths"]) for row in rows], "<i4").tobytes()
            assert hashlib.blake2b(content, digest_size=8).hexdigest() == group["digest"]
            assert all(sum(row["sentence_lengths"]) == len(row["token_ids"]) for row in rows)
            assert 0 not in lengths
    assert num_documents == manifest["num_documents"] == 60


def test_every_name_that_the_page_gives_is_there(manifest: dict[str, Any]) -> None:
    """Fields of the manifest and columns of a block, as the page spells them in its tables."""
    named = set(re.findall(r"^\| (`[^|]+) \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE))
    words = {word for cell in named for word in re.findall(r"`([^`]+)`", cell)}
    columns = {"input_ids", "segment_a_length", "masked_lm_positions", "masked_lm_ids", "next_sentence_label"}
    corpus_columns = {"document_id", "token_ids", "sentence_lengths"}
    config = {f"config.{name}" for name in manifest["config"]}
    assert columns | corpus_columns <= words
    assert words - columns - corpus_columns <= {*manifest, *config, "shards[]"}
