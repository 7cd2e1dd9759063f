"""What choosing a value by few seeds costs: the bound of the regret, and the verdicts with it and without."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ablate.stats import Allowance, judge
from ablate.stats.calibrate import rate
from ablate.stats.hidden_noise import regret_bound, tuning_noise

MARGIN, SD, STUDIES = 1.0, 0.1, 1_500


def tuned(
    rng: np.random.Generator, regrets: list[float], seeds: int, sd: float = SD
) -> tuple[list[dict[int, float]], int]:
    """What each value gives with each tuning seed, and which is chosen."""
    tried = [dict(enumerate((regret + rng.normal(0, sd, seeds)).tolist())) for regret in regrets]
    means = [math.fsum(one.values()) for one in tried]
    return tried, means.index(min(means))


@pytest.mark.parametrize("regret", [0.05, 0.1, 0.2, 0.3])
def test_verdicts_hold_although_two_seeds_chose_the_values(regret: float) -> None:
    rng = np.random.default_rng(4)
    regrets, needed, plain = [0.0, regret, regret], [], []
    for _ in range(STUDIES):
        sides = [tuned(rng, regrets, 2) for _ in range(4)]
        (ours, chosen), (theirs, base) = sides[:2]
        truth = MARGIN + regrets[chosen] - regrets[base]  # the best values differ by the margin
        row = dict(enumerate((truth + rng.normal(0, SD, 10)).tolist()))
        allowance = Allowance(
            low=regret_bound(ours, chosen, *tuning_noise([ours])),
            high=regret_bound(theirs, base, *tuning_noise([theirs])),
        )
        zeros = dict.fromkeys(row, 0.0)
        needed.append(judge(row, zeros, margin=MARGIN, direction="minimize", allowance=allowance).word == "needed")
        plain.append(judge(row, zeros, margin=MARGIN, direction="minimize").word == "needed")
    assert rate(np.array(needed)).low <= 0.05
    if regret == 0.1:
        assert rate(np.array(plain)).low > 0.10


@pytest.mark.parametrize("regret", [0.4, 0.6])
def test_a_baseline_noisier_than_its_variants_does_not_make_them_fine(regret: float) -> None:
    rng, own, pooled = np.random.default_rng(7), [], []
    for _ in range(STUDIES):
        sides = [tuned(rng, [0.0, regret, regret], 2, SD * (3 if place == 0 else 1)) for place in range(4)]
        (theirs, base), (_, chosen) = sides[:2]
        truth = MARGIN + (0.0, regret, regret)[chosen] - (0.0, regret, regret)[base]
        row = dict(enumerate((truth + rng.normal(0, SD, 10)).tolist()))
        zeros = dict.fromkeys(row, 0.0)
        for words, noise in ((own, [theirs]), (pooled, [tried for tried, _ in sides])):
            allowance = Allowance(high=regret_bound(theirs, base, *tuning_noise(noise)))
            verdict = judge(row, zeros, margin=MARGIN, direction="minimize", allowance=allowance)
            words.append(verdict.is_acceptable)
    assert rate(np.array(own)).low <= 0.05
    assert rate(np.array(pooled)).low > 0.06


def test_the_bound_holds_the_regret_for_each_value() -> None:
    rng, held = np.random.default_rng(5), []
    for _ in range(STUDIES):
        sides = [tuned(rng, [0.0, 0.1, 0.15], 2) for _ in range(6)]
        tried, chosen = sides[0]
        held.append(regret_bound(tried, chosen, *tuning_noise([tried])) >= (0.0, 0.1, 0.15)[chosen])
    assert rate(np.array(held)).low >= 1 - 2 * 0.05  # either of the two worse values may be the chosen one


def test_the_noise_of_tuning_is_that_of_a_difference_between_two_values() -> None:
    rng = np.random.default_rng(6)
    shift = rng.normal(0, 5, (200, 1, 4))  # what a seed does to all values alike is not noise of the choice
    tables = shift + rng.normal(0, SD, (200, 3, 4))
    sd, freedom = tuning_noise([[dict(enumerate(row)) for row in table] for table in tables.tolist()])
    assert freedom == 200 * 2 * 3
    assert sd == pytest.approx(SD * math.sqrt(2), rel=0.05)


def test_a_value_that_lost_a_seed_is_no_rival_and_one_seed_shows_no_noise() -> None:
    tried = [{0: 1.0, 1: 1.0}, {0: 0.5}, {0: 2.0, 1: 2.1}]
    assert regret_bound(tried, 0, 0.01, 3) == 0.0
    assert tuning_noise([[{0: 1.0}, {0: 2.0}]]) == (0.0, 0)
    assert regret_bound([{0: 1.0}, {0: 2.0}], 0, 0.0, 0) == math.inf
    assert regret_bound([{0: 1.0, 1: 1.0}, {0: 0.5}], 0, 0.0, 0) == 0.0, "no rival is left"
