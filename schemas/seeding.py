"""Random draws that depend on a seed and on the name of the work, and on nothing else.

In: a seed, a stage (`"pairs"`, `"masks"`, …) and the stable name of a piece of work (a pool, a window). Out:
streams of integers and floats. Deterministic: the same three give the same draws on any machine, in any order
of the work, with any number of workers. The generator is Philox 4x64 (Salmon et al. 2011, "Parallel random
numbers: as easy as 1, 2, 3"), keyed by SHA-256; turning its raw 64-bit words into floats and bounded integers
is done here, since NumPy promises stable streams for bit generators only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

_SCALARS_AT_A_TIME = 4096


class RandomStream:
    """An endless sequence of draws, keyed by (seed, stage, name)."""

    def __init__(self, seed: int, stage: str, name: str) -> None:
        digest = hashlib.sha256(f"{seed}\x1f{stage}\x1f{name}".encode()).digest()
        key = np.frombuffer(digest[:16], dtype="<u8").astype(np.uint64)
        self._philox = np.random.Philox(key=key)

    def words(self, n: int) -> NDArray[np.uint64]:
        """The next n raw draws: uint64 [n]."""
        return self._philox.random_raw(n)

    def floats(self, n: int) -> NDArray[np.float64]:
        """The next n draws uniform on [0, 1), in steps of 2^-53: float64 [n]."""
        return (self.words(n) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def integers(self, bounds: NDArray[np.integer] | int, n: int | None = None) -> NDArray[np.int64]:
        """One draw uniform on [0, bound) for each bound: int64 [n].

        Args:
            bounds: int [n], or one bound for all n draws; each from 1 to 2^32.
            n: the number of draws; needed only where `bounds` is one integer.

        The draws scale the upper 32 bits of a word, so no value is more likely than another by more than a
        factor of 1 + bound / 2^32.
        """
        size = np.size(bounds) if n is None else n
        upper = self.words(size) >> np.uint64(32)
        return ((upper * np.asarray(bounds, dtype=np.uint64)) >> np.uint64(32)).astype(np.int64)

    def permutation(self, n: int) -> NDArray[np.int64]:
        """A uniformly random order of 0 … n - 1: int64 [n]."""
        return np.argsort(self.words(n), kind="stable")

    def iterate_floats(self) -> Iterator[float]:
        """Draws uniform on [0, 1) one by one, for code that walks in plain Python."""
        while True:
            yield from self.floats(_SCALARS_AT_A_TIME).tolist()


def hash_fraction(content: bytes, purpose: str) -> float:
    """Map bytes to a number uniform on [0, 1) that depends on them and on the purpose only."""
    digest = hashlib.blake2b(content, digest_size=8, person=purpose.encode()[:16]).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53
