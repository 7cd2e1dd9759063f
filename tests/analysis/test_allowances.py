"""Verdicts that allow for more than the spread between seeds: failed trials, tuned values, added seeds."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_store import NOON, FakeStore, fake_store

from ablate.analysis.fairness import Tried, Tuned, Tuning
from ablate.analysis.judging import (
    Allowances,
    _worse,
    awaited_seeds,
    deciding_bounds,
    read_allowances,
    read_regrets,
    read_tails,
    tail_words,
    withheld,
    worst_results,
)
from ablate.analysis.results import Results
from ablate.analysis.rows import VariantRow
from ablate.analysis.runs import VariantRuns, read_runs, seed_schedule
from ablate.analysis.scaling import NO_AXIS_POINTS, AxisPoint, AxisPoints, read_axis_points
from ablate.analysis.study import read_study
from ablate.analysis.warnings import assumption
from ablate.stats import Allowance, Bounds, ExtendedSeeds, SeedSchedule, Verdict
from ablate.stats.calibrate import rate
from ablate.stats.hidden_noise import Tails
from ablate.store.records import Declaration, JudgedRuns, TrialState

MARGIN, SD = 0.05, 0.02


def study(
    differences: dict[int, float], seeds: int, failed: dict[str, int] | None = None, others: tuple[float, ...] = ()
) -> FakeStore:
    """A baseline and one variant, with the number of failed trials of each named variant, its last seeds.

    Args:
        others: The losses of further variants.
    """
    further = {f"other={place}": value for place, value in enumerate(others)}
    names = ["baseline", "norm=none", *further]
    made = fake_store({name: ({}, 10) for name in names}, seeds=seeds, margin=MARGIN)
    for seed in range(seeds):
        for name, value in {"baseline": 3.0, "norm=none": 3.0 + differences.get(seed, 0.0), **further}.items():
            if seed >= seeds - (failed or {}).get(name, 0):
                made.add(name, seed, state=TrialState.FAILED, reason="out of memory")
            else:
                made.add(name, seed, {"val_loss": value})
    return made


def variant(made: FakeStore) -> VariantRow:
    return read_study(made, "a_study").variants[1]


def test_a_variant_that_lost_its_worst_seeds_is_not_called_equal() -> None:
    rng, words = np.random.default_rng(0), []
    for _ in range(200):
        drawn = np.sort(MARGIN + rng.normal(0, SD, 5))
        words.append(variant(study(dict(enumerate(drawn.tolist())), 5, {"norm=none": 2})).verdict)
    assert rate(np.array([one is not None and one.word == "not needed" for one in words])).low <= 0.05
    fine = variant(study({0: 0.0, 1: 0.001, 2: -0.001}, 4, {"norm=none": 1})).verdict
    assert fine is not None
    assert fine.sentence == ("undecided: 1 trial of norm=none failed, and the result is unknown; run the study again")
    worse = variant(study({0: 0.5, 1: 0.501, 2: 0.499}, 4, {"norm=none": 1})).verdict
    assert worse is not None
    assert worse.word == "needed"  # what failed could only have been worse still


def test_a_baseline_that_lost_seeds_makes_nothing_needed() -> None:
    worse = variant(study({0: 0.5, 1: 0.501, 2: 0.499}, 4, {"baseline": 1})).verdict
    assert worse is not None
    assert worse.word == "undecided"
    assert "1 trial of the baseline failed" in worse.sentence


def test_the_worst_case_of_a_failed_seed_may_allow_it() -> None:
    made = study({seed: 0.001 * (seed % 3) for seed in range(40)}, 40, {"norm=none": 1})
    trivial = {name: {"val_loss": value} for name, value in (("trigram", 3.1), ("bigram", 3.15), ("uniform", 3.2))}
    made.record = replace(made.record, trivial=trivial)  # at the worst 0.2 worse at one seed
    found = variant(made).verdict
    assert found is not None
    assert found.word == "not needed"
    made.record = replace(made.record, trivial={"uniform": {"val_loss": 9.0}})
    found = variant(made).verdict
    assert found is not None
    assert (found.word, found.withheld.startswith("1 trial of it failed")) == ("undecided", True)


@pytest.mark.parametrize("trivial", [2.5, 3.06, 3.2], ids=["learns nothing", "hardly learns", "learns"])
def test_a_variant_near_or_below_the_trivial_baseline_that_lost_its_worst_seeds_is_not_called_equal(
    trivial: float,
) -> None:
    rng, words = np.random.default_rng(5), []
    for _ in range(100):
        drawn = np.sort(MARGIN + rng.normal(0, SD, 10))  # one variant learns, or the study has no verdict
        made = study(dict(enumerate(drawn.tolist())), 10, {"norm=none": 5}, (2.0,))
        made.record = replace(made.record, trivial={"uniform": {"val_loss": trivial}})
        words.append(variant(made).verdict)
    assert rate(np.array([one is not None and one.is_acceptable for one in words])).low <= 0.05


@pytest.mark.parametrize(("seeds", "lost"), [(5, 1), (10, 3)])
def test_a_baseline_that_diverged_at_its_worst_seeds_makes_nothing_needed(seeds: int, lost: int) -> None:
    rng, words = np.random.default_rng(6), []
    for _ in range(100):
        ends = np.sort(rng.normal(3.0, SD, seeds))
        made = fake_store({"baseline": ({}, 10), "norm=none": ({}, 10)}, seeds=seeds, margin=MARGIN)
        for seed in range(seeds):
            made.add("norm=none", seed, {"val_loss": 3.0 + MARGIN + rng.normal(0, SD)})
            if seed < seeds - lost:
                made.add("baseline", seed, {"val_loss": ends[seed]})
            else:
                made.add("baseline", seed, state=TrialState.DIVERGED, stopped_at=7)
        words.append(variant(made).verdict)
    assert not any(one is None or one.is_worse for one in words)
    held = [one for one in words if one is not None and one.withheld]
    assert held, "the other seeds alone would call it needed in some studies"
    assert held[0].sentence.startswith("undecided: the baseline diverged at seed")
    assert held[0].sentence.endswith("and the other seeds alone flatter it")
    assert read_study(made, "a_study").answer.sentences  # the sentences of an answer can say it


def declared(made: FakeStore, *seeds: Any) -> FakeStore:
    """The same study, with these declarations of seeds one after the other."""
    before = tuple(
        Declaration(made.record.objective, [], NOON + timedelta(hours=number), 6, one)
        for number, one in enumerate(seeds[:-1])
    )
    space = {**made.record.space, "design": {"seeds": seeds[-1]}}
    made.record = replace(made.record, space=space, declared_before=before)
    return made


def test_added_seeds_are_reported_and_get_wider_bounds() -> None:
    row = {0: 0.0, 1: 0.06, 2: 0.02, 3: 0.0, 4: 0.03, 5: 0.02}  # at six seeds the upper bound is 0.04
    fixed = variant(study(row, 6)).verdict
    assert fixed is not None
    assert fixed.word == "not needed"
    made = declared(study(row, 6), 3, 6)
    assert seed_schedule(made.record) == ExtendedSeeds((3, 6))
    report = read_study(made, "a_study")
    assert report.variants[1].verdict is not None
    assert report.variants[1].verdict.word == "undecided"
    (said,) = report.answer.warning_sentences
    assert said.startswith("The number of seeds was changed after results were visible: 3, then 6.")
    assert "the error rate of a verdict over all looks is at most 5.5 %." in said
    unchanged = declared(study(row, 6), 6, 6)
    assert seed_schedule(unchanged.record) is None
    assert not read_study(unchanged, "a_study").answer.warning_sentences
    assert seed_schedule(declared(study(row, 6), None, {"start": 3, "max": 6}).record) == SeedSchedule(3, 6)


@pytest.mark.parametrize("ended", range(9))
def test_of_added_seeds_none_is_looked_at_before_those_that_were_declared_first_have_ended(ended: int) -> None:
    made = declared(study({seed: 0.5 + 0.001 * seed for seed in range(8)}, 8), 5, 8)
    for seed in range(ended, 8):
        del made.trial_records[f"norm=none/{seed}"]
    found = variant(made).verdict
    assert found is not None
    assert found.word == ("needed" if ended >= 5 else "undecided")


def test_the_interval_beside_a_schedule_holds_over_all_looks() -> None:
    row = {0: 0.0, 1: 0.001, 2: 0.003, 3: 0.002}
    fixed, looked = (
        variant(study(row, 4)).difference,
        variant(declared(study(row, 4), {"start": 3, "max": 9})).difference,
    )
    assert fixed is not None
    assert looked is not None
    assert looked.low is not None
    assert fixed.low is not None
    assert looked.low < fixed.low
    assert looked.difference == fixed.difference


def test_one_tuning_seed_bounds_no_regret_and_the_report_says_so() -> None:
    made = study({0: 0.0, 1: 0.001, 2: 0.002}, 3)
    tried = tuple(Tried({"lr": at}, 0.1 * at, 1, 0, 1, {1000: 0.1 * at}) for at in range(2))
    tuning = Tuning(
        {"lr": [0, 1]}, (1000,), {name: Tuned({"wd": 1, "lr": 0}, (), tried) for name in ("baseline", "norm=none")}
    )
    allowance = read_allowances(made.record, read_runs(made, made.record, "val_loss"), tuning).versus(
        "norm=none", "baseline"
    )
    assert (allowance.low, allowance.high) == (math.inf, math.inf)
    assert "do not bound how much better norm=none may be" in allowance.why_low[0]


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_a_value_that_two_seeds_chose_leaves_its_regret_open(direction: str) -> None:
    sign = 1.0 if direction == "minimize" else -1.0
    made = study({0: 0.0, 1: 0.001, 2: 0.002}, 3)
    made.record = replace(made.record, objective={**made.record.objective, "direction": direction})
    chosen = {"norm=none": ([0.0, 0.05, 0.04], [0.02, 0.03, 0.02]), "baseline": ([0.0, 0.3, 0.3], [0.01, 0.31, 0.32])}

    def tuned(first: list[float], second: list[float]) -> Tuned:
        tried = [
            Tried({"lr": at}, sign * (one + two) / 2, 2, 0, 2, {1000: sign * one, 1001: sign * two})
            for at, (one, two) in enumerate(zip(first, second, strict=True))
        ]
        return Tuned({"wd": 1, "lr": 0}, (), tuple(tried))

    tuning = Tuning({"lr": [0, 1, 2]}, (1000, 1001), {name: tuned(*rows) for name, rows in chosen.items()})
    found = read_allowances(made.record, read_runs(made, made.record, "val_loss"), tuning)
    assert found.regret["baseline"] == 0.0  # the others are far behind
    assert found.regret["norm=none"] > 0.0
    allowance = found.versus("norm=none", "baseline")
    assert (allowance.low, allowance.high) == (found.regret["norm=none"], 0.0)
    assert "tune with more seeds" in allowance.why_low[0]
    uneven = Tuning(tuning.grid, tuning.seeds, tuning.of | {"baseline": tuned([0.0, 0.3, 0.3], [0.9, 0.1, 0.5])})
    again = read_allowances(made.record, read_runs(made, made.record, "val_loss"), uneven)
    assert again.regret["norm=none"] == found.regret["norm=none"], "another variant's noise says nothing on it"
    assert again.regret["baseline"] > 0.0


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize("metric", ["", "accuracy"])
def test_regret_is_of_the_chosen_value_in_the_metric_that_is_asked_for(direction: str, metric: str) -> None:
    """At another budget it is as at the study's own; without a choice, or seeds that tuned it, nothing is known."""
    sign = 1.0 if direction == "minimize" else -1.0
    found = {0: {1000: 0.3, 1009: 0.32}, 1: {1009: 0.31, 1000: 0.3, 1004: math.inf}, 2: {1000: 1.3, 1009: 1.3}}

    def tuned(chosen: int | None, at: int = 3) -> Tuned:
        tried = []
        for place, by_seed in list(found.items())[:at]:
            own = {seed: sign * loss for seed, loss in by_seed.items()}
            held = (dict.fromkeys(own, 5.0), {metric: own}) if metric else (own, {"accuracy": dict.fromkeys(own, 5.0)})
            tried.append(Tried({"lr": place}, None, 2, 0, 2, *held))
        return Tuned(None if chosen is None else {"wd": 1, "lr": chosen}, (), tuple(tried))

    names = {"near": tuned(0), "far": tuned(2), "far@budget=2": tuned(2, 0), "new@budget=2": tuned(1, 0)}
    tuning = Tuning({"lr": [0, 1, 2]}, (1000, 1009), names | {"open": tuned(None), "other": tuned(7)})
    regrets = read_regrets(tuning, direction, metric)  # type: ignore[arg-type]
    assert regrets.keys() == {"near", "far", "far@budget=2"}
    assert regrets["far@budget=2"] == regrets["far"]
    assert 0.0 < regrets["near"] < 0.1
    assert regrets["far"] == pytest.approx(1.0, abs=0.1)
    assert read_regrets(tuning, direction, "val_bleu") == dict.fromkeys(regrets, math.inf)  # type: ignore[arg-type]
    record, allowances = study({}, 2).record, Allowances("baseline", regret={"near": 9.0}, censored={"near": 1})
    results = Results(record, {}, None, allowances, tuning, NO_AXIS_POINTS, "", frozenset())
    allowed = results._of_metric(metric or "val_loss", direction)  # type: ignore[arg-type]
    assert (allowed.regret, allowed.censored) == (regrets, {} if metric else {"near": 1})


