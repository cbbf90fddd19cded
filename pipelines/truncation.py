"""Cut pairs of segments that are too long together.

In: the bounds of segments A and B as arrays. Out: bounds that fit. Deterministic: draws come from the stream
that is given, in the order of the pairs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from schemas.seeding import RandomStream

Bounds = NDArray[np.int32]

_BITS_SET = np.array([value.bit_count() for value in range(1 << 16)], dtype=np.int64)


def truncate_segments(
    a_start: Bounds, a_end: Bounds, b_start: Bounds, b_end: Bounds, max_tokens: int, stream: RandomStream
) -> tuple[Bounds, Bounds, Bounds, Bounds]:
    """Cut each pair to `max_tokens`, token by token from the longer segment, at its front or back by chance.

    The distribution is that of `truncate_seq_pair` in Google's script, which loops over tokens (of two equal
    segments it cuts B); here the number of tokens to cut is computed, and how many of them go at the front is
    a binomial draw.

    Args:
        a_start: int32 [E], first token of A; no segment is empty.
        a_end: int32 [E], one past A's last token.
        b_start: int32 [E], first token of B.
        b_end: int32 [E], one past B's last token.
        max_tokens: tokens of A and B together at most; 2 or more, so that neither becomes empty.
        stream: takes a word for every 64 tokens (or part of it) that are cut from a segment.

    Returns:
        The new bounds, in the same order: int32 [E] each.
    """
    a_length, b_length = a_end - a_start, b_end - b_start
    excess = np.maximum(a_length + b_length - max_tokens, 0)
    from_longer = np.minimum(excess, np.abs(a_length - b_length))
    alternating = excess - from_longer
    a_is_longer = a_length > b_length
    a_cut = np.where(a_is_longer, from_longer, 0) + alternating // 2
    b_cut = np.where(a_is_longer, 0, from_longer) + alternating - alternating // 2
    a_front = draw_binomials(a_cut, stream)
    b_front = draw_binomials(b_cut, stream)
    return a_start + a_front, a_end - (a_cut - a_front), b_start + b_front, b_end - (b_cut - b_front)


def draw_binomials(num_trials: NDArray[np.int32], stream: RandomStream) -> NDArray[np.int32]:
    """How many of so many fair coins fall on heads: int32 [n], by counting the bits of raw draws."""
    successes = np.zeros(len(num_trials), np.int32)
    tossed = np.flatnonzero(num_trials)
    if len(tossed) == 0:
        return successes
    num_words = (num_trials[tossed] + 63) // 64
    starts = np.cumsum(num_words) - num_words
    words = stream.words(int(num_words.sum()))
    last = starts + num_words - 1
    words[last] >>= (num_words * 64 - num_trials[tossed]).astype(np.uint64)
    set_bits = _BITS_SET[words.view(np.uint16)].reshape(-1, 4).sum(axis=1)
    successes[tossed] = np.add.reduceat(set_bits, starts)
    return successes
