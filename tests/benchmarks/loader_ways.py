"""Ways from stored examples to batches, for comparison: each is read in a fresh process on one core.

In: a way's name and where its examples lie. Out: batches, counted; or their fingerprint. All ways hold the
same examples and make `Batch`es of the same tensors. The others read in stored order, without the
permutation that clozeline's loader makes, and collate by the plain loop that users of such libraries write.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.benchmarks.measuring import Watch
from tests.benchmarks.training_data import take_shards
from trainer.data.batches import Batch
from trainer.data.blocks import iterate_blocks
from trainer.data.dataset import Dataset, open_dataset
from trainer.data.loader import StreamingLoader

BATCH_SIZE = 256
OTHERS = ("WebDataset of .npy", "datasets", "mosaicml-streaming")
_MODULES = {"WebDataset of .npy": "webdataset", "datasets": "datasets", "mosaicml-streaming": "streaming"}
_FIELDS = ("input_ids", "segment_a_length", "masked_lm_positions", "masked_lm_ids", "next_sentence_label")
_ROWS = 256

Sample = Mapping[str, Any]
Source = Callable[[], Iterator[Batch]]


def is_installed(way: str) -> bool:
    """Whether the library of a way can be found."""
    return importlib.util.find_spec(_MODULES[way]) is not None


def write_examples(watch: Watch, way: str, dataset: str, num_examples: int, folder: str) -> None:
    """Write the head of a dataset in the form of another way; into a folder of the way's own."""
    head = take_shards(open_dataset(dataset), num_examples)
    with watch:
        {
            "WebDataset of .npy": _write_webdataset,
            "datasets": _write_datasets,
            "mosaicml-streaming": _write_streaming,
        }[way](_iterate_examples(head), folder)


def read_batches(watch: Watch, way: str, source: str, num_examples: int, num_passes: int) -> dict[str, int]:
    """Go through the examples of a way; imports are not counted.

    Args:
        watch: counts all else, opening what is read included.
        way: `padded`, `packed`, or one of `OTHERS`.
        source: a dataset, or a folder that `write_examples` filled.
        num_examples: of the dataset's head.
        num_passes: how often to go through them.
    """
    open_batches = _prepare(way, source, num_examples)
    total = 0
    with watch:
        for batch in open_batches(num_passes):
            total += batch.num_examples
    return {"num_examples": total}


def fingerprint_batches(
    watch: Watch, way: str, source: str, num_examples: int, pad_id: int = 0
) -> dict[str, int]:
    """What the batches of one pass hold: the sum of the hashes of their examples, in whatever order."""
    open_batches = _prepare(way, source, num_examples)
    total, count = 0, 0
    with watch:
        for batch in open_batches(1):
            hashes = [
                int.from_bytes(hashlib.blake2b(one, digest_size=8).digest()) for one in _examples_of(batch)
            ]
            total, count = (total + sum(hashes)) % (1 << 64), count + len(hashes)
    return {"num_examples": count, "fingerprint": total}


def collate(samples: Sequence[Sample], pad_id: int = 0) -> Batch:
    """A padded batch by a loop over its examples."""
    lengths = [len(sample["input_ids"]) for sample in samples]
    shape = (len(samples), max(lengths))
    input_ids = np.full(shape, pad_id, dtype=np.int64)
    segment_ids = np.zeros(shape, dtype=np.int64)
    attention_mask = np.zeros(shape, dtype=np.bool_)
    positions, masked_ids = [], []
    for row, (sample, length) in enumerate(zip(samples, lengths, strict=True)):
        input_ids[row, :length] = sample["input_ids"]
        segment_ids[row, int(sample["segment_a_length"]) : length] = 1
        attention_mask[row, :length] = True
        positions.append(np.asarray(sample["masked_lm_positions"], dtype=np.int64) + row * shape[1])
        masked_ids.append(np.asarray(sample["masked_lm_ids"], dtype=np.int64))
    labels = [int(sample["next_sentence_label"]) for sample in samples]
    return Batch(
        input_ids=torch.from_numpy(input_ids),
        segment_ids=torch.from_numpy(segment_ids),
        attention_mask=torch.from_numpy(attention_mask),
        lengths=torch.tensor(lengths),
        masked_positions=torch.from_numpy(np.concatenate(positions)),
        masked_ids=torch.from_numpy(np.concatenate(masked_ids)),
        next_sentence_labels=torch.tensor(labels),
        num_tokens=sum(lengths),
    )


def _prepare(way: str, source: str, num_examples: int) -> Callable[[int], Iterator[Batch]]:
    """Import what a way needs, and give what goes through its examples so many times."""
    if way in OTHERS:
        open_once = {
            "WebDataset of .npy": _prepare_webdataset,
            "datasets": _prepare_datasets,
            "mosaicml-streaming": _prepare_streaming,
        }[way](source)
        return lambda num_passes: (batch for _ in range(num_passes) for batch in open_once())
    return partial(_read_ours, source, num_examples, way == "packed")