@pytest.mark.parametrize("skewness", [0.3, -0.3])
@pytest.mark.parametrize("pooled", [True, False])
def test_a_tail_is_described_by_its_side_and_whether_it_has_a_bound(skewness: float, pooled: bool) -> None:
    tails = Tails(skewness, 0.1, 1 if not pooled else 8, low=False, high=True)
    said, assumed = tail_words(tails), assumption((), tails, 0, "seed")
    side = "worse" if skewness > 0 else "better"
    assert said.startswith(f"a few seeds end far {side} than the others (skewness {skewness:.1f} over ")
    assert assumed == f"allows for a few seeds that end far {side} than the others"
    assert tails.pooled == pooled
    assert said.endswith("do not decide" if pooled else "at least four with many seeds are required")


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_worst_that_a_failed_trial_may_be_is_the_trivial_baseline(sign: float) -> None:
    """Beside the baseline at that seed, or beside its best seed where it has none there."""
    runs = VariantRuns({}, {}, {}, {}, failed=dict.fromkeys((5, 7, 9)))  # type: ignore[arg-type]
    values, baseline = ({seed: sign * loss for seed, loss in of.items()} for of in (
        {6: 3.0, 8: 3.4}, {9: 3.2, 8: 2.9, 7: 3.1},
    ))  # fmt: skip

    def worst(trivial: float | None, theirs: Any = baseline) -> tuple[float, ...]:
        return worst_results(runs, values, theirs, None if trivial is None else sign * trivial, sign)

    assert worst(4.0) == pytest.approx((4.0 - 2.9, 4.0 - 3.1, 4.0 - 3.2))
    assert worst(3.4) == pytest.approx((3.4 - 2.9, 3.4 - 3.1, 3.4 - 3.2))
    assert worst(3.39) == worst(None) == worst(4.0, {}) == (), "nothing bounds them"


