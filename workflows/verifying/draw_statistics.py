"""Whether chance explains what the random draws of a dataset came out as.

In: a `DrawTally` of the whole dataset. Out: a `Statistic` for each promise. Deterministic.

Each test bounds the probability that draws made as promised lie so far off. It fails below 1e-10; there are
seven tests at most, so a right dataset is called wrong less than once in a billion reports. The bounds hold
for any number of draws, none is an approximation:

- A count of yes/no draws: 2 exp(-n KL(found || expected)) (Hoeffding 1963, theorem 1). It holds for draws
  whose probabilities differ, with their mean, and, as theorem 4 says, for draws without replacement.
- Several counts of the same draws (ranges of ids, parts of an example): the worst of them, times their
  number.
- Labels, each drawn with a chance that depends on those before: 2 exp(-2 (found - expected)^2 / n) (Azuma
  1967), where `expected` is the sum of the chances, which `build` records.

How a token was replaced is seen in the shards alone: a random replacement that is the original token can't
be told from a kept one, which moves the shares by a tenth over the number of ids that may replace one.
Positions are counted by their rank among the tokens that could be chosen; with whole-word masking among the
words of one piece, since longer words are the less likely the less room is left.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.configs import BuildConfig
from workflows.dataset_statistics import FIRST_LABEL
from workflows.verifying.draw_tally import NUM_PARTS, DrawTally
from workflows.verifying.rulebook import NUM_ID_RANGES, VocabularyRules

LARGEST_FALSE_ALARM = 1e-10
"""Of one test."""

MASK_SHARE = 0.8
RANDOM_SHARE = 0.1
KEPT_SHARE = 0.1


@dataclass(frozen=True)
class Statistic:
    """One promise, and whether the dataset keeps it.

    Attributes:
        name: what was counted.
        unit: what it was counted over, in the plural.
        num_draws: how many of those.
        found: the share found; several where the draws fall into several classes.
        expected: the shares expected.
        chance: an upper bound of the probability that a right dataset lies so far off; at most 1.
    """

    name: str
    unit: str
    num_draws: int
    found: tuple[float, ...]
    expected: tuple[float, ...]
    chance: float

    @property
    def ok(self) -> bool:
        """Whether chance explains it."""
        return self.chance >= LARGEST_FALSE_ALARM

    @property
    def title(self) -> str:
        """The name, and into how many parts the draws fall."""
        return f"{self.name}, {len(self.found)} parts" if len(self.found) > 1 else self.name

    @property
    def found_text(self) -> str:
        """The share found, or the least and the greatest of several."""
        return _describe(self.found)

    @property
    def expected_text(self) -> str:
        """The share expected, or the least and the greatest of several."""
        return _describe(self.expected)

    @property
    def complaint(self) -> str:
        """What is wrong, in one line."""
        far = [abs(found - expected) for found, expected in zip(self.found, self.expected, strict=True)]
        worst = far.index(max(far))
        place = f" (part {worst + 1} of {len(far)})" if len(far) > 1 else ""
        return (
            f"statistics: {self.name}{place}: {self.found[worst]:.2%} of {self.num_draws:,} {self.unit}, "
            f"expected {self.expected[worst]:.2%}; chance doesn't explain that"
        )

    def as_json(self) -> dict[str, Any]:
        """Plain values for `--json`; one share is a number, several are a list."""
        found, expected = ([round(share, 6) for share in shares] for shares in (self.found, self.expected))
        return {
            "name": self.name,
            "found": found[0] if len(found) == 1 else found,
            "expected": expected[0] if len(expected) == 1 else expected,
            "num_draws": self.num_draws,
            "of": self.unit,
            "chance": self.chance,
            "ok": self.ok,
        }


def judge_draws(
    tally: DrawTally, config: BuildConfig, vocabulary: VocabularyRules | None
) -> Iterator[Statistic]:
    """Test every promise that the tally has draws for.

    Args:
        tally: of all examples.
        config: of the build.
        vocabulary: None where it isn't known; what needs it is left out.
    """
    if not tally.num_chosen:
        return
    yield _chosen_share(tally, config)
    chosen = "chosen tokens"
    num_chosen = tally.num_chosen
    yield _binomial("[MASK]", chosen, tally.num_masked, num_chosen, MASK_SHARE)
    if vocabulary is not None:
        num_alike = num_chosen - tally.num_masked - tally.num_other
        hit = RANDOM_SHARE * tally.num_replaceable / num_chosen / max(1, vocabulary.num_replacements)
        yield _binomial("random", chosen, tally.num_other, num_chosen, RANDOM_SHARE - hit)
        yield _binomial("kept", chosen, num_alike, num_chosen, KEPT_SHARE + hit)
    yield _binomial("kept, by manifest", chosen, tally.num_kept_on_record, num_chosen, KEPT_SHARE)
    if vocabulary is not None and tally.num_other and vocabulary.num_replacements > 1:
        yield _random_ids(tally, vocabulary)
    if tally.by_part.any():
        yield _positions(tally)
    if tally.num_labels:
        yield _labels(tally, FIRST_LABEL[config.objective])


def bound_binomial(count: int, num_draws: int, share: float) -> float:
    """The natural logarithm of 2 exp(-n KL(count / n || share)), at most 0.

    Args:
        count: draws that came out yes, 0 to `num_draws`.
        num_draws: at least 1.
        share: the mean of their probabilities, 0 to 1.
    """
    divergence = 0.0
    for found, expected in ((count, share), (num_draws - count, 1.0 - share)):
        if found and expected <= 0.0:
            return -math.inf
        if found:
            divergence += found * math.log(found / num_draws / expected)
    return min(0.0, math.log(2.0) - divergence)


def bound_classes(counts: NDArray[np.int64], shares: NDArray[np.float64]) -> float:
    """The natural logarithm of the bound for the worst of several counts of the same draws, at most 0."""
    num_draws = int(counts.sum())
    worst = min(
        bound_binomial(int(count), num_draws, float(share))
        for count, share in zip(counts, shares, strict=True)
    )
    return min(0.0, worst + math.log(len(counts)))


def _chosen_share(tally: DrawTally, config: BuildConfig) -> Statistic:
    # Nothing is left to chance here: each example has its number, with whole words at most that.
    right = (
        tally.num_chosen <= tally.num_to_choose
        if config.whole_word_mask
        else tally.num_chosen == tally.num_to_choose
    )
    shares = (tally.num_chosen / tally.num_maskable, tally.num_to_choose / tally.num_maskable)
    return Statistic("chosen", "tokens", tally.num_maskable, shares[:1], shares[1:], 1.0 if right else 0.0)


def _binomial(name: str, unit: str, count: int, num_draws: int, share: float) -> Statistic:
    chance = math.exp(bound_binomial(count, num_draws, share))
    return Statistic(name, unit, num_draws, (count / num_draws,), (share,), chance)


def _random_ids(tally: DrawTally, vocabulary: VocabularyRules) -> Statistic:
    counts = tally.others_by_range[:NUM_ID_RANGES]
    originals = tally.originals_by_range[:NUM_ID_RANGES]
    num_barred = int(tally.originals_by_range[NUM_ID_RANGES])
    size = vocabulary.num_replacements
    # A draw that is seen is not the original; an original that may replace nothing shortens no range.
    expected = num_barred * vocabulary.range_sizes / size
    expected += (originals.sum() * vocabulary.range_sizes - originals) / (size - 1)
    return _several("random ids", "random tokens", counts, expected)


def _positions(tally: DrawTally) -> Statistic:
    expected = np.zeros(NUM_PARTS)
    for num_places in np.flatnonzero(tally.chosen_by_places).tolist():
        places = np.bincount(np.arange(num_places) * NUM_PARTS // num_places, minlength=NUM_PARTS)
        expected += tally.chosen_by_places[num_places] * places / num_places
    return _several("positions", "chosen places", tally.by_part, expected)


def _several(name: str, unit: str, counts: NDArray[np.int64], expected: NDArray[np.float64]) -> Statistic:
    num_draws = int(counts.sum())
    shares = expected / expected.sum()
    found = tuple((counts / num_draws).tolist())
    chance = math.exp(bound_classes(counts, shares))
    return Statistic(name, unit, num_draws, found, tuple(shares.tolist()), chance)


def _labels(tally: DrawTally, name: str) -> Statistic:
    num_labels = tally.num_labels
    distance = tally.num_not_next - tally.expected_not_next
    chance = min(1.0, 2.0 * math.exp(-2.0 * distance * distance / num_labels))
    found, expected = 1 - tally.num_not_next / num_labels, 1 - tally.expected_not_next / num_labels
    return Statistic(name, "labels", num_labels, (found,), (expected,), chance)


def _describe(shares: tuple[float, ...]) -> str:
    low, high = f"{min(shares):.2%}", f"{max(shares):.2%}"
    return low if low == high else f"{low} to {high}"
