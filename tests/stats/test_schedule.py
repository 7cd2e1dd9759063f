"""Sequential seeds against fresh simulations: boundaries, and the chance that further seeds decide."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from ablate.stats import ExtendedSeeds, SeedSchedule, bounds, judge, need_more_seeds, summarise
from ablate.stats.calibrate import ALPHAS, boundaries, running_p
from ablate.stats.further import chance_of_decision, further_pairs

PATHS = 20_000


def p_at_looks(differences: NDArray[np.float64], looks: range) -> NDArray[np.float64]:
    """One-sided p-values by scipy, look by look."""
    return np.stack(
        [stats.ttest_1samp(differences[:, :n], 0.0, axis=1, alternative="greater").pvalue for n in looks], axis=1
    )


@pytest.mark.parametrize(("start", "last"), [(2, 8), (3, 20), (5, 12), (10, 50)])
def test_error_over_all_looks_is_the_declared_one(start: int, last: int) -> None:
    schedule, looks = SeedSchedule(start, last), range(start, last + 1)
    p = p_at_looks(np.random.default_rng(start).normal(0, 0.02, (PATHS, last)), looks)
    for error in (0.05, 0.01):
        levels = np.array([schedule.level(n, error) for n in looks])
        wrong = int((p < levels).any(axis=1).sum())
        assert stats.binomtest(wrong, PATHS, error).pvalue > 0.001
    assert (p < 0.05).any(axis=1).mean() > 0.08  # what stopping at the first p below 5 % would do


def test_p_values_agree_with_scipy() -> None:
    differences = np.random.default_rng(1).normal(0.01, 0.02, (50, 9))
    assert running_p(differences, 0.0) == pytest.approx(p_at_looks(differences, range(2, 10)), abs=1e-12)
    assert running_p(np.array([[0.5, 0.5, 0.5]]), 0.25).tolist() == [[0.0, 0.0]]
    assert running_p(np.array([[0.5, 0.5, 0.5]]), 0.5).tolist() == [[1.0, 1.0]]


def test_the_table_is_what_its_script_makes() -> None:
    again = boundaries(40_000, seed=5)
    for (start, last), levels in again.items():
        schedule = SeedSchedule(start, last)
        for error, k in zip(ALPHAS[:3], levels, strict=False):
            # k at an error rate e is a quantile of 40,000 draws: off by a few 1/sqrt(40,000 e) of itself.
            assert schedule.level(start, error) / start**0.5 == pytest.approx(k, rel=6 / (40_000 * error) ** 0.5)


def test_levels_grow_with_seeds_and_shrink_with_the_error() -> None:
    schedule = SeedSchedule(3, 20)
    levels = [schedule.level(n) for n in range(3, 21)]
    assert levels == sorted(levels)
    assert levels[-1] < 0.05
    assert schedule.level(2) == schedule.level(21) == 0.0
    assert schedule.level(5, 0.04) == schedule.level(5, 0.025)  # the next smaller one of the table
    assert schedule.level(5, 0.05 / 1000) == 0.0


def test_overall_p_is_the_least_error_that_decides() -> None:
    schedule = SeedSchedule(3, 20)
    for error in ALPHAS:
        assert schedule.overall({3: 0.9, 7: schedule.level(7, error) * 0.999}) == error
    assert schedule.overall({2: 0.0, 5: 0.5}) == 1.0


@pytest.mark.parametrize(("start", "last"), [(1, 20), (3, 3), (3, 51), (11, 20), (5, 4)])
def test_a_schedule_without_boundaries_is_refused(start: int, last: int) -> None:
    with pytest.raises(ValueError, match="starts with 2 to 10 seeds"):
        SeedSchedule(start, last)


def test_bounds_at_looks_are_those_of_the_level() -> None:
    values = np.random.default_rng(2).normal(0.01, 0.02, 6)
    schedule = SeedSchedule(3, 8)
    found = list(bounds(values.tolist(), schedule))
    assert [bound.n for bound in found] == [3, 4, 5, 6]
    for bound in found:
        confidence = 1 - 2 * schedule.level(bound.n)
        low, high = stats.ttest_1samp(values[: bound.n], 0).confidence_interval(confidence)
        assert (bound.low, bound.high) == pytest.approx((low, high))
    assert list(bounds(values[:2].tolist(), schedule)) == []
    assert [bound.n for bound in bounds(values.tolist(), None)] == [6]


def test_more_seeds_are_added_only_where_they_may_decide() -> None:
    seeds = range(4)
    baseline = dict.fromkeys(seeds, 3.0)
    variants = {
        "far worse": {seed: 4.0 + seed / 100 for seed in seeds},
        "the same": {seed: 3.0 + seed / 1000 for seed in seeds},
        "at the margin": {seed: 3.04 + seed / 100 for seed in seeds},
        "too few": {0: 4.0, 1: 4.0},
        "diverged": {0: 3.04},
    }
    ask = {"margin": 0.05, "direction": "minimize", "diverged": {"diverged": {1: 7}}}
    assert need_more_seeds(variants, baseline, schedule=SeedSchedule(3, 20), **ask) == ("at the margin", "too few")  # type: ignore[arg-type]
    assert need_more_seeds(variants, baseline, schedule=SeedSchedule(3, 4), **ask) == ("too few",)  # type: ignore[arg-type]
    for most in (4, 5):
        said = further_pairs(summarise([0.04, 0.05, 0.06, 0.07]), 0.05, SeedSchedule(3, most)).reason
        assert (said == "4 seeds, the maximum of this study, do not decide") == (most == 4)


def test_seeds_added_as_asked_end_where_all_seeds_would() -> None:
    # Whatever is left out once a comparison is decided would not have changed its verdict.
    rng, schedule, used = np.random.default_rng(12), SeedSchedule(3, 12), 0
    for _ in range(25):
        loss = 3.0 + rng.normal(0, 0.1, 12)
        truths = {str(truth): truth for truth in (0.0, 0.03, 0.05, 0.08, 0.5)}
        all_of_it = {name: loss + truth + rng.normal(0, 0.02, 12) for name, truth in truths.items()}
        baseline = dict(enumerate(loss.tolist()))
        some = {name: dict(list(enumerate(values.tolist()))[:3]) for name, values in all_of_it.items()}
        while asked := need_more_seeds(some, baseline, margin=0.05, direction="minimize", schedule=schedule):
            for name in asked:
                some[name][len(some[name])] = float(all_of_it[name][len(some[name])])
        used += sum(map(len, some.values()))
        for name, values in all_of_it.items():
            verdicts = [
                judge(found, baseline, margin=0.05, direction="minimize", schedule=schedule)
                for found in (some[name], dict(enumerate(values.tolist())))
            ]
            assert verdicts[0].word == verdicts[1].word
            assert verdicts[0].word != "undecided" or len(some[name]) == 12
    assert used < 0.65 * 25 * 5 * 12


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


@pytest.mark.parametrize(("n", "further", "distance"), [(2, 1, 5.0), (2, 8, 1.0), (5, 12, 0.4), (10, 40, 0.4)])
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
    assert chance_of_decision(-distance, 1.0, n, further) == chance


def test_more_seeds_and_a_larger_difference_raise_it_and_a_schedule_has_its_own_levels() -> None:
    by_seeds = [chance_of_decision(0.7, 1.0, 5, further) for further in (2, 10, 50)]
    by_distance = [chance_of_decision(distance, 1.0, 5, 10) for distance in (0.1, 0.7, 1.5)]
    assert by_seeds == sorted(by_seeds)
    assert by_distance == sorted(by_distance)
    assert chance_of_decision(0.7, 1.0, 5, 10, SeedSchedule(3, 20)) > by_seeds[1]
