from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from schemas.configs import BuildConfig
from workflows.verifying.draw_statistics import (
    LARGEST_FALSE_ALARM,
    Statistic,
    bound_binomial,
    bound_classes,
    judge_draws,
)
from workflows.verifying.draw_tally import NUM_PARTS, DrawTally
from workflows.verifying.rulebook import NO_RANGE, NUM_ID_RANGES, VocabularyRules


@settings(deadline=None)
@given(st.integers(1, 5000), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_the_bound_of_a_count_holds(num_draws: int, share: float, place: float) -> None:
    """It is no less than the probability of such a count or one farther out on the same side, twice."""
    count = round(place * num_draws)
    binomial = stats.binom(num_draws, share)
    tail = binomial.cdf(count) if count <= share * num_draws else binomial.sf(count - 1)
    assert min(1.0, 2 * tail) <= math.exp(bound_binomial(count, num_draws, share)) * (1 + 1e-9)


def test_the_bound_of_a_count_is_worth_having() -> None:
    """A chance of 1e-10 is seen as such 8 standard errors away, as 1e-10 itself lies at 6.5."""
    num_draws, error = 10_000, math.sqrt(10_000 * 0.16)
    assert bound_binomial(round(8000 - 8 * error), num_draws, 0.8) < math.log(LARGEST_FALSE_ALARM)
    assert bound_binomial(round(8000 - 6 * error), num_draws, 0.8) > math.log(LARGEST_FALSE_ALARM)
    assert bound_binomial(8000, num_draws, 0.8) == 0.0


@pytest.mark.parametrize(
    ("count", "share", "bound"), [(0, 0.0, 0.0), (1, 0.0, -math.inf), (9, 1.0, -math.inf)]
)
def test_certain_draws(count: int, share: float, bound: float) -> None:
    assert bound_binomial(count, 10, share) == bound


def test_the_bound_of_classes_is_that_of_the_worst_times_their_number() -> None:
    counts, shares = np.array([300, 350, 350]), np.array([0.4, 0.3, 0.3])
    worst = bound_binomial(300, 1000, 0.4)
    assert worst == min(bound_binomial(int(c), 1000, float(s)) for c, s in zip(counts, shares, strict=True))
    assert bound_classes(counts, shares) == pytest.approx(worst + math.log(3))


def _tally(num_draws: int = 10_000) -> DrawTally:
    """Exactly what is expected of so many chosen tokens, each among 10 places."""
    tally = DrawTally(
        num_examples=1000,
        num_maskable=10 * num_draws,
        num_to_choose=num_draws,
        num_chosen=num_draws,
        num_masked=num_draws * 8 // 10,
        num_other=num_draws // 10,
        num_kept_on_record=num_draws // 10,
        num_labels=1000,
        num_not_next=480,
        expected_not_next=480.0,
    )
    tally.by_part[:] = np.array([2, 1, 1, 1, 2, 1, 1, 1]) * num_draws // 10
    tally.chosen_by_places[10] = num_draws
    return tally


def _judge(tally: DrawTally, objective: str = "next-sentence", **config: object) -> dict[str, Statistic]:
    settings = BuildConfig(objective=objective, **config)  # type: ignore[arg-type]
    return {statistic.name: statistic for statistic in judge_draws(tally, settings, None)}


def test_exactly_what_is_expected_is_right() -> None:
    found = _judge(_tally())
    assert list(found) == ["chosen", "[MASK]", "kept, by manifest", "positions", "is next"]
    assert all(statistic.chance == 1.0 for statistic in found.values())
    assert found["is next"].found == found["is next"].expected == (0.52,)
    assert found["positions"].expected == pytest.approx([0.2, 0.1, 0.1, 0.1, 0.2, 0.1, 0.1, 0.1])
    assert found["chosen"].as_json() == {
        "name": "chosen",
        "found": 0.1,
        "expected": 0.1,
        "num_draws": 100_000,
        "of": "tokens",
        "chance": 1.0,
        "ok": True,
    }


def test_labels_are_held_to_the_chances_on_record() -> None:
    tally = _tally()
    tally.num_not_next = 480 + 100
    # 2 exp(-2 * 100^2 / 1000)
    assert _judge(tally)["is next"].chance == pytest.approx(2 * math.exp(-20))
    tally.num_not_next = 480 - 120
    assert not _judge(tally, "sentence-order")["in order"].ok


def test_whole_words_may_choose_fewer_tokens_and_never_more() -> None:
    tally = _tally()
    tally.num_to_choose = 11_000
    assert not _judge(tally)["chosen"].ok
    assert _judge(tally, whole_word_mask=True)["chosen"].ok
    tally.num_to_choose = 9_999
    assert not _judge(tally, whole_word_mask=True)["chosen"].ok


def test_a_replacement_that_is_the_original_looks_kept() -> None:
    """Of 10 ids one in ten random draws is the original: 9% seem random, 11% kept."""
    vocabulary = VocabularyRules(
        num_replacements=10,
        range_of_id=np.array([NO_RANGE] * 5 + [0] * 10, np.uint8),
        range_sizes=np.array([10] + [0] * (NUM_ID_RANGES - 1)),
        is_continuation=np.zeros(15, np.bool_),
    )
    tally = _tally()
    tally.num_replaceable = tally.num_chosen
    tally.others_by_range[0] = tally.originals_by_range[0] = tally.num_other
    found = {s.name: s for s in judge_draws(tally, BuildConfig(), vocabulary)}
    assert found["random"].expected == pytest.approx([0.09])
    assert found["kept"].expected == pytest.approx([0.11])


def test_random_ids_are_uniform_over_what_can_be_seen() -> None:
    """The expectation, summed draw by draw: an id other than the original, each as likely."""
    sizes = np.array([2] * 8 + [1] * 8)
    ranges = np.repeat(np.arange(NUM_ID_RANGES), sizes)
    vocabulary = VocabularyRules(
        num_replacements=24,
        range_of_id=np.concatenate([np.full(5, NO_RANGE), ranges]).astype(np.uint8),
        range_sizes=sizes,
        is_continuation=np.zeros(29, np.bool_),
    )
    originals = [5] * 6 + [6] * 3 + [28] + [1] * 4  # id 1 may replace nothing
    expected = np.zeros(NUM_ID_RANGES)
    for original in originals:
        seen = [token_id for token_id in range(5, 29) if token_id != original]
        for token_id in seen:
            expected[ranges[token_id - 5]] += 1 / len(seen)
    tally = _tally()
    tally.num_other = len(originals)
    tally.originals_by_range += np.bincount(vocabulary.range_of_id[originals], minlength=NUM_ID_RANGES + 1)
    tally.others_by_range[0] = len(originals)
    found = {s.name: s for s in judge_draws(tally, BuildConfig(), vocabulary)}["random ids"]
    assert found.expected == pytest.approx(expected / len(originals))
    assert not found.ok
    assert "random ids (part 1 of 16): 100.00% of 14 random tokens" in found.complaint


@pytest.mark.parametrize("num_places", [1, 3, 8, 9, 125])
def test_each_place_is_as_likely_as_any_other(num_places: int) -> None:
    tally = _tally()
    tally.chosen_by_places[:] = 0
    tally.chosen_by_places[num_places] = 7
    tally.by_part[:] = 0
    tally.by_part[0] = 7
    parts = [place * NUM_PARTS // num_places for place in range(num_places)]
    expected = [parts.count(part) for part in range(NUM_PARTS)]
    assert _judge(tally)["positions"].expected == pytest.approx(np.array(expected) / num_places)


def test_without_a_draw_there_is_nothing_to_judge() -> None:
    assert _judge(DrawTally()) == {}
