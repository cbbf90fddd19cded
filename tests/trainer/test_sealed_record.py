from __future__ import annotations

import hashlib
import json

import pytest

from trainer.sealed_record import SealedRecord, is_intact


class Record(SealedRecord):
    """Two fields."""

    step: int
    loss: float


def test_the_checksum_is_that_of_the_other_fields() -> None:
    fields = json.loads(Record(step=3, loss=0.1 + 0.2).to_sealed_json())
    seal = fields.pop("checksum")
    assert seal == hashlib.sha256(b'{"loss":0.30000000000000004,"step":3}').hexdigest()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda text: text, True),
        (lambda text: text.replace("\n", " "), False),
        (lambda text: text.replace("3", "4", 1), False),
        (lambda text: text.replace('"step"', '"stop"'), False),
        (lambda text: json.dumps({"step": 4}), True),
        (lambda text: text[:-4], False),
    ],
    ids=["whole", "laid out anew", "value", "name", "without a checksum", "torn"],
)
def test_a_change_is_found(change: object, expected: bool) -> None:
    content = Record(step=3, loss=2.5).to_sealed_json().decode()
    assert is_intact(change(content).encode()) == expected  # type: ignore[operator]
