"""The worked example of the module's docstring, and the width of ids."""

import pyarrow as pa
import pytest

from schemas.documents import token_id_type, tokenized_document_schema
from schemas.examples import example_schema, segment_ids


def test_segment_ids_of_the_worked_example() -> None:
    assert segment_ids(12, 8).tolist() == [0] * 8 + [1] * 4


@pytest.mark.parametrize(
    ("vocab_size", "expected"),
    [(5, pa.uint16()), (65_536, pa.uint16()), (65_537, pa.uint32()), (70_000, pa.uint32())],
)
def test_ids_take_two_bytes_while_they_fit(vocab_size: int, expected: pa.DataType) -> None:
    assert token_id_type(vocab_size) == expected
    assert example_schema(vocab_size).field("input_ids").type.value_type == expected
    assert example_schema(vocab_size).field("masked_lm_ids").type.value_type == expected
    assert tokenized_document_schema(vocab_size).field("token_ids").type.value_type == expected


def test_only_the_label_may_be_null() -> None:
    assert [field.name for field in example_schema(100) if field.nullable] == ["next_sentence_label"]
