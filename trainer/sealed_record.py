"""Records of a run in files that carry their own checksum, which `schemas.sealing` makes.

In: the fields of a record, or the content of its file. Out: that content, and whether a file is as it was
written. The checksum is of what stands in the file, not of what a later version reads out of it. A record
edited by hand leaves the checksum out and is trusted; a manifest without one isn't. Deterministic.
"""

from __future__ import annotations

from schemas.configs import FrozenModel
from schemas.manifests import Sha256
from schemas.sealing import CHECKSUM, read_sealed, seal_json


class SealedRecord(FrozenModel):
    """A record with a checksum.

    Attributes:
        checksum: SHA-256 of all the other fields; None in a record that is in no file, or was edited by hand.
    """

    checksum: Sha256 | None = None

    def to_sealed_json(self) -> bytes:
        """The content of its file."""
        return seal_json(self.model_dump(mode="json", exclude={CHECKSUM}))


def is_intact(content: bytes) -> bool:
    """Whether a record's file is as it was written, or was edited by a person who left the checksum out."""
    try:
        _, is_as_written = read_sealed(content)
    except ValueError:
        return False
    return is_as_written is not False
