"""JSON files that carry a checksum of their own fields.

In: the fields of a manifest or a record, or the content of its file. Out: that content with the SHA-256 of
all its other fields, and whether a file still is what was written. One rule holds for all of them: the
content is what sealing its fields gives, to the byte. The checksum alone would not do: 1e-05 and 1E-05 are
one bit apart, and the same number. Deterministic: keys sorted, ASCII alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

CHECKSUM = "checksum"


def seal_json(fields: Mapping[str, Any]) -> bytes:
    """JSON of sorted keys, indented, with a final newline, and with the checksum of all fields.

    Args:
        fields: plain values; a checksum among them is replaced.

    Raises:
        ValueError: a number is infinite or NaN, which JSON doesn't know.
    """
    others = {name: value for name, value in fields.items() if name != CHECKSUM}
    compact = json.dumps(others, sort_keys=True, separators=(",", ":"), allow_nan=False)
    checksum = hashlib.sha256(compact.encode()).hexdigest()
    return (json.dumps({**others, CHECKSUM: checksum}, indent=1, sort_keys=True) + "\n").encode()


def read_sealed(content: bytes) -> tuple[dict[str, Any], bool | None]:
    """The fields of a file, without its checksum, and whether it is as it was written.

    Args:
        content: of the file.

    Returns:
        The fields; and True for a file as it was written, False for one that was changed, None for one that
        has no checksum.

    Raises:
        ValueError: it is no JSON object.
    """
    fields = from_json(content, allow_inf_nan=False)
    if not isinstance(fields, dict):
        raise ValueError(f"it holds {type(fields).__name__}")
    if fields.pop(CHECKSUM, None) is None:
        return fields, None
    return fields, content == seal_json(fields)
