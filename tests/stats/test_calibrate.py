"""Calibration against statsmodels and simulated truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest
from statsmodels.stats.power import TTestPower

from ablate.stats import SeedSchedule, summarise
from ablate.stats.calibrate import Noise, calibrate, detectable, pooled_noise, rate


@pytest.mark.parametrize("seeds", [2, 3, 10, 40])
def test_detectable_difference_agrees_with_statsmodels(seeds: int) -> None:
    effect = detectable(0.02, seeds) / 0.02
    assert TTestPower().power(effect, seeds, 0.05, alternative="larger") == pytest.approx(0.8, abs=1e-6)
    with pytest.raises(ValueError, match="below 2 seeds"):
        detectable(0.02, 1)


def test_noise_is_pooled_over_comparisons() -> None:
    rng = np.random.default_rng(0)
    noise = pooled_noise(summarise(rng.normal(truth, 0.02, 3).tolist()) for truth in np.linspace(0, 1, 400))
    assert noise is not None
    assert noise.sd == pytest.approx(0.02, rel=0.06)
    assert np.std(noise.residuals) == pytest.approx(0.02, rel=0.06)  # the scaling makes up for the means
    assert noise.least < 0.02 < noise.most
    assert noise.comparisons == 400


def test_noise_of_a_hand_made_study() -> None:
    noise = pooled_noise([summarise([1.0, 3.0]), summarise([0.0, 0.0, 0.0]), summarise([5.0])])
    assert noise is not None
    assert noise.sd == pytest.approx((2 / 3) ** 0.5)  # squares 2 and 0, degrees of freedom 1 and 2
    assert (noise.least, noise.comparisons) == (0.0, 2)
    assert pooled_noise([summarise([5.0]), summarise([1.0, 1.0])]) is None


@pytest.mark.parametrize(("hits", "count"), [(0, 20), (1, 20), (7, 400), (20, 20)])
def test_the_interval_of_a_rate_is_that_of_clopper_and_pearson(hits: int, count: int) -> None:
    found, known = rate(np.arange(count) < hits), binomtest(hits, count).proportion_ci()
    assert (found.share, found.low, found.high) == pytest.approx((hits / count, known.low, known.high))


def test_rates_at_a_known_noise() -> None:
    normal = Noise(0.02, 0.01, 0.03, 1, 100_000, 100_000, ())
    drawn = Noise(0.02, 0.01, 0.03, 9, 100_000, 100_000, tuple(np.random.default_rng(1).normal(0, 0.02, 200).tolist()))
    for noise in (normal, drawn):
        three, ten, adaptive = calibrate(noise, 0.05, (3, 10), SeedSchedule(3, 20))
        for power in (three, ten, adaptive):
            assert power.false_needed.low <= 0.06
            assert power.false_not_needed.low <= 0.06
        assert three.detectable_difference > adaptive.detectable_difference > detectable(0.02, 20)
        assert three.detectable_noisiest == pytest.approx(detectable(0.03, 3), rel=1e-4)
        assert adaptive.detectable_noisiest == pytest.approx(1.5 * adaptive.detectable_difference)
        assert three.power_at_zero.share == pytest.approx(
            TTestPower().power(2.5, 3, 0.05, alternative="larger"), abs=0.04
        )
        assert (ten.power_at_zero.share, adaptive.power_at_zero.share) == (1.0, 1.0)
        assert (three.mean_seeds, ten.mean_seeds) == (3, 10)
        assert 3 < adaptive.mean_seeds < 6


def test_the_noise_of_a_study_is_drawn_with_its_skew() -> None:
    # The mean of few exponential values lies below the truth more often than above, so `not needed` is too easy.
    residuals = tuple((np.random.default_rng(2).exponential(0.02, 300) - 0.02).tolist())
    (power,) = calibrate(Noise(0.02, 0.02, 0.02, 30, 270, 9, residuals), 0.05, (5,))
    assert power.false_not_needed.low > 0.06
    assert power.false_needed.high < 0.05


def test_an_estimated_noise_is_allowed_for() -> None:
    """A minimum detectable difference estimated from each study is detected as often as promised, over studies."""
    rng = np.random.default_rng(5)
    seeds, studies = 6, 40_000
    estimates = rng.standard_normal((studies, seeds)).std(axis=1, ddof=1)
    rows = (detectable(1.0, seeds, freedom=seeds - 1) * estimates)[:, None] + rng.standard_normal((studies, seeds))
    t = rows.mean(axis=1) / (rows.std(axis=1, ddof=1) / math.sqrt(seeds))
    told = (t > 2.01505).mean()  # t at 95 % for 5 degrees of freedom, printed table
    assert told == pytest.approx(0.8, abs=0.012)
    assert detectable(1.0, seeds, freedom=100_000) == pytest.approx(detectable(1.0, seeds), rel=1e-3)
