"""A small dataset folder, written by Arrow and the standard library's tarfile alone.

It follows `docs/shard-format.md` and nothing of `pipelines`, so that the trainer's tests stand on the format.
"""

from __future__ import annotations

import hashlib
import io
import resource
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from schemas.configs import BuildConfig
from schemas.examples import example_schema
from schemas.manifests import (
    DATASET_MANIFEST_NAME,
    DatasetManifest,
    MaskingCounts,
    ShardRecord,
    Split,
    TokenizerRecord,
    dump_manifest,
)

Example = dict[str, Any]
PAD, UNK, CLS, SEP, MASK = 0, 5, 6, 7, 8
FIRST_WORD = 9


def write_block(examples: Sequence[Example], vocab_size: int) -> bytes:
    """An Arrow IPC file of one record batch."""
    schema = example_schema(vocab_size)
    columns = [pa.array([example[field.name] for example in examples], type=field.type) for field in schema]
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.record_batch(columns, schema=schema))
    return sink.getvalue()


def write_tar(members: Sequence[tuple[str, bytes]]) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(content), 0o644, 0
            archive.addfile(member, io.BytesIO(content))
    return sink.getvalue()


def make_examples(num_examples: int, vocab_size: int, max_seq_length: int, seed: int) -> list[Example]:
    """Random examples of two segments, told from one another by their tokens."""
    draw = np.random.default_rng(seed)
    examples = []
    for _ in range(num_examples):
        length = int(draw.integers(max_seq_length // 2, max_seq_length + 1))
        segment_a_length = int(draw.integers(3, length - 1))
        tokens = draw.integers(FIRST_WORD, vocab_size, length)
        tokens[0], tokens[segment_a_length - 1], tokens[-1] = CLS, SEP, SEP
        maskable = [i for i in range(length) if i not in (0, segment_a_length - 1, length - 1)]
        count = max(1, round(len(maskable) * 0.15))
        positions = sorted(draw.choice(maskable, size=count, replace=False).tolist())
        masked_ids = tokens[positions].tolist()
        tokens[positions] = MASK
        examples.append(
            {
                "input_ids": tokens.tolist(),
                "segment_a_length": segment_a_length,
                "masked_lm_positions": positions,
                "masked_lm_ids": masked_ids,
                "next_sentence_label": int(draw.integers(0, 2)),
            }
        )
    return examples


def write_dataset(
    folder: Path,
    shards: dict[Split, Sequence[Sequence[Example]]],
    *,
    tokenizer_json: bytes,
    vocab_size: int,
    max_seq_length: int = 32,
    examples_per_block: int = 10,
) -> Path:
    """Write a dataset.

    Args:
        folder: made by this.
        shards: for each split the examples of each shard.
        tokenizer_json: the bytes of `tokenizer.json`.
        vocab_size: number of its entries.
        max_seq_length: for the manifest.
        examples_per_block: how shards are cut into blocks.
    """
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_bytes(tokenizer_json)
    records = []
    for split, split_shards in shards.items():
        for number, examples in enumerate(split_shards):
            stem = f"{split}-{number:05d}"
            starts = range(0, len(examples), examples_per_block)
            chunks = [examples[start : start + examples_per_block] for start in starts]
            members = [
                (f"{stem}-{i:06d}.arrow", write_block(chunk, vocab_size)) for i, chunk in enumerate(chunks)
            ]
            content = write_tar(members)
            name = f"{stem}-of-{len(split_shards):05d}.tar"
            (folder / name).write_bytes(content)
            records.append(_record(name, split, content, examples, len(chunks)))
    manifest = DatasetManifest(
        created_by="tests",
        config=BuildConfig(max_seq_length=max_seq_length, examples_per_block=examples_per_block),
        tokenizer=TokenizerRecord(
            sha256=hashlib.sha256(tokenizer_json).hexdigest(),
            vocab_size=vocab_size,
            pad_id=PAD,
            unk_id=UNK,
            cls_id=CLS,
            sep_id=SEP,
            mask_id=MASK,
        ),
        corpus_fingerprint="0" * 64,
        num_examples=sum(record.num_examples for record in records),
        num_tokens=sum(record.num_tokens for record in records),
        shards=tuple(records),
    )
    (folder / DATASET_MANIFEST_NAME).write_bytes(dump_manifest(manifest))
    return folder


def _record(
    name: str, split: Split, content: bytes, examples: Sequence[Example], num_blocks: int
) -> ShardRecord:
    num_tokens = sum(len(example["input_ids"]) for example in examples)
    num_chosen = sum(len(example["masked_lm_ids"]) for example in examples)
    labels = [example["next_sentence_label"] for example in examples]
    return ShardRecord(
        name=name,
        split=split,
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        num_examples=len(examples),
        num_blocks=num_blocks,
        num_tokens=num_tokens,
        num_is_next=labels.count(0),
        num_not_next=labels.count(1),
        masking=MaskingCounts(
            num_maskable_tokens=num_tokens - 3 * len(examples),
            num_chosen_tokens=num_chosen,
            num_masked_tokens=num_chosen,
            num_random_tokens=0,
            num_kept_tokens=0,
        ),
        num_documents=1,
        num_documents_unused=0,
    )


TRAIN_SHARD_SIZES = (47, 60, 33, 52)
VALIDATION_SHARD_SIZES = (25,)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Tests run side by side: threads of torch would only fight for the same cores."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_dataset_path(
    tmp_path_factory: pytest.TempPathFactory, tiny_vocab_size: int, write_tiny_dataset: Callable[..., Path]
) -> Path:
    """A dataset of 192 examples in 4 training shards and 25 held-out ones in one; blocks of 10. Only read it.

    Made for the tokenizer of `tiny_tokenizer_path`; lengths from 16 to 32 tokens.
    """
    shards: dict[Split, Sequence[Sequence[Example]]] = {
        "train": [make_examples(n, tiny_vocab_size, 32, seed) for seed, n in enumerate(TRAIN_SHARD_SIZES)],
        "validation": [make_examples(n, tiny_vocab_size, 32, 99) for n in VALIDATION_SHARD_SIZES],
    }
    return write_tiny_dataset(tmp_path_factory.mktemp("datasets") / "tiny", shards)


@pytest.fixture(scope="session")
def tiny_vocab_size(tiny_tokenizer_path: Path) -> int:
    return len((tiny_tokenizer_path / "vocab.txt").read_text(encoding="utf-8").splitlines())


@pytest.fixture(scope="session")
def write_tiny_dataset(tiny_tokenizer_path: Path, tiny_vocab_size: int) -> Callable[..., Path]:
    """`write_dataset` for the tiny tokenizer: (folder, {split: [[example, …], …]}, **options) -> folder."""
    tokenizer_json = (tiny_tokenizer_path / "tokenizer.json").read_bytes()

    def write(folder: Path, shards: dict[Split, Sequence[Sequence[Example]]], **options: Any) -> Path:
        options = {"tokenizer_json": tokenizer_json, "vocab_size": tiny_vocab_size, **options}
        return write_dataset(folder, shards, **options)

    return write


@pytest.fixture(scope="session")
def make_tiny_examples(tiny_vocab_size: int) -> Callable[[int, int], list[Example]]:
    """(num_examples, seed) -> examples of 16 to 32 tokens for the tiny tokenizer."""

    def make(num_examples: int, seed: int) -> list[Example]:
        return make_examples(num_examples, tiny_vocab_size, 32, seed)

    return make


@pytest.fixture(scope="session")
def encode_block(tiny_vocab_size: int) -> Callable[..., bytes]:
    """(examples, vocab_size=that of the tiny tokenizer) -> the bytes of a block."""

    def encode(examples: Sequence[Example], vocab_size: int = tiny_vocab_size) -> bytes:
        return write_block(examples, vocab_size)

    return encode


@pytest.fixture(scope="session")
def encode_tar() -> Callable[[Sequence[tuple[str, bytes]]], bytes]:
    """[(name, content), …] -> the bytes of a tar."""
    return write_tar


@pytest.fixture
def limit_file_size() -> Iterator[Callable[[int], None]]:
    """(num_bytes): until the test ends no file grows beyond, as if the disk were full from there on."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda num_bytes: resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
