"""BCa intervals against scipy's, and why they start at `MANY` seeds: coverage of a skewed mean, next to t's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from ablate.stats.calibrate import rate
from ablate.stats.paired import MANY, RESAMPLES, bca_interval, bca_quantiles, mean_interval, resampled_means, summarise


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
    values = np.random.default_rng(2).exponential(size=MANY).tolist()
    ours, fewer = mean_interval(values), mean_interval(values[:-1])
    t, bootstrapped = stats.ttest_1samp(values, 0).confidence_interval(0.95), bca_interval(values)
    wider = (min(t.low, bootstrapped[0]), max(t.high, bootstrapped[1]))
    assert (ours.low, ours.high) == pytest.approx(wider)
    assert t.low < bootstrapped[0], "of values with a tail above, each of them is wider on one side"
    assert t.high < bootstrapped[1]
    reference = stats.ttest_1samp(values[:-1], 0).confidence_interval(0.95)
    assert (fewer.low, fewer.high) == pytest.approx((reference.low, reference.high))
    assert summarise(values).low == ours.low


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
