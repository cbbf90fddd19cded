from __future__ import annotations

import hashlib
import os
import random
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from schemas.errors import ClozelineError, CorruptDataError
from schemas.manifests import DatasetManifest, ShardRecord, dump_manifest
from trainer.data import blocks as blocks_module
from trainer.data.blocks import BlockRunReader, iterate_blocks, read_shard
from trainer.data.dataset import Dataset, open_dataset
from trainer.data.example_arrays import arrays_from_blocks

NAME = "train-00001-of-00004.tar"
Encode = Callable[..., bytes]


@pytest.fixture
def folder(tiny_dataset_path: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return shutil.copytree(tiny_dataset_path, tmp_path / "dataset")


def open_shard(folder: Path) -> tuple[Dataset, ShardRecord]:
    dataset = open_dataset(str(folder))
    return dataset, next(shard for shard in dataset.manifest.shards if shard.name == NAME)


def replace_shard(folder: Path, content: bytes, **changes: Any) -> tuple[Dataset, ShardRecord]:
    """Put other bytes in the shard's place, with a manifest that agrees: the work of somebody malicious."""
    (folder / NAME).write_bytes(content)
    dataset, shard = open_shard(folder)
    changes = {"sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content), **changes}
    changed = shard.model_copy(update=changes)
    shards = tuple(changed if other is shard else other for other in dataset.manifest.shards)
    manifest = DatasetManifest.model_construct(**{**dict(dataset.manifest), "shards": shards})
    (folder / "dataset.json").write_bytes(dump_manifest(manifest))
    return open_shard(folder)


def test_a_shard_has_the_blocks_that_its_record_says(folder: Path) -> None:
    dataset, shard = open_shard(folder)
    assert [block.num_rows for block in read_shard(dataset, shard)] == [10] * 6
    first = dataset.manifest.shards[0]
    assert [block.num_rows for block in iterate_blocks(dataset, first)] == [10, 10, 10, 10, 7]


def test_the_contents_are_those_that_were_written(
    folder: Path, make_tiny_examples: Callable[[int, int], list[dict[str, Any]]]
) -> None:
    dataset, shard = open_shard(folder)
    rows = [row for block in read_shard(dataset, shard) for row in block.to_pylist()]
    assert rows == make_tiny_examples(60, 1)


class TestDamage:
    @pytest.mark.parametrize("num_bytes", [0, 1, 511, 5000, -512, -1])
    def test_truncated(self, folder: Path, num_bytes: int) -> None:
        content = (folder / NAME).read_bytes()
        (folder / NAME).write_bytes(content[:num_bytes])
        with pytest.raises(
            CorruptDataError, match=rf"{NAME} is truncated: it has [\d,]+ bytes, the manifest says"
        ):
            read_shard(*open_shard(folder))

    def test_longer(self, folder: Path) -> None:
        with (folder / NAME).open("ab") as file:
            file.write(b"more")
        with pytest.raises(CorruptDataError, match=f"{NAME} was changed: it has"):
            read_shard(*open_shard(folder))

    def test_missing(self, folder: Path) -> None:
        (folder / NAME).unlink()
        with pytest.raises(CorruptDataError, match=f"{NAME} is missing, though the manifest lists it"):
            read_shard(*open_shard(folder))

    def test_a_folder_in_its_place(self, folder: Path) -> None:
        (folder / NAME).unlink()
        (folder / NAME).mkdir()
        with pytest.raises(ClozelineError, match=NAME):
            read_shard(*open_shard(folder))

    def test_one_changed_token(self, folder: Path) -> None:
        content = bytearray((folder / NAME).read_bytes())
        dataset, shard = open_shard(folder)
        ids = read_shard(dataset, shard)[0].column("input_ids").values.to_numpy()
        place = content.index(ids[:12].tobytes())
        content[place] = 9 if content[place] != 9 else 10
        (folder / NAME).write_bytes(content)
        with pytest.raises(CorruptDataError, match=f"{NAME} was changed: its SHA-256 is"):
            read_shard(dataset, shard)
        assert len(read_shard(dataset, shard, verify=False)) == 6

    @pytest.mark.parametrize(
        ("changes", "complaint"), [({"num_blocks": 5}, "more"), ({"num_blocks": 7}, "6")]
    )
    def test_another_number_of_blocks(self, folder: Path, changes: dict[str, int], complaint: str) -> None:
        dataset, shard = open_shard(folder)
        changed = shard.model_copy(update={**changes, "num_examples": 10 * changes["num_blocks"]})
        with pytest.raises(CorruptDataError, match=f"{NAME} holds {complaint} blocks; the manifest says"):
            read_shard(dataset, changed)

    def test_a_gigantic_size_in_the_manifest_allocates_nothing(self, folder: Path) -> None:
        dataset, shard = replace_shard(folder, (folder / NAME).read_bytes(), size_bytes=1 << 60)
        tracemalloc.start()
        with pytest.raises(CorruptDataError, match="is truncated"):
            read_shard(dataset, shard)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
        tracemalloc.stop()

    def test_a_block_of_rubbish_under_a_manifest_that_agrees(
        self, folder: Path, encode_tar: Callable[[list[tuple[str, bytes]]], bytes]
    ) -> None:
        content = encode_tar([(f"b{i}.arrow", b"cos\nsystem\n(S'true'\ntR.") for i in range(6)])
        with pytest.raises(CorruptDataError, match=f"{NAME}: block 0 is no valid block"):
            read_shard(*replace_shard(folder, content))

    def test_a_pipe_in_its_place_is_not_waited_for(self, folder: Path) -> None:
        dataset, shard = replace_shard(folder, b"")
        (folder / NAME).unlink()
        os.mkfifo(folder / NAME)
        with pytest.raises(CorruptDataError, match=f"{NAME} can't be a shard: the manifest says 0 bytes"):
            read_shard(dataset, shard)


class TestRuns:
    @pytest.mark.parametrize(("first", "num_blocks"), [(0, 6), (0, 2), (2, 3), (5, 1)])
    def test_a_run_is_a_slice_of_the_shard_at_first_and_later(
        self, folder: Path, first: int, num_blocks: int
    ) -> None:
        dataset, shard = open_shard(folder)
        expected = read_shard(dataset, shard)[first : first + num_blocks]
        reader = BlockRunReader()
        for _ in range(2):
            assert reader.read_run(dataset, shard, first, num_blocks) == expected

    def test_the_first_run_verifies_the_whole_shard(self, folder: Path) -> None:
        dataset, shard = open_shard(folder)
        content = bytearray((folder / NAME).read_bytes())
        content[-20_000] ^= 1
        (folder / NAME).write_bytes(content)
        with pytest.raises(CorruptDataError):
            BlockRunReader().read_run(dataset, shard, 0, 1)

    def test_later_runs_read_their_blocks_only(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        dataset, shard = open_shard(folder)
        reader = BlockRunReader()
        reader.read_run(dataset, shard, 0, 1)
        monkeypatch.setattr(blocks_module, "_iterate_members", None)
        assert len(reader.read_run(dataset, shard, 3, 2)) == 2

    def test_a_shard_that_changes_later_is_found(self, folder: Path) -> None:
        dataset, shard = open_shard(folder)
        reader = BlockRunReader()
        reader.read_run(dataset, shard, 0, 1)
        (folder / NAME).write_bytes(bytes(shard.size_bytes))
        with pytest.raises(CorruptDataError, match="was changed while it was in use"):
            reader.read_run(dataset, shard, 3, 2)
        (folder / NAME).unlink()
        with pytest.raises(CorruptDataError, match="is missing"):
            reader.read_run(dataset, shard, 3, 2)


def mutate(content: bytes, draw: random.Random) -> bytes:
    """Flip bits, overwrite words by extreme values, cut, insert or move."""
    changed = bytearray(content)
    for _ in range(draw.choice([1, 1, 2, 8])):
        place = draw.randrange(len(changed))
        kind = draw.randrange(5)
        if kind == 0:
            changed[place] ^= 1 << draw.randrange(8)
        elif kind == 1:
            word = draw.choice([-1, 0, 1, 2**31 - 1, -(2**31), 2**62, -(2**63), draw.randrange(2**40)])
            place = place // 4 * 4
            changed[place : place + 8] = word.to_bytes(8, "little", signed=True)
        elif kind == 2:
            del changed[place : place + draw.choice([1, 8, 64, 512])]
        elif kind == 3:
            changed[place:place] = draw.randbytes(draw.choice([1, 8, 64, 512]))
        else:
            start = draw.randrange(len(changed))
            changed[place : place + 16] = changed[start : start + 16]
        if not changed:
            break
    return bytes(changed)


@pytest.mark.parametrize("seed", range(8))
def test_no_mutation_gets_through_or_crashes(
    folder: Path,
    make_tiny_examples: Callable[[int, int], list[dict[str, Any]]],
    encode_block: Encode,
    encode_tar: Callable[[list[tuple[str, bytes]]], bytes],
    seed: int,
) -> None:
    # Under a manifest that agrees with the mutated bytes: a CorruptDataError with the shard's name, or
    # examples whose every index is in range; never another exception, never memory far beyond the shard's.
    draw = random.Random(seed)
    most_memory = pa.default_memory_pool().max_memory()
    block = encode_block(make_tiny_examples(10, seed))
    for number in range(60):
        if number % 4:
            content = encode_tar([("a.arrow", mutate(block, draw))])
        else:
            content = mutate(encode_tar([("a.arrow", block)]), draw)
        dataset, shard = open_shard(folder)
        (folder / NAME).write_bytes(content)
        changes = {"size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        shard = shard.model_copy(update={**changes, "num_blocks": 1, "num_examples": 10})
        complaint = None
        try:
            examples = arrays_from_blocks(read_shard(dataset, shard))
        except CorruptDataError as error:
            complaint = str(error)
        if complaint is not None:
            assert NAME in complaint
            assert len(complaint.splitlines()) <= 2
            continue
        assert len(examples) == 10
        assert examples.input_ids.max() < dataset.manifest.tokenizer.vocab_size
        assert examples.masked_lm_ids.max(initial=0) < dataset.manifest.tokenizer.vocab_size
        assert (examples.starts + examples.lengths <= len(examples.input_ids)).all()
    assert pa.default_memory_pool().max_memory() <= max(most_memory, 4 << 20)
