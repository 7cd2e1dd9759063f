"""Means, paired differences, sign flips and BCa intervals against scipy, statsmodels and simulated truth."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.weightstats import DescrStatsW

from ablate.stats import mean_interval, paired_difference, sign_flip, summarise
from ablate.stats.bounds import bounds
from ablate.stats.calibrate import rate
from ablate.stats.paired import MANY, MOST_EXACT, RESAMPLES, bca_interval, bca_quantiles, resampled_means


@pytest.mark.parametrize("n", [2, 3, 5, 11])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_mean_interval_agrees_with_statsmodels(n: int, confidence: float) -> None:
    values = np.random.default_rng(n).normal(3.4, 0.05, n)
    low, high = DescrStatsW(values).tconfint_mean(alpha=1 - confidence)
    ours = mean_interval(values.tolist(), confidence)
    assert ours.n == n
    assert (ours.mean, ours.low, ours.high) == pytest.approx((values.mean(), low, high), rel=1e-10)


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e6])
def test_the_spread_is_that_of_exact_fractions(size: float) -> None:
    rng = np.random.default_rng(5)
    for n in range(2, 30):
        values = (3.4 + size * rng.normal(size=n)).tolist()
        assert summarise(values).sd == pytest.approx(statistics.stdev(values), rel=1e-14)
        assert summarise([values[0]] * n).sd == 0, "so small a difference as rounding makes would be a spread"


@pytest.mark.parametrize("n", [2, 3, 7])
def test_paired_difference_agrees_with_scipy(n: int) -> None:
    rng = np.random.default_rng(n)
    baseline = rng.normal(3.4, 0.1, n)
    variant = baseline + rng.normal(0.05, 0.02, n)
    reference = stats.ttest_rel(variant, baseline)
    interval = reference.confidence_interval(0.95)
    ours = paired_difference(dict(enumerate(variant.tolist())), dict(enumerate(baseline.tolist())))
    assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
    assert ours.difference is not None
    assert ours.standard_error is not None
    assert ours.difference / ours.standard_error == pytest.approx(reference.statistic, rel=1e-9)
    assert ours.sd == pytest.approx(np.std(variant - baseline, ddof=1), rel=1e-9)


def test_only_common_seeds_are_compared() -> None:
    ours = paired_difference({7: 2.0, 1: 1.5, 3: 100.0}, {1: 1.0, 7: 1.0, 9: -100.0})
    assert ours.n == 2
    assert ours.difference == 0.75
    assert ours.sd == pytest.approx(math.sqrt(0.125))  # 0.5 and 1.0 lie 0.25 from their mean


def test_too_few_values_have_no_bounds() -> None:
    none, one = mean_interval([]), mean_interval([3.0])
    assert (none.mean, none.low, none.high, none.n) == (None, None, None, 0)
    assert (one.mean, one.low, one.high, one.n) == (3.0, None, None, 1)
    apart = paired_difference({0: 1.0}, {1: 1.0})
    assert (apart.difference, apart.low, apart.sd, apart.standard_error, apart.n) == (None, None, None, None, 0)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_is_never_averaged(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        mean_interval([1.0, bad])


@pytest.mark.parametrize("n", [2, 3, 8])
def test_p_values_agree_with_scipy_and_statsmodels(n: int) -> None:
    rng = np.random.default_rng(n)
    variant, baseline = rng.normal(3.42, 0.03, n), rng.normal(3.4, 0.03, n)
    ours = paired_difference(dict(enumerate(variant.tolist())), dict(enumerate(baseline.tolist())))
    for tested in (-0.02, 0.0, 0.05):
        greater = stats.ttest_rel(variant - tested, baseline, alternative="greater").pvalue
        assert ours.p_above(tested) == pytest.approx(greater)
        assert ours.p_below(tested) == pytest.approx(1 - greater)


def test_p_values_without_spread_or_seeds() -> None:
    flat = summarise([0.25, 0.25])
    assert (flat.p_above(0.0), flat.p_above(0.25), flat.p_above(0.5)) == (0.0, 1.0, 1.0)
    assert (flat.p_below(0.0), flat.p_below(0.25), flat.p_below(0.5)) == (1.0, 1.0, 0.0)
    assert flat.effect_size is None
    assert (summarise([9.0]).p_above(0.0), summarise([]).p_below(0.0)) == (1.0, 1.0)


@pytest.mark.parametrize("n", [3, 5, 12])
def test_effect_size_is_unbiased(n: int) -> None:
    rng = np.random.default_rng(n)
    effects = [summarise(row).effect_size for row in rng.normal(0.04, 0.05, (8000, n)).tolist()]
    spread = np.std(effects) / math.sqrt(8000)
    assert np.mean(effects) == pytest.approx(0.8, abs=4 * spread)
    naive = [row.mean() / row.std(ddof=1) for row in rng.normal(0.04, 0.05, (8000, n))]
    assert np.mean(naive) > 0.8 + 4 * spread  # which is why it is corrected


@pytest.mark.parametrize("n", [2, 3, 6, 11])
def test_agrees_with_scipy(n: int) -> None:
    differences = np.random.default_rng(n).normal(0.03, 0.03, n)
    reference = stats.permutation_test(
        (differences - 0.01,), np.mean, permutation_type="samples", n_resamples=np.inf, alternative="two-sided"
    )
    ours = sign_flip(differences.tolist(), 0.01)
    assert ours.p == pytest.approx(reference.pvalue)


@given(st.lists(st.integers(-20, 20).map(float), min_size=1, max_size=8))
def test_counts_every_pattern(differences: list[float]) -> None:
    observed = abs(sum(differences))
    sums = [sum(s * x for s, x in zip(signs, differences, strict=True))
            for signs in itertools.product((1, -1), repeat=len(differences))]  # fmt: skip
    ours = sign_flip(differences)
    assert ours.p == pytest.approx(np.mean([abs(total) >= observed for total in sums]))
    assert ours.p >= ours.floor == 2 / 2 ** len(differences)


def test_the_floor_is_reached_when_all_seeds_agree() -> None:
    assert sign_flip([0.1, 0.2, 0.3]).p == sign_flip([0.1, 0.2, 0.3]).floor == 0.25
    assert sign_flip([0.1, 0.2, 0.3], tested=0.2).p == 1.0
    all_patterns, drawn = (sign_flip([0.1] * n).floor for n in (MOST_EXACT, MOST_EXACT + 1))
    assert (all_patterns, drawn) == (2 / 2**MOST_EXACT, 1e-5)
    with pytest.raises(ValueError, match="1 difference"):
        sign_flip([])


def test_many_seeds_are_drawn_and_agree_with_all_patterns() -> None:
    differences = np.random.default_rng(3).normal(0.4, 1.0, 22)
    sums = differences[:1]
    for value in differences[1:]:
        sums = np.concatenate([sums + value, sums - value])
    exact = float((np.abs(sums) >= abs(differences.sum())).mean())
    assert sign_flip(differences.tolist()).p == pytest.approx(exact, abs=4 * np.sqrt(exact / 99_999))


def test_error_rate_without_a_normal_distribution() -> None:
    rng = np.random.default_rng(8)
    rejected = sum(sign_flip(rng.standard_cauchy(7).tolist()).p <= 0.05 for _ in range(2000))
    assert stats.binomtest(rejected, 2000, 6 / 128).pvalue > 0.001  # 6 of 128 patterns are the most below 5 %


@pytest.mark.parametrize("confidence", [0.8, 0.95])
@pytest.mark.parametrize("n", [7, 30, 101])
def test_agrees_with_scipy_on_the_same_resamples(n: int, confidence: float) -> None:
    values = np.random.default_rng(n).exponential(0.02, n)
    reference = stats.bootstrap((values,), np.mean, confidence_level=confidence, method="BCa", rng=1)
    probabilities = ((1 - confidence) / 2, (1 + confidence) / 2)
    assert bca_quantiles(values, reference.bootstrap_distribution, probabilities) == pytest.approx(
        tuple(reference.confidence_interval), rel=1e-9
    )


def test_resamples_have_the_mean_and_the_spread_that_theory_says() -> None:
    values = np.random.default_rng(0).normal(3.4, 0.05, 40)
    means = resampled_means(values)
    assert len(means) == RESAMPLES
    assert means.mean() == pytest.approx(values.mean(), abs=5 * values.std() / np.sqrt(40 * RESAMPLES))
    assert means.std() == pytest.approx(values.std() / np.sqrt(40), rel=0.03)


def test_the_same_values_give_the_same_interval_and_no_spread_gives_none() -> None:
    values = np.random.default_rng(0).normal(size=31).tolist()
    assert bca_interval(values) == bca_interval(values)
    assert bca_interval([0.25] * MANY) == (0.25, 0.25)
    with pytest.raises(ValueError, match="2 values"):
        bca_interval([1.0])


def test_intervals_are_bootstrapped_from_many_values_on() -> None:
    values = np.random.default_rng(2).exponential(size=30).tolist()
    ours, fewer = mean_interval(values), mean_interval(values[:-1])
    t, bootstrapped = stats.ttest_1samp(values, 0).confidence_interval(0.95), bca_interval(values)
    wider = (min(t.low, bootstrapped[0]), max(t.high, bootstrapped[1]))
    assert (ours.low, ours.high) == pytest.approx(wider)
    assert t.low < bootstrapped[0], "of values with a tail above, each of them is wider on one side"
    assert t.high < bootstrapped[1]
    reference = stats.ttest_1samp(values[:-1], 0).confidence_interval(0.95)
    assert (fewer.low, fewer.high) == pytest.approx((reference.low, reference.high))
    assert summarise(values).low == ours.low
    for row in (values, [-value for value in values]):
        (decides,) = bounds(row, None)
        t, bootstrapped = stats.ttest_1samp(row, 0).confidence_interval(0.9), bca_interval(row, 0.9)
        wider = (min(t.low, bootstrapped[0]), max(t.high, bootstrapped[1]))
        assert (decides.low, decides.high) == pytest.approx(wider), "each bound has an error rate of 5 %"


def test_intervals_of_thirty_values_with_long_tails_hold_nineteen_times_in_twenty() -> None:
    rng, missed, bootstrapped = np.random.default_rng(8), [], []
    for row in rng.standard_t(3, (400, MANY)).tolist():
        shown, (low, high) = mean_interval(row), bca_interval(row)
        assert shown.low is not None
        assert shown.high is not None
        missed.append(not shown.low <= 0.0 <= shown.high)
        bootstrapped.append(not low <= 0.0 <= high)
    assert rate(np.array(missed)).low <= 0.05
    assert rate(np.array(bootstrapped)).low > 0.05, "BCa alone, as a reminder"


def test_skewed_values_are_covered_better_by_t_when_few_and_by_the_bootstrap_when_many() -> None:
    rng = np.random.default_rng(4)
    missed_few, missed_many = [], []
    for n, missed in ((5, missed_few), (60, missed_many)):
        for _ in range(500):
            values = rng.exponential(1.0, n)
            low, high = bca_interval(values.tolist())
            half = stats.t.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n)
            t_misses = abs(values.mean() - 1.0) > half
            missed.append((not low <= 1.0 <= high, t_misses, high < 1.0, values.mean() + half < 1.0))
    (bca_few, t_few, _, _), (bca_many, _, bca_above, t_above) = np.mean(missed_few, 0), np.mean(missed_many, 0)
    assert t_few < bca_few
    assert bca_many < 0.09
    assert abs(bca_above - 0.025) < abs(t_above - 0.025)  # t misses a skewed mean on one side only