def test_bounds_are_those_of_variant_minus_baseline_whichever_way_is_better() -> None:
    verdict = Verdict("needed", "needed", None, bound=Bounds(1.0, 0.5, 3.0, 4))
    assert deciding_bounds(verdict, "minimize") == Bounds(1.0, 0.5, 3.0, 4)
    assert deciding_bounds(verdict, "maximize") == Bounds(-1.0, -3.0, -0.5, 4)
    assert deciding_bounds(None, "minimize") is deciding_bounds(replace(verdict, bound=None), "maximize") is None


@pytest.mark.parametrize("paired", [None, frozenset({"a=x", "b=x", "baseline"}), frozenset()])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_tails_are_those_of_paired_differences_of_the_variants_that_are_compared(
    sign: float, paired: frozenset[str] | None
) -> None:
    """Not of the baseline with itself, of what was ended early, or of runs that share nothing with the baseline."""
    made = fake_store({name: ({}, 10) for name in ("baseline", "a=x", "b=x", "c=x")}, seeds=3)
    losses = {"baseline": [3.0, 3.5, 3.25], "a=x": [3.5, 3.25, math.inf], "b=x": [3.25, 3.0], "c=x": [9.0, 9.0]}
    for name, values in losses.items():
        for seed, loss in enumerate(values):
            made.add(name, seed, {"val_loss": loss})
    made.add("b=x", 2, state=TrialState.DIVERGED, stopped_at=5)
    made.add("c=x", 2, state=TrialState.PRUNED, stopped_at=5)
    judged = None if paired is None else JudgedRuns("seed", paired, "")
    record = replace(made.record, judged=judged)
    found = [(gaps, list(lost)) for gaps, lost in _worse(record, read_runs(made, record, "val_loss"), "val_loss", sign)]
    expected = [({0: sign * 0.5, 1: sign * -0.25}, [2]), ({0: sign * 0.25, 1: sign * -0.5}, [2])]
    assert found == (expected if paired is None else expected[: len(paired) - 1] if paired else [])
    censored = {"a=x": 2} if judged else {}
    record = replace(record, judged=judged and replace(judged, censored=censored))
    assert read_allowances(record, read_runs(made, record, "val_loss")).censored == censored


