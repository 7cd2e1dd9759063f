"""Two unpaired means: scipy's and statsmodels's Welch tests as references, and the error rates that are promised."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.weightstats import ttost_ind

from ablate.stats import Allowance, judge, unpaired_difference
from ablate.stats.bounds import p_above, p_below

VALUES = st.lists(st.floats(-100, 100).map(lambda value: round(value, 3)), min_size=2, max_size=9)


def _by_seed(values: list[float]) -> dict[int, float]:
    return dict(enumerate(values))


@pytest.mark.filterwarnings("ignore:Precision loss")  # scipy's, of a side without spread
@settings(max_examples=40, deadline=None)
@given(VALUES, VALUES)
def test_difference_and_interval_are_scipys(variant: list[float], baseline: list[float]) -> None:
    found = unpaired_difference(variant, baseline)
    if found.standard_error == 0:  # no spread on either side
        assert found.low is None
        assert np.ptp(variant) == np.ptp(baseline) == 0
        return
    reference = stats.ttest_ind(variant, baseline, equal_var=False)
    interval = reference.confidence_interval(0.95)
    assert found.difference == pytest.approx(np.mean(variant) - np.mean(baseline), abs=1e-9)
    assert found.low == pytest.approx(interval.low, rel=1e-7, abs=1e-7)
    assert found.high == pytest.approx(interval.high, rel=1e-7, abs=1e-7)
    assert found.degrees == pytest.approx(reference.df, rel=1e-6)  # of nearly equal values
    assert found.n == min(len(variant), len(baseline))
    assert not found.is_paired


def test_p_values_are_those_of_two_one_sided_tests() -> None:
    rng = np.random.default_rng(0)
    variant, baseline = rng.normal(0.1, 1, 6), rng.normal(0, 3, 9)
    found = unpaired_difference(list(variant), list(baseline))
    _, below, above = ttost_ind(variant, baseline, -2.0, 2.0, usevar="unequal")
    assert p_above(found, -2.0) == pytest.approx(below[1], rel=1e-9)
    assert p_below(found, 2.0) == pytest.approx(above[1], rel=1e-9)


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_verdicts_are_those_of_the_bounds(direction: str) -> None:
    sign = 1.0 if direction == "minimize" else -1.0
    baseline = dict(enumerate((1.0, 1.1, 0.9, 1.05)))
    cases = {"needed": 2.0, "not needed": 0.0, "better": -2.0}
    for word, worse in cases.items():
        variant = {seed + 7: value + sign * worse for seed, value in enumerate((1.02, 1.07, 0.93))}
        verdict = judge(variant, baseline, margin=0.5, direction=direction, paired=False)  # type: ignore[arg-type]
        assert verdict.word == word
        ours, theirs = (list(side.values()) for side in (variant, baseline))
        difference = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.9)
        low, high = sorted((sign * difference.low, sign * difference.high))
        assert verdict.bound is not None
        assert (verdict.bound.low, verdict.bound.high) == pytest.approx((low, high), rel=1e-9)


@pytest.mark.parametrize(
    ("variant", "baseline", "reason"),
    [
        ([1.0], [1.0, 2.0], "at least 2 seeds of each are required, 1 finished"),
        ([], [1.0, 2.0], "at least 2 seeds of each are required, 0 finished"),
        ([1.0, 1.0], [0.5, 0.5], "no seed differs from the others of its variant, the difference is 0.5"),
    ],
)
def test_what_has_no_spread_is_undecided(variant: list[float], baseline: list[float], reason: str) -> None:
    verdict = judge(_by_seed(variant), _by_seed(baseline), margin=0.1, direction="minimize", paired=False)
    assert verdict.word == "undecided"
    assert reason in verdict.sentence


def test_one_side_without_spread_is_judged_by_the_spread_of_the_other() -> None:
    found = unpaired_difference([1.0, 1.0, 1.0], [0.8, 1.1, 0.9])
    assert found.degrees == pytest.approx(2.0)
    assert found.standard_error == pytest.approx(np.std([0.8, 1.1, 0.9], ddof=1) / math.sqrt(3))


def test_an_infinite_allowance_withholds_the_verdict_on_its_side() -> None:
    lost = Allowance(high=math.inf, why_high=("1 trial failed",))
    fine = judge(
        _by_seed([1.0, 1.1, 0.9]),
        _by_seed([1.0, 1.05, 0.95]),
        margin=5,
        direction="minimize",
        allowance=lost,
        paired=False,
    )
    assert (fine.word, fine.withheld) == ("undecided", "1 trial failed")
    worse = judge(
        _by_seed([9.0, 9.1, 8.9]),
        _by_seed([1.0, 1.05, 0.95]),
        margin=1,
        direction="minimize",
        allowance=lost,
        paired=False,
    )
    assert worse.word == "needed"


@pytest.mark.parametrize(("ours", "theirs"), [((3, 1.0), (3, 1.0)), ((3, 1.0), (10, 3.0)), ((10, 3.0), (5, 0.5))])
def test_verdicts_at_the_margin_are_wrong_at_most_as_often_as_promised(
    ours: tuple[int, float], theirs: tuple[int, float]
) -> None:
    rng, draws, wrong = np.random.default_rng(1), 1000, 0
    for _ in range(draws):
        variant = _by_seed(list(rng.normal(1.0, ours[1], ours[0])))
        baseline = _by_seed(list(rng.normal(0.0, theirs[1], theirs[0])))
        verdict = judge(variant, baseline, margin=1.0, direction="minimize", paired=False)
        wrong += verdict.word == "needed"
    assert wrong / draws < 0.05 + 2.5 * math.sqrt(0.05 * 0.95 / draws)
