"""`unblock`: from WebDataset's samples, one a block, to examples.

    import webdataset as wds
    from trainer.data import unblock

    for example in wds.WebDataset("dataset/train-00000-of-00016.tar").compose(unblock):
        example["input_ids"], example["next_sentence_label"]

In: dicts with `__key__` and the bytes of a block under `arrow`. Out: one dict an example, in stored order.
Every block is checked on its own; what only the manifest knows (checksum, vocabulary, lengths) is not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.errors import CorruptDataError
from trainer.data.block_format import WIDEST_LIMITS, decode_block
from trainer.data.example_arrays import list_values_and_lengths

_LIST_COLUMNS = ("input_ids", "masked_lm_positions", "masked_lm_ids")
# Ids are uint16 up to this vocabulary; a block doesn't say its own, so both widths are tried.
_NARROW_LIMITS = dataclasses.replace(WIDEST_LIMITS, vocab_size=1 << 16)


def unblock(samples: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Turn samples that hold a block each into samples that hold an example each.

    Args:
        samples: dicts with `__key__` (str) and `arrow` (bytes); other keys in `__` are passed on.

    Yields:
        dicts of `__key__` (`<block's key>-<number in it>`), `input_ids` (uint16 or uint32 [L]),
        `segment_a_length` (int), `masked_lm_positions` (uint16 [P]), `masked_lm_ids` (as `input_ids`, [P])
        and `next_sentence_label` (int or None). The arrays are copies: they may be kept and changed.

    Raises:
        CorruptDataError: a sample has no block, or a malformed one.
    """
    for sample in samples:
        key = str(sample.get("__key__", "a sample"))
        content = sample.get("arrow")
        if not isinstance(content, (bytes, bytearray, memoryview)):
            raise CorruptDataError(
                f"{key} has no bytes under `arrow` but {sorted(sample)}.\nGive `unblock` the samples of "
                f"clozeline's shards, not decoded: `wds.WebDataset(url).compose(unblock)`."
            )
        passed_on = {name: value for name, value in sample.items() if name.startswith("__")}
        for number, example in enumerate(_iterate_examples(_decode_either_width(bytes(content), key))):
            yield {**passed_on, "__key__": f"{key}-{number:06d}", **example}


def _decode_either_width(content: bytes, key: str) -> pa.RecordBatch:
    try:
        return decode_block(content, _NARROW_LIMITS, key)
    except CorruptDataError as narrow_error:
        try:
            return decode_block(content, WIDEST_LIMITS, key)
        except CorruptDataError:
            raise narrow_error from None


def _iterate_examples(block: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    columns = {}
    for name in _LIST_COLUMNS:
        values, lengths = list_values_and_lengths(block.column(name))
        columns[name] = np.split(values.copy(), np.cumsum(lengths)[:-1])
    segment_a_lengths = block.column("segment_a_length").to_pylist()
    labels = block.column("next_sentence_label").to_pylist()
    for row in range(block.num_rows):
        yield {
            "input_ids": columns["input_ids"][row],
            "segment_a_length": segment_a_lengths[row],
            "masked_lm_positions": columns["masked_lm_positions"][row],
            "masked_lm_ids": columns["masked_lm_ids"][row],
            "next_sentence_label": labels[row],
        }