CHOICE = "by its tuning seeds {} may be up to {} better at another value; tune with more seeds"


@pytest.mark.parametrize(("regret", "shown"), [(0.0, ""), (0.01, "0.01"), (0.5, "0.5"), (3.0, "3"), (0.996, "1")])
def test_a_value_that_may_not_be_the_best_widens_the_side_that_it_flatters(regret: float, shown: str) -> None:
    """What a tuned variant may still gain bounds how much worse it is from below, and what its rival may from above."""
    found = Allowances("base", regret={"tuned": regret, "base": regret})
    own, theirs = ((CHOICE.format(name, shown),) if shown else () for name in ("tuned", "the baseline"))
    assert found.versus("tuned", "other") == Allowance(low=regret, why_low=own)
    assert found.versus("other", "tuned") == Allowance(high=regret, why_high=own)
    assert found.versus("tuned", "base") == Allowance(regret, regret, why_low=own, why_high=theirs)


@pytest.mark.parametrize(
    ("reason", "ours", "theirs"),
    [
        ("failed", "1 trial of a failed, and the result is unknown; run the study again",
         "2 trials of the baseline failed, and the results are unknown; run the study again"),
        ("censored", "1 run of a never reached the target, and the true values are worse",
         "2 runs of the baseline never reached the target, and the true values are worse"),
    ],
)  # fmt: skip
def test_what_is_not_known_of_a_variant_leaves_it_unbounded_from_above(reason: str, ours: str, theirs: str) -> None:
    """And what is not known of its rival from below; failed trials of the variant alone may be counted otherwise."""
    found = Allowances("base", **{reason: {"a": 1, "base": 2}})
    above, below = Allowance(high=math.inf, why_high=(ours,)), Allowance(low=math.inf, why_low=(theirs,))
    assert (found.versus("a", "b"), found.versus("b", "base"), found.versus("b", "c")) == (above, below, Allowance())
    assert found.versus("a", "base") == above + below
    assert found.versus("a", "base", failed=False) == (below if reason == "failed" else above + below)