def _read_ours(source: str, num_examples: int, is_packed: bool, num_passes: int) -> Iterator[Batch]:
    head = take_shards(open_dataset(source), num_examples)
    row_length = head.manifest.config.max_seq_length if is_packed else None
    left = num_passes * _count(head)
    size = _ROWS if is_packed else BATCH_SIZE
    with StreamingLoader(
        head, "train", lanes=1, microbatch_size=size, row_length=row_length, seed=0
    ) as loader:
        while left > 0:
            (batch,) = next(loader)
            left -= batch.num_examples
            yield batch
    if left:
        raise RuntimeError(f"the last pass had {-left} examples too many")


def _count(head: Dataset) -> int:
    return sum(shard.num_examples for shard in head.require_split("train"))


def _iterate_examples(head: Dataset) -> Iterator[dict[str, Any]]:
    """Every example, its lists as arrays of the stored type."""
    for shard in head.require_split("train"):
        for block in iterate_blocks(head, shard):
            columns = [block.column(name) for name in _FIELDS]
            for row in range(block.num_rows):
                values = (column[row] for column in columns)
                yield {
                    name: value.as_py() if name.endswith(("length", "label")) else value.values.to_numpy()
                    for name, value in zip(_FIELDS, values, strict=True)
                }


def _write_webdataset(examples: Iterable[dict[str, Any]], folder: str) -> None:
    import webdataset

    Path(folder).mkdir(parents=True)
    with webdataset.TarWriter(f"{folder}/examples.tar") as writer:
        for number, example in enumerate(examples):
            masked = np.stack([example["masked_lm_positions"], example["masked_lm_ids"]])
            pair = np.array([example["segment_a_length"], example["next_sentence_label"]])
            triple = {"ids.npy": example["input_ids"], "masked.npy": masked, "pair.npy": pair}
            writer.write({"__key__": f"{number:08d}", **triple})


def _prepare_webdataset(folder: str) -> Source:
    import webdataset

    def restore(sample: dict[str, Any]) -> Sample:
        positions, masked_ids = sample["masked.npy"]
        values = (sample["ids.npy"], sample["pair.npy"][0], positions, masked_ids, sample["pair.npy"][1])
        return dict(zip(_FIELDS, values, strict=True))

    def read() -> Iterator[Batch]:
        stored = webdataset.WebDataset(f"{folder}/examples.tar", shardshuffle=False)
        return iter(stored.decode().map(restore).batched(BATCH_SIZE, collation_fn=collate))

    return read


def _write_datasets(examples: Iterable[dict[str, Any]], folder: str) -> None:
    import datasets

    datasets.disable_progress_bars()
    kept = list(examples)
    columns = {name: [example[name] for example in kept] for name in _FIELDS}
    datasets.Dataset.from_dict(columns).save_to_disk(folder)


def _prepare_datasets(folder: str) -> Source:
    import datasets
    from torch.utils.data import DataLoader

    def read() -> Iterator[Batch]:
        stored = datasets.load_from_disk(folder)
        return iter(DataLoader(stored, batch_size=BATCH_SIZE, collate_fn=collate))

    return read


def _write_streaming(examples: Iterable[dict[str, Any]], folder: str) -> None:
    streaming = _import_streaming()
    kinds = {"input_ids": "ndarray", "masked_lm_positions": "ndarray", "masked_lm_ids": "ndarray"}
    columns = {name: kinds.get(name, "int") for name in _FIELDS}
    with streaming.MDSWriter(out=folder, columns=columns) as writer:
        for example in examples:
            writer.write(example)


def _prepare_streaming(folder: str) -> Source:
    streaming = _import_streaming()
    from torch.utils.data import DataLoader

    def read() -> Iterator[Batch]:
        stored = streaming.StreamingDataset(local=folder, shuffle=False, batch_size=BATCH_SIZE)
        return iter(DataLoader(stored, batch_size=BATCH_SIZE, collate_fn=collate))

    return read


def _import_streaming() -> Any:
    # Its data sets of pictures want torchvision, which nothing here needs.
    vision = types.ModuleType("streaming.vision")
    for name in ("ADE20K", "CIFAR10", "COCO", "ImageNet", "VisionDataset"):
        setattr(vision, f"Streaming{name}", None)
    sys.modules.setdefault(vision.__name__, vision)
    import streaming

    return streaming


def _examples_of(batch: Batch) -> Iterator[bytes]:
    """What each example of a batch consists of, wherever it lies."""
    length = batch.input_ids.shape[1]
    starts = np.arange(batch.num_examples) * length
    if batch.packing is not None:
        starts = batch.packing.first_positions.numpy()[: batch.num_examples]
    flat_ids, flat_segments = (tensor.flatten().numpy() for tensor in (batch.input_ids, batch.segment_ids))
    positions, masked_ids = batch.masked_positions.numpy(), batch.masked_ids.numpy()
    ends = starts + batch.lengths.numpy()
    bounds = zip(np.searchsorted(positions, starts), np.searchsorted(positions, ends), strict=True)
    labels = batch.next_sentence_labels.tolist()
    for start, end, (first, last), label in zip(starts, ends, bounds, labels, strict=False):
        parts = (flat_ids[start:end], flat_segments[start:end])
        masked = (positions[first:last] - start, masked_ids[first:last])
        yield b"|".join(part.tobytes() for part in (*parts, *masked)) + str(label).encode()
