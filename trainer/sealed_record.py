"""Records in JSON that carry their own checksum.

In: the fields of a record, or the content of a file. Out: the content with the SHA-256 of all its other
fields, and whether a file still agrees with its own. The checksum is of what stands in the file, not of what
a later version reads out of it. A record edited by hand leaves the checksum out and is trusted.
Deterministic: keys sorted.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from schemas.configs import FrozenModel
from schemas.manifests import Sha256

_SEAL = "sha256"


class SealedRecord(FrozenModel):
    """A record with a checksum.

    Attributes:
        sha256: of all the other fields; None in a record that is in no file, or was edited by hand.
    """

    sha256: Sha256 | None = None

    def to_sealed_json(self) -> bytes:
        """The content of its file."""
        fields = self.model_dump(mode="json", exclude={_SEAL})
        fields[_SEAL] = _digest(fields)
        return (json.dumps(fields, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def is_intact(content: bytes) -> bool:
    """Whether the checksum in a record's file, where there is one, is that of its other fields.

    Args:
        content: a JSON object.
    """
    try:
        fields = json.loads(content)
    except ValueError:
        return False
    seal = fields.pop(_SEAL, None)
    return seal is None or seal == _digest(fields)


def _digest(fields: dict[str, Any]) -> str:
    content = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()
