import hashlib

import numpy as np
import pyarrow as pa
import pytest

from pipelines.splits import assign_split, mark_validation

TEXTS = [f"Document number {index} of many, é." for index in range(20_000)]


def expected_fraction(text):
    digest = hashlib.blake2b(text.encode(), digest_size=8, person=b"split").digest()
    return (int.from_bytes(digest, "little") >> 11) / 2**53


def test_a_document_goes_by_the_hash_of_its_text():
    marks = mark_validation(pa.array(TEXTS, pa.large_string()), 0.05)
    assert marks.dtype == np.bool_
    assert marks.tolist() == [expected_fraction(text) < 0.05 for text in TEXTS]
    assert [assign_split(text, 0.05) == "validation" for text in TEXTS] == marks.tolist()


@pytest.mark.parametrize("fraction", [0.01, 0.3])
def test_the_share_is_as_asked(fraction):
    share = mark_validation(pa.array(TEXTS), fraction).mean()
    assert abs(share - fraction) < 4 * (fraction * (1 - fraction) / len(TEXTS)) ** 0.5


def test_a_larger_share_only_adds_documents():
    small, large = (mark_validation(pa.array(TEXTS), fraction) for fraction in (0.01, 0.1))
    assert not np.any(small & ~large)


def test_no_share_holds_nothing_out():
    assert not mark_validation(pa.array(TEXTS), 0.0).any()
    assert assign_split(TEXTS[0], 0.0) == "train"
    assert mark_validation(pa.array([], pa.large_string()), 0.5).shape == (0,)