@pytest.mark.parametrize("at_looks", [False, True])
def test_a_tail_endangers_the_side_of_the_variant_and_both_sides_of_two_variants(at_looks: bool) -> None:
    """With several looks the reason names the tail of the last look at which that side has one."""
    last, first = Tails(0.5, 0.1, 8, low=False, high=True), Tails(-0.4, 0.1, 8, low=True, high=False)
    seen = {3: first, 4: last, 5: None} if at_looks else {}
    whole = None if at_looks else last
    found, why = Allowances("base", tails=whole, tails_at=seen), (tail_words(last),)
    told = (tail_words(first),) if at_looks else ()
    assert found.versus("a", "base") == Allowance(tails=whole, why_low=told, why_high=why, tails_at=seen)
    turned = {n: tails and tails.turned() for n, tails in seen.items()}
    other = Allowance(tails=whole and whole.turned(), why_low=why, why_high=told, tails_at=turned)
    assert found.versus("base", "a") == other
    both = {n: tails and tails.both() for n, tails in seen.items()}
    other = Allowance(tails=whole and whole.both(), why_low=why, why_high=why, tails_at=both)
    assert found.versus("a", "b") == other
    assert Allowances("base", tails_at={3: None}).versus("a", "base") == Allowance()


FIVE, SIX = dict.fromkeys(range(5), TrialState.FINISHED), {5: TrialState.WAITING}
LATER = SeedSchedule(3, 8)


