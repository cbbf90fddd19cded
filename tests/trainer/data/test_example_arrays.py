from __future__ import annotations

import numpy as np
import pyarrow as pa

from schemas.examples import example_schema
from trainer.data.example_arrays import NO_LABEL, arrays_from_blocks, list_values_and_lengths

ROWS = [
    {
        "input_ids": [6, 20, 7, 30, 7],
        "segment_a_length": 3,
        "masked_lm_positions": [1, 3],
        "masked_lm_ids": [20, 31],
        "next_sentence_label": 1,
    },
    {
        "input_ids": [6, 8, 7],
        "segment_a_length": 3,
        "masked_lm_positions": [1],
        "masked_lm_ids": [40],
        "next_sentence_label": None,
    },
    {
        "input_ids": [6, 50, 51, 7],
        "segment_a_length": 4,
        "masked_lm_positions": [],
        "masked_lm_ids": [],
        "next_sentence_label": 0,
    },
]
BLOCK = pa.RecordBatch.from_pylist(ROWS, schema=example_schema(30_522))


def test_written_out() -> None:
    arrays = arrays_from_blocks([BLOCK.slice(0, 1), BLOCK.slice(1, 2)])
    # 12 ids, then as many zeros as the longest example has tokens.
    assert arrays.input_ids.tolist() == [6, 20, 7, 30, 7, 6, 8, 7, 6, 50, 51, 7, 0, 0, 0, 0, 0]
    assert arrays.input_ids.dtype == np.uint16
    assert arrays.starts.tolist() == [0, 5, 8]
    assert arrays.lengths.tolist() == [5, 3, 4]
    assert arrays.segment_a_lengths.tolist() == [3, 3, 4]
    assert arrays.masked_lm_positions.tolist() == [1, 3, 1]
    assert arrays.masked_lm_ids.tolist() == [20, 31, 40]
    assert arrays.masked_starts.tolist() == [0, 2, 3]
    assert arrays.masked_counts.tolist() == [2, 1, 0]
    assert arrays.labels.tolist() == [1, NO_LABEL, 0]
    assert len(arrays) == 3


def test_a_sliced_list_column_gives_its_own_values_only() -> None:
    values, lengths = list_values_and_lengths(BLOCK.slice(1, 1).column("input_ids"))
    assert (values.tolist(), lengths.tolist()) == ([6, 8, 7], [3])
