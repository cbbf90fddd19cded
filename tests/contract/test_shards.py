"""What `build` writes is read the same by the trainer, by webdataset, and by tar and Arrow alone."""

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import webdataset as wds
from tokenizers import Tokenizer

from schemas.examples import example_schema, segment_ids
from trainer.data import unblock
from trainer.data.blocks import read_shard
from trainer.data.dataset import Dataset, open_dataset
from trainer.data.loader import iterate_once


@pytest.fixture(scope="module")
def dataset(folder: Path) -> Dataset:
    return open_dataset(str(folder / "dataset"))


def _unblocked(dataset: Dataset) -> list[dict[str, Any]]:
    urls = [dataset.shard_url(shard) for shard in dataset.manifest.shards_of("train")]
    return list(wds.WebDataset(urls, shardshuffle=False).compose(unblock))


def test_tar_and_arrow_alone_are_enough(dataset: Dataset) -> None:
    """The reader that docs/shard-format.md describes, in ten lines."""
    for shard in dataset.manifest.shards:
        num_examples, keys = 0, set()
        with tarfile.open(dataset.shard_url(shard)) as tar:
            for member in tar:
                stream = tar.extractfile(member)
                assert stream is not None
                with pa.ipc.open_file(io.BytesIO(stream.read())) as reader:
                    assert reader.num_record_batches == 1
                    assert reader.schema.equals(example_schema(dataset.manifest.tokenizer.vocab_size))
                    num_examples += reader.get_batch(0).num_rows
                assert member.name.endswith(".arrow")
                keys.add(member.name)
        assert num_examples == shard.num_examples
        assert len(keys) == shard.num_blocks


def test_plain_webdataset_yields_a_sample_a_block(dataset: Dataset) -> None:
    (shard,) = dataset.manifest.shards_of("train")
    samples = list(wds.WebDataset(dataset.shard_url(shard), shardshuffle=False))
    assert len(samples) == shard.num_blocks > 2
    assert len({sample["__key__"] for sample in samples}) == shard.num_blocks
    assert all(isinstance(sample["arrow"], bytes) for sample in samples)


def test_unblock_yields_what_the_trainer_reads(dataset: Dataset) -> None:
    examples = _unblocked(dataset)
    assert len({example["__key__"] for example in examples}) == len(examples)
    rows = [
        row
        for shard in dataset.manifest.shards_of("train")
        for block in read_shard(dataset, shard)
        for row in block.to_pylist()
    ]
    assert len(examples) == len(rows) == sum(s.num_examples for s in dataset.manifest.shards_of("train"))
    for example, row in zip(examples, rows, strict=True):
        for field, value in row.items():
            found = example[field].tolist() if isinstance(example[field], np.ndarray) else example[field]
            assert found == value


def test_batches_hold_the_same_examples(dataset: Dataset) -> None:
    examples = iter(_unblocked(dataset))
    for batch in iterate_once(dataset, "train", 4):
        width = batch.input_ids.shape[1]
        masked = iter(zip(batch.masked_positions.tolist(), batch.masked_ids.tolist(), strict=True))
        for row in range(batch.num_examples):
            example = next(examples)
            length = len(example["input_ids"])
            assert batch.input_ids[row, :length].tolist() == example["input_ids"].tolist()
            assert batch.attention_mask[row].sum() == length
            expected = segment_ids(length, example["segment_a_length"]).tolist()
            assert batch.segment_ids[row, :length].tolist() == expected
            assert batch.next_sentence_labels[row] == example["next_sentence_label"]
            positions, ids = example["masked_lm_positions"].tolist(), example["masked_lm_ids"].tolist()
            assert [next(masked) for _ in positions] == [
                (row * width + position, token) for position, token in zip(positions, ids, strict=True)
            ]
        assert next(masked, None) is None
    assert next(examples, None) is None


def test_unmasked_examples_are_text_of_the_corpus(dataset: Dataset, folder: Path) -> None:
    tokenizer = Tokenizer.from_str(dataset.read_tokenizer().decode())
    tokenizer.encode_special_tokens = True
    text = (folder / "texts.jsonl").read_text().replace('{"text": "', "").replace('"}', "")
    corpus = " ".join(str(token) for token in tokenizer.encode(text, add_special_tokens=False).ids)
    record = dataset.manifest.tokenizer
    for example in _unblocked(dataset):
        ids = example["input_ids"].astype(np.int64)
        ids[example["masked_lm_positions"]] = example["masked_lm_ids"]
        assert not np.isin(ids[1:-1], [record.pad_id, record.cls_id, record.mask_id]).any()
        assert (ids == record.sep_id).sum() == 2
        a, b = ids[1 : example["segment_a_length"] - 1], ids[example["segment_a_length"] : -1]
        assert " ".join(map(str, a)) in corpus
        assert " ".join(map(str, b)) in corpus


def test_the_tokenizer_opens_with_transformers(folder: Path, dataset: Dataset) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(str(folder / "tokenizer"))
    ours = Tokenizer.from_str(dataset.read_tokenizer().decode())
    pair = ("The cat sat on the mat.", "It purred softly.")
    encoded = theirs(*pair)
    assert encoded["input_ids"] == ours.encode(*pair).ids
    assert encoded["token_type_ids"] == ours.encode(*pair).type_ids
    assert theirs.mask_token_id == dataset.manifest.tokenizer.mask_id
