"""Seeds that are added after results were seen: what that costs, over every way of following the tool's advice."""

from __future__ import annotations

import numpy as np
import pytest

from ablate.stats import ExtendedSeeds, SeedPlan, SeedSchedule, judge, seeds_declared
from ablate.stats.calibrate import decide, rate

MARGIN, SD, COMPARISONS = 0.05, 0.02, 6_000
SIX = 0.06
"""5 % at the first look, and at most a fifth of it at all later ones."""


def test_what_was_declared_is_read() -> None:
    assert seeds_declared([3]) is None
    assert seeds_declared([3, 3, None]) is None
    schedule = {"start": 3, "max": 9}
    assert seeds_declared([schedule]) == SeedSchedule(3, 9)
    assert seeds_declared([None, 3, schedule, schedule]) == ExtendedSeeds((3, SeedSchedule(3, 9)))


@pytest.mark.parametrize(
    "declared",
    [(3, 6), (3, SeedSchedule(3, 20)), (SeedSchedule(3, 8), SeedSchedule(3, 20)), (3, 5, 7, 9), (2, 4, 3, 12)],
)
@pytest.mark.parametrize("word", ["needed", "not_needed", "better"])
def test_each_word_is_wrong_at_most_six_times_in_a_hundred(declared: tuple[int | SeedSchedule, ...], word: str) -> None:
    extended = ExtendedSeeds(declared)
    assert extended.max == (declared[-1] if isinstance(declared[-1], int) else declared[-1].max)
    assert extended.start == next(extended.looks(extended.max)), "the first look"
    assert extended.added_error <= 0.2 * 0.05
    truth = -MARGIN if word == "better" else MARGIN
    drawn = truth + np.random.default_rng(len(declared)).normal(0, SD, (COMPARISONS, max(extended.max, 12)))
    wrong = rate(getattr(decide(drawn[:, : extended.max], MARGIN, extended), word))
    assert wrong.low <= SIX
    least = 0.005 if word == "better" else 0.05  # the first look keeps what it was promised; few reach `better` there
    assert wrong.high >= least


def test_without_the_memory_of_the_first_look_a_study_is_wrong_more_often() -> None:
    drawn = MARGIN + np.random.default_rng(1).normal(0, SD, (COMPARISONS, 8))
    first, second = decide(drawn[:, :3], MARGIN), decide(drawn, MARGIN)
    wrong = first.needed | (~first.not_needed & second.needed)
    assert rate(wrong).low > SIX


@pytest.mark.parametrize("plan", [SeedSchedule(3, 12), ExtendedSeeds((3, SeedSchedule(3, 12)))], ids=["one", "added"])
def test_a_decision_stays_when_seeds_are_added(plan: SeedPlan) -> None:
    rng, words = np.random.default_rng(2), []
    for _ in range(60):
        row = dict(enumerate((rng.uniform(-0.1, 0.1) + rng.normal(0, SD, 12)).tolist()))
        zeros, decided = dict.fromkeys(row, 0.0), ""
        for seeds in range(2, 13):
            some = {seed: row[seed] for seed in range(seeds)}
            word = judge(some, zeros, margin=MARGIN, direction="minimize", schedule=plan).word
            assert word in (decided, "better") if decided == "not needed" else decided in ("", word)
            decided = "" if word == "undecided" else word
        words.append(decided)
    assert {"needed", "not needed", "better"} <= set(words)


@pytest.mark.parametrize(("truth", "word"), [(0.09, "needed"), (0.01, "not needed"), (-0.09, "better")])
def test_p_values_reject_where_the_looks_do(truth: float, word: str) -> None:
    # Holm's procedure asks at which error rate a comparison would be decided; at 5 % that is the rule itself.
    rng = np.random.default_rng(3)
    for plan in (SeedSchedule(3, 10), *map(ExtendedSeeds, ((3, 6), (3, SeedSchedule(3, 10)), (2, 5, 8)))):
        for _ in range(70):
            row = dict(enumerate((truth + rng.normal(0, SD, plan.max)).tolist()))
            verdict = judge(row, dict.fromkeys(row, 0.0), margin=MARGIN, direction="minimize", schedule=plan)
            assert (getattr(verdict, f"p_{word.replace(' ', '_')}") < 0.05) == (verdict.word == word)


def test_fewer_pairs_than_were_declared_are_looked_at() -> None:
    extended = ExtendedSeeds((3, 8))
    assert list(extended.looks(6)) == [3, 6]
    assert [list(ExtendedSeeds((2, 5, 8)).looks(pairs)) for pairs in (7, 8)] == [[2, 5, 7], [2, 5, 8]]
    assert list(extended.looks(8)) == [3, 8]
    assert extended.level(6) == extended.level(8) == pytest.approx(0.005)
    assert extended.level(3) == 0.05
