from collections import Counter
from pathlib import Path

import pytest

from schemas.errors import CorruptDataError
from trainer.data.blocks import read_shard
from trainer.data.dataset import Dataset, open_dataset
from workflows.report.dataset_sample import DatasetSample, sample_dataset
from workflows.report.opening import read_vocabulary


@pytest.fixture
def dataset(folders: Path) -> Dataset:
    return open_dataset(str(folders / "dataset"))


def _sample(dataset: Dataset, sample_tokens: int) -> DatasetSample:
    return sample_dataset(dataset, read_vocabulary(dataset), sample_tokens, lambda done, total: None)


def test_everything_counted_one_by_one(dataset: Dataset) -> None:
    sample = _sample(dataset, 10**9)
    special = set(dataset.manifest.tokenizer.special_ids) - {dataset.manifest.tokenizer.unk_id}
    tokens: Counter[int] = Counter()
    lengths: Counter[int] = Counter()
    second: Counter[int] = Counter()
    for shard in dataset.manifest.shards:
        for example in [row for block in read_shard(dataset, shard) for row in block.to_pylist()]:
            ids = example["input_ids"]
            for position, original in zip(
                example["masked_lm_positions"], example["masked_lm_ids"], strict=True
            ):
                ids[position] = original
            tokens.update(token for token in ids if token not in special)
            lengths[len(ids)] += 1
            second[len(ids) - example["segment_a_length"] - 1] += 1
    name = read_vocabulary(dataset).name
    unknown = dataset.manifest.tokenizer.unk_id
    assert sample.tokens.num_unknown == tokens.pop(unknown)
    assert sample.tokens.num_tokens == tokens.total() + sample.tokens.num_unknown
    assert {t.token: t.count for t in sample.tokens.most_frequent(1000)} == {
        name(token): count for token, count in tokens.items()
    }
    for tally, expected in ((sample.lengths, lengths), (sample.segment_b, second)):
        assert {
            n: tally.count_between(n, n + 1) for n in range(60) if tally.count_between(n, n + 1)
        } == expected
    assert sample.num_blocks_read == sample.num_blocks == sum(s.num_blocks for s in dataset.manifest.shards)
    assert sample.num_examples_read == dataset.manifest.num_examples
    # [CLS] and two [SEP] belong to no segment.
    assert sample.segment_a.mean + sample.segment_b.mean + 3 == pytest.approx(sample.lengths.mean)


def test_a_sample_reads_no_more_than_it_says(dataset: Dataset) -> None:
    calls: list[tuple[int, int]] = []
    vocabulary = read_vocabulary(dataset)
    sample = sample_dataset(dataset, vocabulary, 100, lambda done, total: calls.append((done, total)))
    # A block of each split.
    assert (sample.num_blocks_read, sample.num_shards_read) == (2, 2)
    assert sample.num_examples_read == sample.lengths.num_things <= 32 < dataset.manifest.num_examples
    assert calls == [(1, 2), (2, 2)]


def test_a_damaged_block_is_an_error(folders: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(folders / "dataset", tmp_path / "dataset")
    shard = tmp_path / "dataset" / "train-00000-of-00001.tar"
    content = bytearray(shard.read_bytes())
    content[0:5] = b"wrong"
    shard.write_bytes(content)
    with pytest.raises(CorruptDataError, match="train-00000"):
        _sample(open_dataset(str(tmp_path / "dataset")), 10**9)
