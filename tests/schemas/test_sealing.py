"""Sealed files: what the checksum is of, and that any change is found."""

import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.sealing import read_sealed, seal_json

NUMBERS = st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "é", ""]), inner),
    max_leaves=8,
)
FIELDS = st.dictionaries(st.sampled_from(["step", "loss", "übrig", "checks"]), VALUES)


def test_the_checksum_is_that_of_the_other_fields_as_compact_json() -> None:
    content = seal_json({"step": 3, "loss": 0.1 + 0.2, "name": "é"})
    compact = b'{"loss":0.30000000000000004,"name":"\\u00e9","step":3}'
    assert json.loads(content) == {
        "step": 3,
        "loss": 0.1 + 0.2,
        "name": "é",
        "checksum": hashlib.sha256(compact).hexdigest(),
    }


def test_a_checksum_among_the_fields_is_replaced() -> None:
    assert seal_json({"step": 3, "checksum": "0" * 64}) == seal_json({"step": 3})


@given(FIELDS)
def test_what_was_sealed_is_read_as_it_was(fields: dict[str, object]) -> None:
    assert read_sealed(seal_json(fields)) == (fields, True)


@settings(deadline=None)
@given(FIELDS, st.data())
def test_a_flipped_bit_anywhere_is_found(fields: dict[str, object], data: st.DataObject) -> None:
    content = bytearray(seal_json(fields))
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        _, intact = read_sealed(bytes(content))
    except ValueError:
        return
    assert not intact


def test_a_file_without_a_checksum_is_neither_whole_nor_changed() -> None:
    assert read_sealed(b'{"step": 3}') == ({"step": 3}, None)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"a": NaN}', b"\xff", b"[" * 5000])
def test_what_is_no_json_object_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 the message is the parser's
        read_sealed(content)


def test_a_number_that_json_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        seal_json({"loss": float("nan")})
