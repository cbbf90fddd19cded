"""The draws are fixed by (seed, stage, name), uniform, and equal to an independent Philox."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.seeding import RandomStream, hash_fraction

_MASK64 = (1 << 64) - 1


def philox_4x64_10(counter: list[int], key: list[int]) -> list[int]:
    """Ten rounds of Philox 4x64 as Salmon et al. 2011 give them, in plain integers."""
    key = list(key)
    for _ in range(10):
        high0, low0 = divmod(0xD2E7470EE14C6C93 * counter[0], 1 << 64)
        high1, low1 = divmod(0xCA5A826395121157 * counter[2], 1 << 64)
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0]
        key = [(key[0] + 0x9E3779B97F4A7C15) & _MASK64, (key[1] + 0xBB67AE8584CAA73B) & _MASK64]
    return counter


def expected_words(seed: int, stage: str, name: str, n: int) -> list[int]:
    digest = hashlib.sha256(f"{seed}\x1f{stage}\x1f{name}".encode()).digest()
    key = [int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")]
    words: list[int] = []
    for block in range(1, -(-n // 4) + 1):  # NumPy counts before it encrypts, so the first counter is 1
        words += philox_4x64_10([block, 0, 0, 0], key)
    return words[:n]


@pytest.mark.parametrize(("seed", "stage", "name"), [(0, "pairs", "train-00000"), (2**63 - 1, "masks", "é")])
def test_words_equal_an_independent_philox(seed: int, stage: str, name: str) -> None:
    assert RandomStream(seed, stage, name).words(11).tolist() == expected_words(seed, stage, name, 11)


def test_a_stream_is_cut_at_any_place_without_change() -> None:
    whole = RandomStream(1, "s", "n").words(100).tolist()
    stream = RandomStream(1, "s", "n")
    assert stream.words(1).tolist() + stream.words(33).tolist() + stream.words(66).tolist() == whole


def test_each_of_seed_stage_and_name_gives_other_draws() -> None:
    streams = [("1", "a", "b"), ("2", "a", "b"), ("1", "c", "b"), ("1", "a", "d"), ("1", "ab", "")]
    first = {int(RandomStream(int(seed), stage, name).words(1)[0]) for seed, stage, name in streams}
    assert len(first) == len(streams)


def test_floats_are_the_upper_53_bits() -> None:
    words = expected_words(5, "s", "n", 4)
    assert RandomStream(5, "s", "n").floats(4).tolist() == [(word >> 11) / 2**53 for word in words]


def test_iterated_floats_equal_the_array() -> None:
    iterator = RandomStream(5, "s", "n").iterate_floats()
    assert [next(iterator) for _ in range(5000)] == RandomStream(5, "s", "n").floats(5000).tolist()


@given(st.lists(st.integers(1, 2**32), min_size=1, max_size=50))
def test_integers_scale_the_upper_half(bounds: list[int]) -> None:
    words = expected_words(3, "s", "n", len(bounds))
    expected = [((word >> 32) * bound) >> 32 for word, bound in zip(words, bounds, strict=True)]
    assert RandomStream(3, "s", "n").integers(np.array(bounds)).tolist() == expected


def test_integers_are_uniform() -> None:
    counts = np.bincount(RandomStream(0, "s", "n").integers(10, 100_000), minlength=10)
    chi_squared = float(((counts - 10_000) ** 2 / 10_000).sum())
    assert chi_squared < 27.88  # the 99.9th percentile with 9 degrees of freedom


def test_permutation_is_one_and_uniform_in_its_first_place() -> None:
    firsts = [int(RandomStream(seed, "s", "n").permutation(5)[0]) for seed in range(5000)]
    assert sorted(RandomStream(0, "s", "n").permutation(1000).tolist()) == list(range(1000))
    counts = np.bincount(firsts, minlength=5)
    assert float(((counts - 1000) ** 2 / 1000).sum()) < 18.47  # 99.9th percentile, 4 degrees of freedom


def test_hash_fraction_is_blake2b() -> None:
    digest = hashlib.blake2b(b"text", digest_size=8, person=b"validation").digest()
    assert hash_fraction(b"text", "validation") == (int.from_bytes(digest, "little") >> 11) / 2**53
    assert hash_fraction(b"text", "validation") != hash_fraction(b"text", "sample")
