"""Which documents are held out for validation.

In: texts and the share to hold out. Out: a split for each. Deterministic: it follows from the text alone, so
it is the same for every seed, every way of cutting the input into files and every number of workers, and a
duplicate of a training document never lies in validation.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.manifests import Split
from schemas.seeding import hash_fraction

_PURPOSE = "split"


def assign_split(text: str, validation_fraction: float) -> Split:
    """The split of a document: `validation` for the given share of all texts, else `train`."""
    return "validation" if hash_fraction(text.encode(), _PURPOSE) < validation_fraction else "train"


def mark_validation(texts: pa.Array, validation_fraction: float) -> NDArray[np.bool_]:
    """`assign_split` for many documents.

    Args:
        texts: large_string or string [n], without nulls.
        validation_fraction: expected share of distinct texts that is held out, 0 <= fraction < 1.

    Returns:
        bool [n], True where the document goes to `validation`.
    """
    if validation_fraction <= 0.0:
        return np.zeros(len(texts), dtype=np.bool_)
    contents = texts.cast(pa.large_binary())
    fractions = (hash_fraction(content.as_py(), _PURPOSE) for content in contents)
    return np.fromiter((fraction < validation_fraction for fraction in fractions), np.bool_, len(texts))
