"""A pretraining example: the one place that says which fields it has.

The worked example of the BERT literature, with A = "the cat sat on the mat", B = "it purred softly", and
positions 2 and 9 chosen, 2 replaced by `[MASK]` and 9 left as it was:

    position              0     1    2      3   4  5   6   7     8  9      10     11
    tokens                [CLS] the  [MASK] sat on the mat [SEP] it purred softly [SEP]
    segment ids           0     0    0      0   0  0   0   0     1  1      1      1

    input_ids             the 12 ids of the row `tokens`, already masked
    segment_a_length      8           the tokens of `[CLS] A [SEP]`; segment ids follow from it
    masked_lm_positions   [2, 9]      ascending
    masked_lm_ids         [id of "cat", id of "purred"]     what stood there before masking
    next_sentence_label   0           0 = IsNext, 1 = NotNext; null where the objective has no label

Without a second segment (`objective = "mlm"`) the tokens are `[CLS] A [SEP]` and `segment_a_length` is their
number. There is no padding: an example is as long as it is. The polarity of the label is that of Google's
BERT and of Hugging Face's `next_sentence_label`; for `sentence-order` 1 means that the two segments were
swapped.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.documents import token_id_type

IS_NEXT = 0
NOT_NEXT = 1
MAX_SEQ_LENGTH_LIMIT = 2048


def example_schema(vocab_size: int) -> pa.Schema:
    """The Arrow schema of a block of examples.

    Args:
        vocab_size: number of entries in the vocabulary; decides between uint16 and uint32 ids.
    """
    ids = pa.list_(pa.field("item", token_id_type(vocab_size), nullable=False))
    positions = pa.list_(pa.field("item", pa.uint16(), nullable=False))
    return pa.schema(
        [
            pa.field("input_ids", ids, nullable=False),
            pa.field("segment_a_length", pa.uint16(), nullable=False),
            pa.field("masked_lm_positions", positions, nullable=False),
            pa.field("masked_lm_ids", ids, nullable=False),
            pa.field("next_sentence_label", pa.uint8(), nullable=True),
        ]
    )


def segment_ids(length: int, segment_a_length: int) -> NDArray[np.uint8]:
    """Segment ids of an example: uint8 [length], 0 for `[CLS] A [SEP]` and 1 for `B [SEP]`."""
    return (np.arange(length) >= segment_a_length).astype(np.uint8)
