"""Documents before and after tokenizing, as Arrow tables.

A document is a text with an identifier. A tokenized document keeps its token ids in one flat list and the
length of each sentence beside it, without any special token:

    text               "The cat sat. It purred."
    sentences          ["The cat sat.", "It purred."]
    token_ids          [1996, 4937, 2938, 1012, 2009, 23866, 1012]
    sentence_lengths   [4, 3]

`sentence_lengths` sums to `len(token_ids)`; no sentence is empty. Ids are uint16 where the vocabulary has at
most 65,536 entries and uint32 otherwise.
"""

from __future__ import annotations

import pyarrow as pa

DOCUMENT_SCHEMA = pa.schema(
    [
        pa.field("document_id", pa.string(), nullable=False),
        pa.field("text", pa.large_string(), nullable=False),
    ]
)


def token_id_type(vocab_size: int) -> pa.DataType:
    """The narrowest of uint16 and uint32 that holds every id of a vocabulary of this size."""
    return pa.uint16() if vocab_size <= 1 << 16 else pa.uint32()


def tokenized_document_schema(vocab_size: int) -> pa.Schema:
    """The schema of tokenized documents: `document_id`, `token_ids`, `sentence_lengths`."""
    return pa.schema(
        [
            pa.field("document_id", pa.string(), nullable=False),
            pa.field("token_ids", _required_list(token_id_type(vocab_size)), nullable=False),
            pa.field("sentence_lengths", _required_list(pa.int32()), nullable=False),
        ]
    )


def _required_list(value_type: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("item", value_type, nullable=False))
