"""The tests are tested: false verdicts, power and seeds used, over 2,000 simulated comparisons with a known truth.

The noise is that of paired trials of a small language model: 0.02 nats around a margin of 0.05.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from statsmodels.stats.power import TTestPower

from ablate.stats import SeedSchedule, judge
from ablate.stats.calibrate import decide, rate

MARGIN, SD, COMPARISONS = 0.05, 0.02, 2_000
SCHEDULE = SeedSchedule(3, 20)
RULES = [(2, None), (3, None), (5, None), (10, None), (20, None), (20, SCHEDULE)]


def simulated(truth: float, seeds: int, stream: int, sd: float = SD) -> NDArray[np.float64]:
    return truth + np.random.default_rng([stream, seeds]).normal(0, sd, (COMPARISONS, seeds))


@pytest.mark.parametrize(("seeds", "schedule"), RULES)
@pytest.mark.parametrize("sd", [0.005, 0.02, 0.08])
def test_no_truth_gives_more_than_five_false_verdicts_in_a_hundred(
    seeds: int, schedule: SeedSchedule | None, sd: float
) -> None:
    # `needed` is false for every truth up to the margin, `not needed` from it on; the margin itself is the worst case.
    for truth in (0.0, 0.025, 0.045, MARGIN):
        wrong = rate(decide(simulated(truth, seeds, 1, sd), MARGIN, schedule).needed)
        assert wrong.low <= 0.05
    for truth in (MARGIN, 0.055, 0.075, 0.5):
        wrong = rate(decide(simulated(truth, seeds, 2, sd), MARGIN, schedule).not_needed)
        assert wrong.low <= 0.05
    for truth in (-MARGIN, -0.03, 0.5):  # `better` is false down to minus the margin
        wrong = rate(decide(simulated(truth, seeds, 8, sd), MARGIN, schedule).better)
        assert wrong.low <= 0.05
    at_margin = decide(simulated(MARGIN, seeds, 3, sd), MARGIN, schedule)
    for happened in (at_margin.needed, at_margin.not_needed):  # and the 5 % are not left unused
        assert rate(happened).high >= 0.05


def test_heavy_tails_do_not_raise_the_error() -> None:
    rng = np.random.default_rng(4)
    for seeds, schedule in RULES:
        noise = rng.standard_t(3, (COMPARISONS, seeds)) * SD
        decided = decide(MARGIN + noise, MARGIN, schedule)
        assert rate(decided.needed).low <= 0.05
        assert rate(decided.not_needed).low <= 0.05


@pytest.mark.parametrize("distance", [0.015, 0.03])
def test_power_by_number_of_seeds_agrees_with_statsmodels(distance: float) -> None:
    shares = []
    for seeds in (3, 5, 8, 12, 20):
        expected = TTestPower().power(distance / SD, seeds, 0.05, alternative="larger")
        for truth, word in ((MARGIN + distance, "needed"), (MARGIN - distance, "not_needed")):
            found = rate(getattr(decide(simulated(truth, seeds, 5), MARGIN), word))
            assert found.share == pytest.approx(expected, abs=4 * (expected * (1 - expected) / COMPARISONS) ** 0.5)
        shares.append(found.share)
    assert shares == sorted(shares)


def test_sequential_seeds_decide_as_often_with_fewer() -> None:
    for truth in (0.0, 0.02, 0.08, 0.1):
        sequential = decide(simulated(truth, 20, 6), MARGIN, SCHEDULE)
        decided = sequential.needed | sequential.not_needed
        used = float(sequential.seeds.mean())
        assert used < 10  # a fixed study of the same reach trains 20
        fixed = decide(simulated(truth, int(np.ceil(used)), 6), MARGIN)
        assert decided.mean() >= (fixed.needed | fixed.not_needed).mean() - 0.01
    close = decide(simulated(MARGIN - 0.01, 20, 7), MARGIN, SCHEDULE)
    fixed = decide(simulated(MARGIN - 0.01, 20, 7), MARGIN)
    assert close.seeds.mean() < 17
    assert close.not_needed.mean() > fixed.not_needed.mean() - 0.17  # what looking early costs, at the worst


@pytest.mark.parametrize(
    ("seeds", "schedule"), [(3, None), (7, None), (8, SeedSchedule(3, 8)), (6, SeedSchedule(2, 8))]
)
def test_the_simulated_rule_is_the_rule_of_verdicts(seeds: int, schedule: SeedSchedule | None) -> None:
    rng = np.random.default_rng(9)
    differences = rng.uniform(-0.12, 0.12, (250, 1)) + rng.normal(0, SD, (250, seeds))
    decided = decide(differences, MARGIN, schedule)
    words = np.where(decided.needed, "needed", np.where(decided.not_needed, "not needed", "undecided"))
    words = np.where(decided.better, "better", words)
    for whole, used, word in zip(differences.tolist(), decided.seeds, words, strict=True):
        row = whole[:used]  # a decided comparison gets no further seeds
        zeros = dict.fromkeys(range(used), 0.0)
        straight = judge(dict(enumerate(row)), zeros, margin=MARGIN, direction="minimize", schedule=schedule)
        turned = judge(zeros, dict(enumerate(row)), margin=MARGIN, direction="maximize", schedule=schedule)
        assert straight.word == turned.word == word
    assert len(set(words)) == 4


def test_a_monte_carlo_interval_holds_what_it_says() -> None:
    assert (rate(np.zeros(10, bool)).low, rate(np.ones(10, bool)).high) == (0.0, 1.0)
    rng = np.random.default_rng(11)
    held = [found.low <= 0.05 <= found.high for found in (rate(rng.random(2000) < 0.05) for _ in range(500))]
    assert np.mean(held) >= 0.93
