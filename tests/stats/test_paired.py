"""Means and paired differences against scipy and statsmodels."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.weightstats import DescrStatsW

from ablate.stats import mean_interval, paired_difference, summarise


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