@pytest.mark.parametrize(
    ("schedule", "states", "unplanned", "said"),
    [
        (None, [FIVE, FIVE], (0, 0), ""),
        (None, [FIVE, {}], (0, 0), "not planned yet"),
        (LATER, [FIVE, {}], (0, 0), "not planned yet"),
        (None, [FIVE | SIX, FIVE | SIX], (0, 0), "5 of 6 seeds have ended"),
        (None, [FIVE | SIX, FIVE | {5: TrialState.PRUNED}], (0, 0), "5 of 6 seeds have ended"),
        (None, [FIVE | SIX, FIVE], (0, 0), ""),
        (None, [{0: TrialState.RUNNING}, FIVE], (0, 0), "0 of 1 seed have ended"),
        (None, [{0: TrialState.FAILED} | SIX, FIVE | SIX], (0, 0), "1 of 2 seeds has ended"),
        (None, [FIVE, FIVE], (0, 2), "5 of 7 seeds have ended, and its design asked for no others"),
        (None, [FIVE | SIX, FIVE | SIX], (2, 1), "5 of 8 seeds have ended"),
        (LATER, [FIVE | SIX, FIVE | SIX], (0, 0), ""),
        (ExtendedSeeds((3, 6)), [FIVE | SIX, FIVE | SIX], (0, 0), "5 of 6 seeds have ended"),
        (ExtendedSeeds((3, LATER, 9)), [FIVE | SIX, FIVE | SIX], (0, 0), "5 of 6 seeds have ended"),
        (ExtendedSeeds((3, 5, LATER)), [FIVE | SIX, FIVE | SIX], (0, 0), ""),
    ],
)
def test_a_comparison_waits_for_the_seeds_that_both_sides_have_planned(
    schedule: Any, states: list[dict[int, TrialState]], unplanned: tuple[int, int], said: str
) -> None:
    sides = [VariantRuns(of, {}, {}, {}, unplanned=more) for of, more in zip(states, unplanned, strict=True)]
    assert awaited_seeds(schedule, *sides) == awaited_seeds(schedule, *reversed(sides)) == said


def test_a_withheld_verdict_keeps_its_bounds_and_asks_for_no_seeds() -> None:
    bound = Bounds(0.1, 0.0, 0.2, 3)
    verdict = Verdict("undecided", "undecided: near", 4, 0.1, 0.2, "", bound, 0.3, 0.5)
    assert withheld(verdict, "why") == Verdict("undecided", "undecided: why", None, 0.1, 0.2, "why", bound, 0.3)
    assert withheld(replace(verdict, word="diverged"), "why") == replace(verdict, word="diverged")


@pytest.mark.parametrize("seeds", [({"start": 3, "max": 8},), (3, {"start": 3, "max": 8})])
@pytest.mark.parametrize("ended", [1, 2])
def test_a_schedule_counts_the_pairs_before_its_first_look(seeds: tuple[Any, ...], ended: int) -> None:
    made = declared(study({seed: 0.5 + 0.01 * seed for seed in range(4)}, 4), *seeds)
    del made.trial_records[f"norm=none/{ended}"]
    found = variant(made).verdict
    assert found is not None
    assert found.sentence == f"undecided: at least 3 paired seeds are required, {ended} finished"


