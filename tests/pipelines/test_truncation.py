from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.truncation import draw_binomials, truncate_segments
from schemas.seeding import RandomStream

LENGTHS = st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), min_size=1, max_size=20)


def cut_token_by_token(a_length: int, b_length: int, max_tokens: int) -> tuple[int, int]:
    """The lengths that the loop of Google's `truncate_seq_pair` leaves."""
    while a_length + b_length > max_tokens:
        if a_length > b_length:
            a_length -= 1
        else:
            b_length -= 1
    return a_length, b_length


@settings(deadline=None)
@given(LENGTHS, st.integers(2, 200))
def test_lengths_are_those_of_the_token_by_token_loop(
    lengths: list[tuple[int, int]], max_tokens: int
) -> None:
    a, b = np.array(lengths, np.int64).T
    a_start, b_start = np.full(len(a), 1000), np.full(len(a), 5000)

    cut = truncate_segments(
        a_start, a_start + a, b_start, b_start + b, max_tokens, RandomStream(1, "pairs", "x")
    )

    new_a_start, new_a_end, new_b_start, new_b_end = cut
    expected = [cut_token_by_token(*pair, max_tokens) for pair in lengths]
    assert (
        list(zip((new_a_end - new_a_start).tolist(), (new_b_end - new_b_start).tolist(), strict=True))
        == expected
    )
    assert np.all((new_a_start >= a_start) & (new_a_end <= a_start + a))
    assert np.all((new_b_start >= b_start) & (new_b_end <= b_start + b))
    assert min(min(pair) for pair in expected) >= 1


@settings(deadline=None)
@given(st.lists(st.integers(0, 200), max_size=30), st.integers(0, 99))
def test_binomials_count_the_bits_of_the_draws(num_trials: list[int], seed: int) -> None:
    drawn = draw_binomials(np.array(num_trials, np.int64), RandomStream(seed, "pairs", "x"))

    words = iter(RandomStream(seed, "pairs", "x").words(1000).tolist())
    expected = []
    for trials in num_trials:
        bits = ""
        while len(bits) < trials:
            word = f"{next(words):064b}"
            bits += word[: min(64, trials - len(bits))]
        expected.append(bits.count("1"))
    assert drawn.tolist() == expected


def test_binomials_have_the_mean_and_variance_of_fair_coins() -> None:
    n = 20_000
    drawn = draw_binomials(np.full(n, 100), RandomStream(3, "pairs", "x"))

    assert abs(drawn.mean() - 50) < 4 * 5 / np.sqrt(n)
    assert abs(drawn.var() - 25) < 4 * 25 * np.sqrt(2 / n)


def test_front_and_back_are_cut_equally_often() -> None:
    n = 10_000
    start = np.zeros(n, np.int64)

    a_start, a_end, _, _ = truncate_segments(
        start, start + 11, start, start + 1, 11, RandomStream(4, "pairs", "x")
    )

    assert set((a_end - a_start).tolist()) == {10}
    assert abs(a_start.mean() - 0.5) < 4 * 0.5 / np.sqrt(n)
