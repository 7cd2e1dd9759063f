"""A long tail of the noise: how often it is seen, and what it does to verdicts that do not see it."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from ablate.stats import Allowance, SeedSchedule, Tails, bounds, judge, over_looks, summarise, tails_of
from ablate.stats.bounds import p_above, p_below
from ablate.stats.calibrate import rate

MARGIN, STUDIES = 0.05, 250


def lognormal(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Mean 0, standard deviation 0.02, and a long tail towards worse."""
    noise = rng.lognormal(0.0, 1.0, shape) - np.exp(0.5)
    return 0.02 * noise / np.sqrt((np.e - 1) * np.e)


def rare(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    """One seed in ten ends 0.5 worse."""
    return rng.normal(0.0, 0.02, shape) + 0.5 * (rng.random(shape) < 0.1) - 0.05


def normal(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    return rng.normal(0.0, 0.02, shape)


def words(differences: NDArray[np.float64], *, see: bool = True) -> list[str]:
    """The verdicts of a study whose comparisons have these differences."""
    tails = tails_of(differences.tolist()) if see else None
    zeros = dict.fromkeys(range(differences.shape[1]), 0.0)
    return [
        judge(dict(enumerate(row)), zeros, margin=MARGIN, direction="minimize", allowance=Allowance(tails=tails)).word
        for row in differences.tolist()
    ]


@pytest.mark.parametrize("noise", [lognormal, rare])
def test_eight_comparisons_of_ten_seeds_hold_what_they_promise(noise: object) -> None:
    rng = np.random.default_rng(1)
    studies = [MARGIN + noise(rng, (8, 10)) for _ in range(STUDIES)]  # type: ignore[operator]
    wrong = np.array([word == "not needed" for study in studies for word in words(study)])
    unseen = np.array([word == "not needed" for study in studies[:50] for word in words(study, see=False)])
    assert rate(wrong).share <= 0.05
    assert rate(unseen).low > 0.10  # what the t-bound alone does here


def test_normal_noise_loses_little_power() -> None:
    rng = np.random.default_rng(2)
    studies = [0.02 + normal(rng, (8, 5)) for _ in range(STUDIES)]
    kept = np.mean([word == "not needed" for study in studies for word in words(study)])
    plain = np.mean([word == "not needed" for study in studies for word in words(study, see=False)])
    assert plain - kept <= 0.03


@pytest.mark.parametrize(("shared", "comparisons"), [(0.0, 8), (0.5, 4), (0.95, 8)])
def test_normal_noise_is_taken_for_a_tail_as_often_as_is_said(shared: float, comparisons: int) -> None:
    """However much of the noise comparisons share: the baseline's is in all, and variants may hardly add to it."""
    rng = np.random.default_rng(3)
    studies = [
        math.sqrt(1 - shared) * normal(rng, (comparisons, 6)) + math.sqrt(shared) * normal(rng, (1, 6))
        for _ in range(STUDIES)
    ]
    seen = rate(np.array([tails_of(study.tolist()) is not None for study in studies]))
    assert seen.low <= 0.1 <= seen.high
    alone = rate(np.array([tails_of(normal(rng, (1, 10)).tolist()) is not None for _ in range(STUDIES)]))
    assert alone.low <= 0.05 <= alone.high


UP = Tails(1.0, 0.05, 8, low=False, high=True)


@pytest.mark.parametrize("tails", [None, UP, UP.turned(), UP.both(), dataclasses.replace(UP, comparisons=1)])
@pytest.mark.parametrize("pairs", range(7))
def test_p_values_reject_where_bounds_decide_for_any_number_of_pairs(pairs: int, tails: Tails | None) -> None:
    rng = np.random.default_rng(pairs)
    for _ in range(10):
        values = rng.normal(0.03, 0.02, pairs).tolist()
        summary, allowance = summarise(values), Allowance(low=0.01, high=0.02, tails=tails)
        found = list(bounds(values, None, 0.05, allowance))
        assert len(found) == (pairs > 1)
        for tested in np.linspace(-0.1, 0.2, 13):
            above, below = p_above(summary, tested, allowance), p_below(summary, tested, allowance)
            assert 0.0 <= min(above, below) <= max(above, below) <= 1.0
            assert (above < 0.05) == any(one.low > tested for one in found)
            assert (below < 0.05) == any(one.high < tested for one in found)
        zeros = dict.fromkeys(range(pairs), 0.0)
        verdict = judge(
            dict(enumerate(values)), zeros, margin=MARGIN, direction="minimize", allowance=Allowance(tails=tails)
        )
        assert pairs > 1 or (verdict.word, verdict.p_needed, verdict.p_not_needed) == ("undecided", 1.0, 1.0)


def test_from_few_comparisons_the_endangered_word_is_withheld_with_the_reason() -> None:
    row = [0.0, 0.001, 0.002, 0.001, 0.0, 0.002, 0.001, 0.0, 0.03, 0.001]
    tails = tails_of([row])
    assert tails is not None
    assert (tails.high, tails.low, tails.pooled) == (True, False, False)
    assert [found.pooled for number in (3, 4) if (found := tails_of([row] * number))] == [False, True]
    allowance = Allowance(tails=tails, why_high=("a seed ends far worse",))
    zeros = dict.fromkeys(range(10), 0.0)
    verdict = judge(dict(enumerate(row)), zeros, margin=MARGIN, direction="minimize", allowance=allowance)
    assert verdict.sentence == "undecided: a seed ends far worse"
    assert verdict.withheld == "a seed ends far worse"
    assert verdict.p_not_needed == 1.0
    worse = {seed: 1.0 + value for seed, value in enumerate(row)}
    assert judge(worse, zeros, margin=MARGIN, direction="minimize", allowance=allowance).word == "needed"


def gamma(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Mean 0, standard deviation 0.02, most seeds a little better and few far worse."""
    return 0.02 * (rng.gamma(0.5, 1.0, shape) - 0.5) / np.sqrt(0.5)


def test_four_seeds_of_ten_comparisons_hold_what_they_promise() -> None:
    rng = np.random.default_rng(11)
    studies = [MARGIN + gamma(rng, (10, 4)) for _ in range(STUDIES)]
    wrong = np.array([word == "not needed" for study in studies for word in words(study)])
    unseen = np.array([word == "not needed" for study in studies[:50] for word in words(study, see=False)])
    assert rate(wrong).share <= 0.05
    assert rate(unseen).low > 0.15
    fine = [normal(rng, (10, 4)) for _ in range(STUDIES)]
    kept = np.mean([word == "not needed" for study in fine for word in words(study)])
    plain = np.mean([word == "not needed" for study in fine for word in words(study, see=False)])
    assert plain - kept <= 0.05


def test_intervals_allow_for_a_tail_that_the_study_shows() -> None:
    rng, missed, unseen = np.random.default_rng(12), [], []
    for _ in range(120):
        study = gamma(rng, (8, 5)).tolist()
        allowance = Allowance(tails=tails_of(study))
        for row in study:
            for found, shown in (
                (missed, over_looks(summarise(row), None, allowance=allowance)),
                (unseen, summarise(row)),
            ):
                assert shown.low is not None
                assert shown.high is not None
                found.append(not shown.low <= 0.0 <= shown.high)
    assert rate(np.array(missed)).low <= 0.05
    assert rate(np.array(unseen)).low > 0.10


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_an_interval_widens_on_the_side_of_the_tail_alone(side: float) -> None:
    rows = [[side * value for value in row] for row in gamma(np.random.default_rng(13), (8, 6)).tolist()]
    tails = tails_of(rows)
    assert tails is not None
    for one in (tails, dataclasses.replace(tails, comparisons=1)):
        for row in rows:
            plain, wide = summarise(row), over_looks(summarise(row), None, allowance=Allowance(tails=one))
            assert plain.low is not None
            assert plain.high is not None
            ends = (plain.low - (wide.low or 0.0), (wide.high or 0.0) - plain.high)
            near, far = ends if side > 0 else ends[::-1]
            assert near == pytest.approx(0.0, abs=1e-12)
            assert 0.0 < far < np.inf
    none = over_looks(summarise(rows[0]), None, allowance=Allowance(low=np.inf))
    assert none == summarise(rows[0]), "what allows for more than a tail is not part of an interval"


def test_a_variant_that_barely_trains_does_not_widen_the_bounds_of_the_others() -> None:
    """Its noise is of another scale at all seeds; one seed far off is a tail, and all share it."""
    rng = np.random.default_rng(6)
    wrong, kept = list[bool](), list[bool]()
    for _ in range(STUDIES // 3):
        broken = 1.0 + 0.3 * rng.gamma(1.0, 1.0, (1, 5))
        for truth, found in ((MARGIN, wrong), (0.0, kept)):
            found += [
                word == "not needed" for word in words(np.concatenate([truth + normal(rng, (7, 5)), broken]))[:-1]
            ]
    assert rate(np.array(wrong)).share <= 0.05
    assert np.mean(kept) > 0.85
    skewed = [[0.0, 0.0, 0.01 * n, 0.02, 0.1] for n in range(5)]
    pooled = math.sqrt(np.mean([np.var(row, ddof=1) for row in skewed]))
    ordinary, beside = tails_of(skewed), tails_of([*skewed, [1.0, 2.0, 3.0, 4.0, 9.0]])
    assert ordinary is not None
    assert beside is not None
    assert ordinary.sd == beside.sd == pytest.approx(pooled)
    for few in ([0.0, 0.01, 0.02, 0.0, 9.0], [0.0, 0.01, 0.02, 9.0, 8.0]):
        far = tails_of([*skewed, few])
        assert far is not None
        assert far.sd > 1.0, "few seeds far off are a tail, which all comparisons may have"


def test_what_is_left_out_of_the_pool_is_bounded_as_before() -> None:
    """Half of the variants scatter ten times as much: each keeps the bounds that all comparisons together give."""
    rng = np.random.default_rng(7)
    wrong = list[bool]()
    for _ in range(STUDIES):
        drawn = np.array([[1.0]] * 4 + [[10.0]] * 4) * lognormal(rng, (8, 10))
        tails = tails_of(drawn.tolist())
        assert tails is not None
        pooled = math.sqrt(drawn.var(axis=1, ddof=1).mean())
        for row in drawn:
            if row.std(ddof=1) > tails.largest:
                assert tails.standard_deviation(float(row.std(ddof=1))) == pytest.approx(max(pooled, row.std(ddof=1)))
        wrong += [word == "not needed" for word in words(MARGIN + drawn)[4:]]
    assert rate(np.array(wrong)).share <= 0.05


def test_fewer_than_three_seeds_or_five_of_few_comparisons_show_no_tail() -> None:
    assert tails_of([[0.0, 9.0]] * 5) is None
    assert tails_of([[0.0, 0.0, 0.0, 9.0]] * 3) is None
    assert tails_of([[0.0, 0.0, 0.0, 0.0, 9.0]] * 3) is not None
    found, negated = tails_of([[0.0, 0.0, 0.0, 9.0]] * 5), tails_of([[0.0, 0.0, 0.0, -9.0]] * 5)
    assert found is not None
    assert found.high
    assert found.turned() == negated
    assert tails_of([]) is None
    assert tails_of([[1.0] * 8]) is None


def test_an_interval_holds_the_truth_whichever_look_a_study_stops_at() -> None:
    rng, schedule, missed = np.random.default_rng(14), SeedSchedule(3, 12), {False: list[bool](), True: list[bool]()}
    for _ in range(4 * STUDIES):
        row = (MARGIN + normal(rng, (1, 12))[0]).tolist()
        looks = enumerate(bounds(row, schedule, 0.05), start=3)
        stop = next((seeds for seeds, one in looks if one.low > MARGIN or one.high < MARGIN), 12)
        for over in missed:
            shown = over_looks(summarise(row[:stop]), schedule if over else None)
            assert shown.low is not None
            assert shown.high is not None
            missed[over].append(not shown.low <= MARGIN <= shown.high)
    assert rate(np.array(missed[False])).low > 0.05, "of a number of seeds that was chosen by their results"
    assert rate(np.array(missed[True])).low <= 0.05
    paired = summarise([0.0, 1.0])
    assert over_looks(paired, schedule) == paired, "nothing was selected before the first look"
