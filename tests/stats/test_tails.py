"""A long tail of the noise: how often it is seen, and what it does to verdicts that do not see it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from ablate.stats import Allowance, judge, tails_of
from ablate.stats.simulate import rate

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


def test_normal_noise_is_seldom_taken_for_a_tail() -> None:
    rng = np.random.default_rng(3)
    shared = [normal(rng, (8, 6)) + normal(rng, (1, 6)) for _ in range(STUDIES)]  # the baseline's noise is in all
    seen = np.array([tails_of(study.tolist()) is not None for study in shared])
    assert rate(seen).low <= 0.15
    alone = np.array([tails_of(normal(rng, (1, 10)).tolist()) is not None for _ in range(STUDIES)])
    assert rate(alone).low <= 0.05


def test_from_few_comparisons_the_endangered_word_is_withheld_with_the_reason() -> None:
    row = [0.0, 0.001, 0.002, 0.001, 0.0, 0.002, 0.001, 0.0, 0.03, 0.001]
    tails = tails_of([row])
    assert tails is not None
    assert (tails.high, tails.low, tails.pooled) == (True, False, False)
    allowance = Allowance(tails=tails, why_high=("a seed ends far worse",))
    zeros = dict.fromkeys(range(10), 0.0)
    verdict = judge(dict(enumerate(row)), zeros, margin=MARGIN, direction="minimize", allowance=allowance)
    assert verdict.sentence == "undecided: a seed ends far worse"
    assert verdict.withheld == "a seed ends far worse"
    assert verdict.p_not_needed == 1.0
    worse = {seed: 1.0 + value for seed, value in enumerate(row)}
    assert judge(worse, zeros, margin=MARGIN, direction="minimize", allowance=allowance).word == "needed"


def test_fewer_than_five_seeds_show_no_tail() -> None:
    assert tails_of([[0.0, 0.0, 0.0, 9.0]] * 5) is None
    assert tails_of([]) is None
    assert tails_of([[1.0] * 8]) is None