@pytest.mark.parametrize("short", ["baseline", "norm=none"])
def test_a_fixed_number_of_seeds_of_which_the_design_asked_for_fewer_has_no_verdict(short: str) -> None:
    made = study({seed: 0.5 + 0.01 * seed for seed in range(5)}, 5)
    planned = tuple(one for one in made.record.planned if one.variant != short or one.seed < 3)
    made.record = replace(made.record, planned=planned, space={"design": {"seeds": 5}})
    found = variant(made).verdict
    assert found == Verdict("undecided", "undecided: 3 of 5 seeds have ended, and its design asked for no others", None)


@pytest.mark.parametrize("lost", [TrialState.FAILED, TrialState.DIVERGED])
def test_while_seeds_are_missing_a_verdict_tells_nothing_else(lost: TrialState) -> None:
    """Neither what failed, nor how many seeds would decide; with a schedule it looks at the pairs before them."""
    near = {0: 0.0, 1: 0.06, 2: 0.02, 3: 0.05, 4: 0.03, 5: 0.02}
    waits = declared(study(near, 6), 3, 6)
    del waits.trial_records["norm=none/4"]
    found = variant(waits).verdict
    assert found is not None
    assert found.bound is not None, "three seeds were declared first"
    assert found == Verdict("undecided", "undecided: 5 of 6 seeds have ended", None, found.p_needed, found.p_not_needed,
                            bound=found.bound, p_better=found.p_better)  # fmt: skip
    waits.add("norm=none", 0, state=TrialState.FAILED)
    found = variant(waits).verdict
    assert found is not None
    assert (found.sentence, found.withheld) == ("undecided: 5 of 6 seeds have ended", "")
    looks = declared(study(dict.fromkeys(range(6), 0.5) | {2: 0.51}, 6), {"start": 3, "max": 8})
    looks.add("baseline", 0, state=lost)
    del looks.trial_records["norm=none/5"]
    found = variant(looks).verdict
    assert found is not None
    assert found.sentence.startswith("undecided: ")
    assert variant(looks).awaits == ""


def test_a_tail_of_paired_differences_does_not_concern_runs_that_share_nothing() -> None:
    names = ("baseline", *"abcde")
    made, found = fake_store({name: ({}, 10) for name in names}, 6, margin=MARGIN), []
    for place, (name, seed) in enumerate(itertools.product(names, range(6))):
        far = 0.0 if name == "baseline" else 0.1 + 0.5 * (seed == "abcde".index(name)) + 0.004 * (-1) ** place
        made.add(name, seed, {"val_loss": 3.0 + seed / 50 + far})
    for paired in (frozenset(names) - {"e"}, frozenset[str]()):
        made.record = replace(made.record, judged=JudgedRuns("seed", paired, ""))
        report = read_study(made, "a_study")
        assert (report.evidence.tails is None) == (not paired)
        found.append((report.variants[-1].verdict, report.variants[-1].difference))
    assert found[0] == found[1]
    assert found[0][1] is not None
    assert not found[0][1].is_paired


