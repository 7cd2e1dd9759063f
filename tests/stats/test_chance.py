"""The chance that further seeds decide: against simulated continuations, and what it depends on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ablate.stats import ExtendedSeeds, SeedSchedule, judge
from ablate.stats.further import chance_of_decision

MARGIN, SD = 0.05, 0.02


@pytest.mark.parametrize("n", [3, 8])
def test_further_seeds_decide_as_often_as_is_said_on_average_over_differences(n: int) -> None:
    rng, said, decided = np.random.default_rng(n), [], []
    while len(said) < 250:
        row = MARGIN + SD * (rng.uniform(-8, 8) + rng.standard_normal(n + 100))
        first = judge(dict(enumerate(row[:n])), dict.fromkeys(range(n), 0.0), margin=MARGIN, direction="minimize")
        if first.chance is None or first.further_seeds is None:
            continue
        total = n + first.further_seeds
        plan = ExtendedSeeds((n, total))
        last = judge(
            dict(enumerate(row[:total])),
            dict.fromkeys(range(total), 0.0),
            margin=MARGIN,
            direction="minimize",
            schedule=plan,
        )
        said.append(first.chance)
        decided.append(last.is_decided)
    short = np.mean(said) - np.mean(decided)
    assert short <= 0.08, "decided less often than was said"
    assert short >= -0.15
    assert 0.4 < np.mean(said) < 0.8, "the chance is not that of a difference that is known"


@pytest.mark.parametrize(("n", "further", "distance"), [(2, 1, 5.0), (3, 1, 0.4), (5, 12, 0.4), (10, 40, 0.4)])
def test_agrees_with_a_slow_simulation(n: int, further: int, distance: float) -> None:
    rng = np.random.default_rng(1)
    row = stats.zscore(rng.standard_normal(n), ddof=1) + distance  # the mean; the standard deviation is 1
    level, decided = ExtendedSeeds((n, n + further)).level(n + further), []
    for _ in range(2_500):
        sd = np.sqrt((n - 1) / rng.chisquare(n - 1))
        truth = distance + sd / np.sqrt(n) * rng.standard_normal()
        whole = np.concatenate([row, truth + sd * rng.standard_normal(further)])
        t = whole.mean() / (whole.std(ddof=1) / np.sqrt(len(whole)))
        decided.append(abs(t) > stats.t.ppf(1 - level, len(whole) - 1))
    assert chance_of_decision(distance, 1.0, n, further) == pytest.approx(np.mean(decided), abs=0.05)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.01, 3.0), st.floats(0.01, 10.0), st.integers(2, 12), st.integers(1, 60))
def test_it_is_a_share_has_no_unit_and_no_side(distance: float, scale: float, n: int, further: int) -> None:
    chance = chance_of_decision(distance, 1.0, n, further)
    assert 0.0 <= chance <= 1.0
    assert chance_of_decision(distance * scale, scale, n, further) == pytest.approx(chance, abs=0.01)
    assert chance_of_decision(-distance, 1.0, n, further) == pytest.approx(chance, abs=0.06)


def test_more_seeds_and_a_larger_difference_raise_it_and_a_schedule_has_its_own_levels() -> None:
    by_seeds = [chance_of_decision(0.7, 1.0, 5, further) for further in (2, 10, 50)]
    by_distance = [chance_of_decision(distance, 1.0, 5, 10) for distance in (0.1, 0.7, 1.5)]
    assert by_seeds == sorted(by_seeds)
    assert by_distance == sorted(by_distance)
    assert chance_of_decision(0.7, 1.0, 5, 10, SeedSchedule(3, 20)) > by_seeds[1]
