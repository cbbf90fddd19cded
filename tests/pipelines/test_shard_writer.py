from __future__ import annotations

import io
import tarfile

import pyarrow as pa

from pipelines.shard_writer import ShardWriter, serialise_block
from schemas.examples import example_schema


def make_block(number: int) -> pa.RecordBatch:
    rows = [
        {
            "input_ids": [2, 4, 7 + number, 3, 9, 3],
            "segment_a_length": 4,
            "masked_lm_positions": [1],
            "masked_lm_ids": [6],
            "next_sentence_label": 0,
        }
    ] * (number + 1)
    return pa.RecordBatch.from_pylist(rows, schema=example_schema(100))


def write_shard(num_blocks: int) -> bytes:
    stream = io.BytesIO()
    writer = ShardWriter(stream, "train-00003")
    for number in range(num_blocks):
        writer.write_block(make_block(number))
    writer.close()
    assert writer.num_blocks == num_blocks
    return stream.getvalue()


def test_members_are_arrow_files_in_order() -> None:
    with tarfile.open(fileobj=io.BytesIO(write_shard(3))) as archive:
        members = archive.getmembers()
        assert [member.name for member in members] == [f"train-00003-00000{i}.arrow" for i in range(3)]
        for number, member in enumerate(members):
            content = archive.extractfile(member)
            assert content is not None
            reader = pa.ipc.open_file(content.read())
            assert reader.num_record_batches == 1
            assert reader.get_batch(0).equals(make_block(number))


def test_members_carry_nothing_of_the_machine() -> None:
    content = write_shard(2)

    assert content[257:263] == b"ustar\x00"
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive.getmembers():
            assert (member.mtime, member.uid, member.gid, member.uname, member.gname) == (0, 0, 0, "", "")
            assert member.mode == 0o644
            assert member.isreg()


def test_the_same_blocks_give_the_same_bytes() -> None:
    assert write_shard(3) == write_shard(3)
    assert len(write_shard(1)) % tarfile.RECORDSIZE == 0


def test_a_slice_of_a_block_holds_only_its_own_examples() -> None:
    block = make_block(99)

    assert serialise_block(block.slice(0, 1)).size < serialise_block(block).size / 2