def swept_with_tails(seeds: Any = 6) -> FakeStore:
    """Four variants at two values; one seed of each ends far worse, and one other far better in accuracy at the first.

    Args:
        seeds: As the design has them.
    """
    ends = [f"@model.heads={heads}" for heads in (1, 2)]
    made = fake_store({name + end: ({}, 10) for end in ends for name in ("baseline", *"abcd")}, 6, margin=MARGIN)
    design = {"kind": "sweep", "path": "model.heads", "values": [1, 2], "seeds": seeds}
    made.record = replace(made.record, space={"design": design})
    for place, (name, seed, end) in enumerate(itertools.product(("baseline", *"abcd"), range(6), ends)):
        sign, far = (-1) ** (place // 2), name != "baseline" and seed == "abcd".index(name)
        loss = 3.0 + seed / 50 + (0.2 + 0.5 * far + 0.004 * sign) * (name != "baseline")
        accuracy = 0.5 + 0.3 * far * (end == ends[0]) + 0.004 * sign * (name != "baseline")
        curve = [(step, loss) for step in range(1, 10)]
        made.add(name + end, seed, {"val_loss": loss, "val_acc": accuracy}, curve=curve)
    return made


def test_the_course_of_a_swept_variant_ends_with_the_verdict_at_its_value() -> None:
    """Also where a few seeds end far worse: a tail above does not endanger the lower bound that decides."""
    rows = [row for row in read_study(swept_with_tails(), "a_study").variants if row.verdict is not None]
    assert [row.verdict_word for row in rows] == ["needed"] * 8
    assert [row.course.points[-1].word for row in rows if row.course] == ["needed"] * 8


@pytest.mark.parametrize("seeds", [6, {"start": 3, "max": 8}])
def test_claims_allow_for_the_tail_of_the_place_or_of_the_whole_study_in_their_metric(seeds: Any) -> None:
    """Two variants of one place have the tail of that place; a trend has none, as tails cancel in a slope."""
    made = swept_with_tails(seeds)
    record, runs, places = made.record, read_runs(made, made.record, "val_loss"), read_axis_points(made, made.record)
    whole, schedule = read_allowances(record, runs), seed_schedule(record)
    results = Results(record, runs, schedule, whole, None, places, "", frozenset())
    pairs = (("a", 1, "b", 1), ("a", 2, "baseline", 2), ("baseline", 1, "a", 1), ("a", 1, "b", 2))
    for (left, at, right, other), (metric, direction) in itertools.product(
        pairs, (("val_loss", "minimize"), ("val_acc", "maximize"))
    ):
        place = places.at[at]
        study, of_place = (place.study, place.runs) if at == other else (record, runs)
        tails, at_looks = read_tails(study, of_place, metric, direction)  # type: ignore[arg-type]
        ours, theirs = f"{left}@model.heads={at}", f"{right}@model.heads={other}"
        base = theirs if right == "baseline" else "baseline@model.heads=1"
        expected = Allowances(base, tails=tails, tails_at=at_looks).versus(ours, theirs).turned()
        found = results.advantage_allowance(ours, theirs, metric, direction)  # type: ignore[arg-type]
        assert found == expected
        assert (tails is None) == (seeds != 6 or (at == 2 and metric == "val_acc"))
    assert results.advantage_allowance("a@model.heads=1", "b@model.heads=1", "flops", "minimize") == Allowance()
    sides = {float(at): (f"a@model.heads={at}", f"baseline@model.heads={at}") for at in (1, 2)}
    assert results.trend_allowance(sides, {1.0: -1.0, 2.0: 1.0}, "val_loss", "minimize") == Allowance()


def test_two_variants_that_have_learnt_too_little_are_not_compared() -> None:
    """At places of an axis by what is known there; seeds are those that the place has."""
    later = {"@budget=2": ("nothing at 2", frozenset()), "@budget=4": ("nothing at 4", frozenset()),
             "@budget=8": ("", frozenset("a"))}  # fmt: skip
    rules = [SimpleNamespace(schedule=one) for one in (None, SeedSchedule(3, 8), ExtendedSeeds((3, 6)))]
    places = {number: AxisPoint(end, None, {}, rule, None, *known)  # type: ignore[arg-type]
              for number, (rule, (end, known)) in enumerate(zip(rules, later.items(), strict=True))}  # fmt: skip
    record, schedule = study({}, 2).record, SeedSchedule(4, 9)
    results = Results(record, {}, schedule, Allowances("base"), None, AxisPoints("budget", places), "", frozenset("c"))  # type: ignore[arg-type]
    for left, right, why in (
        ("a@budget=2", "b@budget=4", "nothing at 2"), ("b@budget=4", "a@budget=2", "nothing at 4"),
        ("a@budget=2", "b@budget=8", ""), ("c", "d", ""), ("a", "a@budget=8", ""), ("b@budget=8", "c", ""),
        *((*pair, f"neither {pair[0]} nor {pair[1]} is shown to beat a trivial baseline")
          for pair in (("a@budget=2", "a@budget=8"), ("c", "b@budget=4"), ("a@budget=8", "c"))),
    ):  # fmt: skip
        assert results.too_little(left, right) == why
    assert replace(results, unlearnt="nothing").too_little("a", "b") == "nothing"
    plans = [results.schedule_on(names.split()) for names in ("a@budget=4", "a b@budget=2", "a@budget=2 a@budget=8")]
    assert plans == [rules[place].schedule for place in (1, 0, 2)]
    assert results.schedule_on(("a", "b")) == schedule
