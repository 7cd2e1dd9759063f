"""Verdicts against statsmodels, simulated truth, and properties that any honest rule has."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.power import TTestPower
from statsmodels.stats.weightstats import DescrStatsW

from ablate.stats import Direction, ExtendedSeeds, SeedPlan, SeedSchedule, Verdict, bounds, judge, summarise
from ablate.stats.bounds import Allowance
from ablate.stats.calibrate import rate, running_p
from ablate.stats.further import advised_schedule, further_seeds, in_percent
from ablate.stats.paired import MANY
from ablate.stats.verdict import removal_word, replacement_word

ORDER = {"better": 0, "not needed": 0, "undecided": 1, "needed": 2}


def by_seed(values: Sequence[float]) -> dict[int, float]:
    return dict(enumerate(values))


def judge_differences(differences: Sequence[float], margin: float, direction: Direction = "minimize") -> Verdict:
    return judge(by_seed(differences), by_seed([0.0] * len(differences)), margin=margin, direction=direction)


@pytest.mark.parametrize("n", [2, 3, 5, 10])
@pytest.mark.parametrize("margin", [0.01, 0.05, 0.2])
def test_verdict_agrees_with_statsmodels(n: int, margin: float) -> None:
    rng = np.random.default_rng(n)
    seen = set()
    for truth in margin + np.linspace(-0.2, 0.2, 41):
        differences = rng.normal(truth, 0.03, n)
        described = DescrStatsW(differences)
        _, p_needed, _ = described.ttest_mean(margin, alternative="larger")
        _, p_not_needed, _ = described.ttest_mean(margin, alternative="smaller")
        _, p_better, _ = described.ttest_mean(-margin, alternative="smaller")
        word = "better" if p_better < 0.05 else "not needed" if p_not_needed < 0.05 else "undecided"
        word = "needed" if p_needed < 0.05 else word
        verdict = judge_differences(differences.tolist(), margin)
        assert verdict.word == word
        assert verdict.sentence.startswith("better by at least " if word == "better" else f"{word}: ")
        assert (verdict.p_needed, verdict.p_not_needed, verdict.p_better) == pytest.approx(
            (p_needed, p_not_needed, p_better)
        )
        seen.add(word)
    assert {"needed", "undecided"} < seen
    assert ("better" in seen) == (margin < 0.2), "the truths reach down to -0.2 plus the margin"


finite = st.integers(-640, 640).map(lambda i: i / 64)  # dyadic, so that sums and negation are exact
seeds = st.dictionaries(st.integers(0, 6), finite, min_size=2, max_size=7)
margins = st.integers(1, 640).map(lambda i: i / 64)
directions: st.SearchStrategy[Direction] = st.sampled_from(["minimize", "maximize"])


@given(seeds, seeds, margins)
def test_swapping_the_direction_flips_the_sides(
    variant: dict[int, float], baseline: dict[int, float], margin: float
) -> None:
    straight = judge(variant, baseline, margin=margin, direction="minimize")
    negated = [{seed: -value for seed, value in side.items()} for side in (variant, baseline)]
    swapped = judge(baseline, variant, margin=margin, direction="maximize")
    for other in (swapped, judge(negated[0], negated[1], margin=margin, direction="maximize")):
        assert dataclasses.replace(other, sentence="") == dataclasses.replace(straight, sentence="")
        # a sentence about differences without spread quotes one with its sign, as variant minus baseline
        assert other.sentence.replace(" -", " ") == straight.sentence.replace(" -", " ")


def test_an_allowance_turns_and_grows_with_its_differences() -> None:
    worse, turned = (Allowance(low, 3.0 - low, None, (f"{low}",), (f"{3.0 - low}",)) for low in (1.0, 2.0))
    assert [worse.of_change(direction) for direction in ("minimize", "maximize")] == [worse, turned]  # type: ignore[arg-type]
    for weight, side in ((4.0, worse), (-4.0, turned)):
        assert worse.times(weight) == dataclasses.replace(side, low=4 * side.low, high=4 * side.high)
    assert worse.times(0.0) == Allowance()


@pytest.mark.parametrize("n", [2, 6, 30])
def test_a_relative_verdict_is_that_of_the_logarithms(n: int) -> None:
    rng, seen = np.random.default_rng(n), set()
    for truth in np.linspace(-0.4, 0.4, 33):
        row = rng.normal(truth, 0.05, n)
        verdict = judge(by_seed(row.tolist()), by_seed([0.0] * n), margin=0.1, direction="minimize", relative=True)
        (found,) = bounds(row.tolist(), None)
        assert verdict.bound == found.as_shares()
        assert (verdict.bound.low, verdict.bound.high) == pytest.approx(
            (math.exp(found.low) - 1, math.exp(found.high) - 1)
        )
        sides = {"needed": found.low > math.log(1.1), "better": found.high < math.log(0.9)}
        sides = {**sides, "not needed": found.high < math.log(1.1) and not sides["better"]}
        assert verdict.word == next((word for word, there in sides.items() if there), "undecided")
        if n < MANY:  # from there on bounds are not those of t alone
            assert (verdict.p_needed < 0.05, verdict.p_better < 0.05) == (sides["needed"], sides["better"])
        summary, shares = summarise(row.tolist()), summarise(row.tolist()).as_shares()
        told = [(one.difference, one.low, one.high, *one.values) for one in (summary, shares)]
        assert told[1] == pytest.approx([math.exp(value or 0.0) - 1 for value in told[0]])
        seen.add(verdict.word)
    assert seen == {"needed", "undecided", "not needed", "better"}


def test_failed_trials_count_at_their_worst() -> None:
    row, zeros = [0.0, 0.01, 0.02], dict.fromkeys(range(3), 0.0)
    ask: dict[str, Any] = {"margin": 0.2, "direction": "minimize"}
    for worst, word in (
        ([0.03], "not needed"),
        ([0.3], "undecided"),
        ([-0.3], "not needed"),
        ([0.02, 0.5], "undecided"),
    ):
        verdict = judge(by_seed(row), zeros, worst=worst, **ask)
        assert (verdict.word, bool(verdict.withheld)) == (word, word == "undecided")
        (alone,), (whole,) = bounds(row, None), bounds([*row, *worst], None)
        assert verdict.bound is not None
        assert verdict.bound.high == pytest.approx(max(alone.high, whole.high))
        if verdict.withheld:
            assert verdict.withheld.startswith(f"{len(worst)} trial{'s' * (len(worst) > 1)} of it failed, and might")
        scheduled = judge(by_seed(row), zeros, worst=worst, schedule=SeedSchedule(2, 5), **ask)
        assert (scheduled.word, scheduled.p_not_needed) == ("undecided", 1.0), "looks cannot tell when it failed"


@given(seeds, seeds, margins, directions, finite)
def test_shifting_both_sides_changes_nothing(
    variant: dict[int, float], baseline: dict[int, float], margin: float, direction: Direction, shift: float
) -> None:
    shifted = [{seed: value + shift for seed, value in side.items()} for side in (variant, baseline)]
    straight = judge(variant, baseline, margin=margin, direction=direction)
    assert straight == judge(shifted[0], shifted[1], margin=margin, direction=direction)


@given(seeds, seeds, margins, margins, directions)
def test_a_wider_margin_never_makes_a_part_more_needed(
    variant: dict[int, float], baseline: dict[int, float], margin: float, more: float, direction: Direction
) -> None:
    narrow = judge(variant, baseline, margin=margin, direction=direction)
    wide = judge(variant, baseline, margin=margin + more, direction=direction)
    assert ORDER[wide.word] <= ORDER[narrow.word]
    assert wide.word != "better" or narrow.word == "better"


@settings(max_examples=200)
@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=6), st.floats(1e-6, 1e3))
def test_what_the_sentence_says_is_true(differences: list[float], margin: float) -> None:
    # The bound is printed with two digits, rounded to the safe side.
    verdict = judge_differences(differences, margin)
    half = stats.sem(differences) * stats.t.ppf(0.95, len(differences) - 1)
    mean = float(np.mean(differences))
    assume(half > 1e-9)
    tolerance = 1e-9 * (1 + abs(mean) + half)
    if "worse by at least" in verdict.sentence:
        assert float(verdict.sentence.split()[-1]) <= mean - half + tolerance
    elif "better by at least" in verdict.sentence:
        assert float(verdict.sentence.split()[-1]) <= -mean - half + tolerance
    elif "at most" in verdict.sentence:
        assert float(verdict.sentence.split("at most ")[1].split()[0]) >= mean + half - tolerance
    else:
        assert verdict.word == "undecided"


def test_each_word_has_a_form_for_replacements() -> None:
    said = {}
    for gap in (0.125, 0.0, -0.125):
        verdict = judge_differences([gap, gap + 1e-9], 0.02)
        replaced = verdict.of_replacement()
        assert (replaced.is_worse, replaced.is_acceptable) == (verdict.is_worse, verdict.is_acceptable)
        assert dataclasses.replace(replaced, word=verdict.word, sentence=verdict.sentence) == verdict
        said[verdict.word] = replaced.sentence
    assert said == {
        "needed": "worse by at least 0.12",
        "not needed": "not worse: at most 3.7e-09 worse, margin 0.02",
        "better": "better by at least 0.12",
    }
    undecided = judge_differences([0.02, 0.03], 0.02)
    assert undecided.of_replacement() == undecided
    assert [removal_word(replacement_word(word)) for word in (*ORDER, "diverged")] == [*ORDER, "diverged"]


@pytest.mark.parametrize("schedule", [SeedSchedule(3, 12), ExtendedSeeds((3, 12))], ids=["schedule", "added"])
def test_better_is_wrong_five_times_in_a_hundred_over_all_looks(schedule: SeedPlan) -> None:
    # At minus the margin it is wrong whenever it is said; all twelve seeds are there, so that every look could say it.
    rng, margin, trials = np.random.default_rng(17), 0.02, 1500
    rows = rng.normal(-margin, 0.01, (trials, 12)).tolist()
    verdicts = [
        judge(by_seed(row), by_seed([0.0] * 12), margin=margin, direction="minimize", schedule=schedule) for row in rows
    ]
    wrong = [verdict.word == "better" for verdict in verdicts]
    assert rate(np.array(wrong)).low <= (0.06 if isinstance(schedule, ExtendedSeeds) else 0.05)
    assert np.mean(wrong) > 0.02
    for verdict in verdicts:
        assert (verdict.p_better <= 0.05) == (verdict.word == "better")


def test_sentences() -> None:
    # Hardly any spread: the bound is the difference itself.
    assert judge_differences([0.125, 0.125 + 1e-9], 0.02).sentence == "needed: worse by at least 0.12"
    assert judge_differences([0.0078125] * 3 + [0.0078126], 0.02).sentence.startswith(
        "not needed: at most 0.0079 worse"
    )
    assert judge_differences([-0.25, -0.25 - 1e-9], 0.02).sentence == "better by at least 0.24"
    assert judge_differences([-0.25, -0.25 - 1e-9], 0.5).sentence == "not needed: better by at least 0.24"
    assert further_seeds(0.001, 1.0, 3) is None
    at_margin = judge_differences([0.125 - 1e-9, 0.125 + 1e-9], 0.125)
    assert (at_margin.sentence, at_margin.further_seeds) == (
        "undecided: more than 100 more seeds would be required",
        None,
    )


@pytest.mark.parametrize("mean", [-0.06, -0.01, 0.02, 0.04, 0.06, 0.08, 0.1])
def test_seeds_are_asked_for_only_where_they_can_decide(mean: float) -> None:
    """No number of seeds narrows the allowance for tuning, so they decide only outside of it."""

    def judged(n: int, spread: float) -> Verdict:
        values = np.tile([-1.0, 1.0], n // 2)
        values = mean + spread * values / values.std(ddof=1)
        allowance = Allowance(low=0.02, high=0.02, why_low=("tuning",), why_high=("tuning",))
        return judge(by_seed(values), by_seed([0.0] * n), margin=0.05, direction="minimize", allowance=allowance)

    few, many = judged(4, 0.3), judged(100, 0.03)
    assert few.word == "undecided"
    assert (many.word == "undecided") == (0.03 < mean < 0.07)
    assert few.withheld == ("tuning" if many.word == "undecided" else "")
    assert many.word != "undecided" or few.further_seeds is None


@pytest.mark.parametrize(("value", "said"), [(0.0, "0"), (0.125, "0.125"), (-0.25, "-0.25")])
@pytest.mark.parametrize("n", [2, 3, 40])
def test_without_any_spread_nothing_is_decided(value: float, said: str, n: int) -> None:
    """Accuracies of a few rows are the same at every seed; that is not certain."""
    verdict = judge_differences([value] * n, 0.02)
    reason = f"undecided: all {n} differences are {said}, and without any spread no test is possible: is the metric"
    assert verdict == Verdict("undecided", f"{reason} too coarse, the task too easy, or the variant the same?", None)
    higher = dict.fromkeys(range(n), 0.5 + value)  # as all outputs: variant minus baseline, whichever is better
    assert judge(higher, dict.fromkeys(range(n), 0.5), margin=0.02, direction="maximize").sentence == verdict.sentence
    # Rounding is not spread.
    baseline = by_seed([3.0 + 0.7 * seed for seed in range(n)])
    variant = {seed: one + 0.05 for seed, one in baseline.items()}
    assert judge(variant, baseline, margin=0.02, direction="minimize").word == "undecided"


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_pairs_decide_nothing(n: int) -> None:
    verdict = judge(dict.fromkeys(range(n), 9.0) | {50: 1.0}, by_seed([0.0] * 5), margin=0.1, direction="minimize")
    assert verdict.word == "undecided"
    assert verdict.sentence == f"undecided: at least 2 paired seeds are required, {n} finished"
    assert verdict.further_seeds == 2 - n


def test_a_diverged_trial_decides_whatever_the_others_say() -> None:
    verdict = judge(
        {0: 1.0, 1: 1.0}, {0: 9.0, 1: 9.0, 2: 9.0}, margin=0.1, direction="minimize", diverged={2: 70, 3: 40}
    )
    assert verdict == Verdict("diverged", "diverged: 2 of 4 seeds, first at step 40", None)
    lone = judge({}, {}, margin=0.1, direction="minimize", diverged={0: None})
    assert lone.sentence == "diverged: 1 of 1 seed"


def test_a_diverged_baseline_is_reported() -> None:
    verdict = judge(
        {0: 1.0, 1: 1.01, 2: 1.0}, {0: 1.0, 1: 1.0}, margin=0.5, direction="minimize", baseline_diverged={2: 10}
    )
    assert verdict.sentence == "not needed: at most 0.037 worse, margin 0.5; the baseline diverged at seed 2"


def test_a_margin_must_be_positive() -> None:
    with pytest.raises(ValueError, match="margin"):
        judge({}, {}, margin=0.0, direction="minimize")


@pytest.mark.parametrize(("distance", "sd", "n"), [(0.05, 0.04, 2), (-0.03, 0.05, 3), (0.016, 0.02, 5)])
def test_further_seeds_agree_with_statsmodels_and_a_simulation(distance: float, sd: float, n: int) -> None:
    further = further_seeds(distance, sd, n)
    assert further is not None
    # The first look has spent the error rate of 5 %: a later one is held to half a per cent.
    required = TTestPower().solve_power(effect_size=abs(distance) / sd, alpha=0.005, power=0.8, alternative="larger")
    assert n + further == max(n + 1, math.ceil(required))
    rng = np.random.default_rng(5)
    advised = advised_schedule(n, further, lost=0)
    assert advised is not None
    for seeds in (n + further, advised):
        last = seeds if isinstance(seeds, int) else seeds.max
        # The look at n seeds did not decide, so only later ones count.
        extended = ExtendedSeeds((n, seeds))
        levels = np.array([extended.level(at) * (at > n) for at in range(2, last + 1)])
        drawn = rng.normal(abs(distance), sd, (1000, last))
        assert (running_p(drawn, 0.0) < levels).any(axis=1).mean() >= 0.77  # 80 % less chance of 1,000 draws


def test_an_undecided_sentence_counts_the_seeds() -> None:
    # Mean 0.05 lies 0.03 above the margin; the standard deviation is 0.02 sqrt(2).
    verdict = judge_differences([0.03, 0.07], 0.02)
    required = TTestPower().solve_power(
        effect_size=0.03 / math.sqrt(0.0008), alpha=0.005, power=0.8, alternative="larger"
    )
    assert verdict.further_seeds == math.ceil(required) - 2
    assert verdict.chance is not None
    more = f"about {verdict.further_seeds} more seeds would decide"
    assert verdict.sentence == f"undecided: {more} with a chance of {in_percent(verdict.chance)}"
