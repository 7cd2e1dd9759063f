"""A gate against bounds worked out by hand, the seeds to add, and a study in one line."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from designed_study import on_off, run
from fake_store import NOON, FakeStore, fake_store

from ablate.analysis import read_study
from ablate.analysis.answer import answer_of
from ablate.analysis.claims import ClaimVerdict, ClaimWord
from ablate.analysis.diff import differences
from ablate.analysis.findings import read_findings
from ablate.analysis.ideas import chance_warning, read_ideas
from ablate.analysis.next_steps import deciding_seeds, study_arguments
from ablate.analysis.report import StudyReport
from ablate.analysis.rows import Divergence
from ablate.analysis.status import read_overview
from ablate.analysis.why import gate, only_variant
from ablate.errors import ArgumentError, NotFoundError
from ablate.store import TrialState
from ablate.store.records import DesignTraits

T_95_ONE_SIDED_DF_2 = 2.92
"""From a printed table."""
WIDTH = T_95_ONE_SIDED_DF_2 * 0.01 / 3**0.5
"""Of the one-sided bounds of differences d - 0.01, d and d + 0.01 (standard deviation 0.01)."""


def study(difference: float, margin: float = 0.1, *, seeds: int = 3, names: tuple[str, ...] = ("a=x",)) -> StudyReport:
    made = fake_store({name: ({}, 10) for name in ("baseline", *names)}, seeds=3, margin=margin)
    for seed in range(3):
        made.add("baseline", seed, {"val_loss": 3.0})
        for name in names:
            if seed < seeds:
                made.add(name, seed, {"val_loss": 3.0 + difference + 0.01 * (seed - 1)})
    return read_study(made, "a_study")


@pytest.mark.parametrize(
    ("difference", "not_worse", "better"),
    [
        (-0.1 - WIDTH - 1e-4, "passes", "passes"),
        (-0.1 - WIDTH + 1e-4, "passes", "undecided"),
        (-0.1 + WIDTH - 1e-4, "passes", "undecided"),
        (-0.1 + WIDTH + 1e-4, "passes", "fails"),
        (0.0, "passes", "fails"),
        (0.1 - WIDTH - 1e-4, "passes", "fails"),
        (0.1 - WIDTH + 1e-4, "undecided", "fails"),
        (0.1 + WIDTH - 1e-4, "undecided", "fails"),
        (0.1 + WIDTH + 1e-4, "fails", "fails"),
    ],
)
def test_a_gate_follows_the_bounds(difference: float, not_worse: str, better: str) -> None:
    report = study(difference)
    assert only_variant(report) == "a=x"
    asked = gate(report, "a=x", "not worse")
    assert asked.passed == not_worse
    assert (asked.verdict == "undecided") == (not_worse == "undecided")
    assert gate(report, "a=x", "better").passed == better


def test_a_bound_at_the_margin_leaves_a_gain_open_and_what_diverged_fails() -> None:
    report = study(0.0)
    baseline, row = report.variants
    assert row.verdict is not None
    assert row.verdict.bound is not None
    for low, passed in ((-0.1, "undecided"), (-0.0999, "fails")):
        at = replace(row.verdict, bound=replace(row.verdict.bound, low=low))
        assert gate(replace(report, variants=(baseline, replace(row, verdict=at))), "a=x", "better").passed == passed
    lost = replace(report, variants=(baseline, replace(row, verdict=None, diverged=(Divergence(0, 7, ""),))))
    assert gate(lost, "a=x", "not worse").passed == "fails"


def test_missing_trials_decide_nothing_and_the_command_that_trains_them_is_named() -> None:
    asked = gate(study(1.0, seeds=2), "a=x", "not worse")
    assert asked.passed == "undecided"
    assert asked.next[0].arguments == ("resume", "a_study")


def test_a_variant_that_has_learnt_nothing_voids_its_own_gate_alone() -> None:
    made = fake_store({name: ({}, 10) for name in ("baseline", "a=x", "b=y")}, seeds=3, margin=0.1)
    made.record = replace(made.record, trivial={"bigram": {"val_loss": 3.5}})
    for seed in range(3):
        for name, loss in (("baseline", 3.0), ("a=x", 3.0), ("b=y", 3.6)):
            made.add(name, seed, {"val_loss": loss + 0.01 * seed * (name != "baseline")})
    report = read_study(made, "a_study")
    assert gate(report, "a=x", "not worse").passed == "passes"
    asked = gate(report, "b=y", "not worse")
    assert asked.passed == "undecided"
    assert "no better than a bigram" in asked.reason


def test_a_gate_asks_of_one_variant_that_is_there() -> None:
    several = study(0.0, names=("a=x", "b=y"))
    with pytest.raises(ArgumentError, match=r"several variants; expected one of a=x and b=y.*Name one with --var"):
        only_variant(several)
    with pytest.raises(NotFoundError, match=r"compares no variant 'c'.*expected one of .*; got 'c'"):
        gate(several, "c", "better")


def test_what_results_chose_is_undecided_until_fresh_seeds_confirm_it() -> None:
    design = {"kind": "search", "sampler": "random", "points": 5, "seeds": 3}
    report = read_study(run(design, on_off("a", "b"), lambda at, _: 3.0 - (at["a"] == "off")), "a_study")
    chosen = [row.name for row in report.variants if row.chosen]
    assert chosen
    assert {gate(report, name, asked).passed for name in chosen for asked in ("better", "not worse")} == {"undecided"}


def _store(design: dict[str, object], *, adds_seeds: bool = True) -> FakeStore:
    made = fake_store({name: ({}, 10) for name in ("baseline", "a=x")}, seeds=2, margin=0.02)
    traits = DesignTraits(adds_seeds=adds_seeds)
    made.record = dataclasses.replace(made.record, space={"design": design}, traits=traits)
    for name, values in {"baseline": (3.0, 3.0), "a=x": (3.03, 3.07)}.items():
        for seed, value in enumerate(values):
            made.add(name, seed, {"val_loss": value})
    return made


def test_the_answer_and_the_command_name_the_same_schedule() -> None:
    report = read_study(_store({"kind": "somebody's", "seeds": 2}), "a_study")
    start, _, most = deciding_seeds(report).partition(":")
    assert f"`seeds: {{start: {start}, max: {most}}}`" in " ".join(report.answer.sentences)


@pytest.mark.parametrize(
    ("seeds", "adds_seeds"), [(2, False), ({"start": 2, "max": 8}, True)], ids=["no schedule", "schedule"]
)
def test_no_seeds_where_none_can_be_added(seeds: object, adds_seeds: bool) -> None:
    report = read_study(_store({"kind": "somebody's", "seeds": seeds}, adds_seeds=adds_seeds), "a_study")
    assert "Undecided" in " ".join(report.answer.sentences)
    assert deciding_seeds(report) == ""
    assert "set `seeds" not in " ".join(report.answer.sentences)


@pytest.mark.parametrize("state", [TrialState.FAILED, TrialState.DIVERGED])
@pytest.mark.parametrize("lost", range(5))
def test_the_next_command_adds_enough_seeds_beside_those_that_lost_a_trial(lost: int, state: TrialState) -> None:
    """Seven seeds, of which some lost a trial: what is advised are the seeds of the design, not those that pair."""
    rng = np.random.default_rng(lost)
    for difference in np.linspace(0.05, 0.15, 25):
        made = fake_store({name: ({}, 10) for name in ("baseline", "a=x")}, seeds=7, margin=0.1)
        for seed in range(7):
            made.add("baseline", seed, {"val_loss": 3.0})
            made.add("a=x", seed, {"val_loss": 3.0 + difference + rng.normal(0, 0.03)})
        for seed in range(lost):
            made.add("a=x" if state is TrialState.FAILED else "baseline", seed, state=state, reason="out of memory")
        report = read_study(made, "a_study")
        row = report.variants[1]
        assert row.verdict is not None
        for step in answer_of(report).next:
            if "--seeds" in step.arguments:
                start, most = map(int, step.arguments[-1].split(":"))
                assert row.verdict.further_seeds is not None
                assert most - 7 >= row.verdict.further_seeds
                assert start <= 7 - lost
                assert f"max: {most}}}`" in " ".join(report.answer.sentences)


@pytest.mark.parametrize(
    ("losses", "bound", "purpose"),
    [
        ([3.0], "+1 seed", "1 more seed may settle a=x: set `seeds: 2` in the design, then run `ablate study` again"),
        (
            [math.nan, math.nan, 3.0],
            "failures",
            "no number of seeds settles what is undecided: `--why` says what would",
        ),
    ],
)
def test_too_few_pairs_need_seeds_unless_the_baseline_lost_its_own(
    losses: list[float], bound: str, purpose: str
) -> None:
    made = fake_store({name: ({}, 10) for name in ("baseline", "a=x")}, seeds=len(losses), margin=0.1)
    for seed, loss in enumerate(losses):
        made.add("baseline", seed, {"val_loss": loss})
        made.add("a=x", seed, {"val_loss": 3.0})
    answer = answer_of(read_study(made, "a_study"))
    assert [row.bound_text for row in answer.rows] == [bound]
    assert [step.told for step in answer.next] == [purpose]


@pytest.mark.parametrize(
    ("seeds", "bound", "arguments", "purpose"),
    [
        (
            8,
            "no seeds left",
            (),
            "what is undecided needs more seeds than the schedule has: a longer one may settle it",
        ),
        (6, ">2 seeds", ("resume", "a_study"), "adds seeds to 1 of 1 undecided, up to 8"),
    ],
)
def test_a_schedule_promises_no_more_seeds_than_it_has(
    seeds: int, bound: str, arguments: tuple[str, ...], purpose: str
) -> None:
    made = fake_store({name: ({}, 10) for name in ("baseline", "a=x")}, seeds=seeds, margin=0.1)
    made.record = replace(made.record, space={"design": {"kind": "leave_one_out", "seeds": {"start": 3, "max": 8}}})
    for seed in range(seeds):
        made.add("baseline", seed, {"val_loss": 3.0})
        made.add("a=x", seed, {"val_loss": 3.1 + 0.05 * (-1) ** seed})
    answer = answer_of(read_study(made, "a_study"))
    assert [row.bound_text for row in answer.rows] == [bound]
    assert [(step.arguments, step.told) for step in answer.next] == [(arguments, purpose)]


@pytest.mark.parametrize("adds_seeds", [True, False])
def test_what_no_schedule_would_settle_is_said_where_a_design_can_have_one(adds_seeds: bool) -> None:
    made = fake_store({name: ({}, 10) for name in ("baseline", "a=x")}, seeds=6, margin=0.1)
    made.record = replace(made.record, traits=replace(made.record.traits, adds_seeds=adds_seeds))
    for seed in range(6):
        made.add("baseline", seed, {"val_loss": 3.0})
        made.add("a=x", seed, {"val_loss": 3.1 + 0.05 * (-1) ** seed})
    (step,) = answer_of(read_study(made, "a_study")).next
    assert step.purpose == "1 undecided comparison needs over 100 more seeds" + ", beyond any schedule" * adds_seeds


@pytest.mark.parametrize(
    ("names", "design", "saved"),
    [
        ("ab", "leave_one_out", (4, 8)),
        ("ab", "grid", None),
        ("a", "leave_one_out", None),
        ("abc", "leave_one_out", (8, 16)),
    ],
)
def test_a_study_says_what_the_full_grid_of_its_switches_would_have_taken(
    names: str, design: str, saved: tuple[int, int] | None
) -> None:
    made = run({"kind": design, "seeds": 2}, on_off(*names), lambda settings, values: 1.0)
    found = read_findings(made, "a_study")
    assert (found.full_grid and (found.full_grid.combinations, found.full_grid.trials)) == saved
    if found.full_grid is not None:
        assert found.full_grid.times == pytest.approx(found.full_grid.trials / (2 + 2 * len(names)))
        assert found.full_grid.seconds == pytest.approx(found.cost.seconds * found.full_grid.times)


def test_what_diverged_is_open_and_counts_as_a_refuted_idea() -> None:
    made = fake_store({name: ({}, 10) for name in ("baseline", "a=x", "b=y")}, seeds=3, margin=0.1)
    for seed in range(3):
        for name in ("baseline", "a=x", "b=y"):
            made.add(name, seed, {"val_loss": 3.0 + 0.001 * seed * (name != "baseline")})
    settled = answer_of(read_study(made, "a_study")).next
    assert [step.purpose for step in settled] == ["nothing is open: every comparison is decided"]
    report = read_study(made, "a_study")
    words: tuple[ClaimWord, ...] = ("undecided", "supported")
    claims = tuple(ClaimVerdict(word, "", "", word, word, {}) for word in words)
    (step,) = answer_of(replace(report, answer=replace(report.answer, claims=claims))).next
    assert step.arguments == ("claims", "a_study")
    assert step.purpose == "says why 1 claim is open; every comparison is decided"
    selected = tuple(replace(row, chosen=row.name == "b=y") for row in report.variants)
    (step,) = answer_of(replace(report, variants=selected, answer=replace(report.answer, claims=claims))).next
    assert step.purpose == "`confirm: 3` in the design tries what was selected on fresh seeds"
    baseline, first, second = report.variants
    fresh = (baseline, replace(first, chosen=True, confirmed=(100, 101, 102)), replace(second, chosen=True))
    (step,) = answer_of(replace(report, variants=fresh)).next
    assert step.purpose == "nothing is open: every comparison on fresh seeds is decided"
    made.add("b=y", 1, state=TrialState.DIVERGED, stopped_at=7)
    (step,) = answer_of(read_study(made, "a_study")).next
    assert step.purpose == "no seeds decide on b=y: `--why` says what happened"
    made.studies = lambda: [made.record]  # type: ignore[attr-defined]
    ideas = read_ideas(made)  # type: ignore[arg-type]
    assert {idea.variant: idea.outcome for idea in ideas} == {"a=x": "held", "b=y": "refuted"}
    assert chance_warning(ideas[:1]) == ""
    for times, wrong in ((1, "0.1"), (13, "1.3"), (170, "17")):
        assert f"expect up to {wrong} wrong ones" in chance_warning(ideas * times)
    assert chance_warning(ideas).startswith("2 verdicts in one study, each wrong")
    both = [*ideas, replace(ideas[0], study="another", outcome="undecided"), replace(ideas[0], study="a third")]
    assert chance_warning(both).startswith("3 verdicts in 3 studies, each wrong")
    alone = fake_store({"baseline": ({}, 10)}, seeds=1)
    alone.add("baseline", 0, {"val_loss": 3.0})
    assert [step.purpose for step in answer_of(read_study(alone, "a_study")).next] == ["there is nothing to compare"]


def test_the_ideas_of_a_study_are_its_changes_and_its_claims_each_with_its_verdict() -> None:
    offs = {"baseline": 0.0, "a=x": 0.5, "b=y": 0.0, "c=z": 0.3}
    made = fake_store({name: ({}, 10) for name in (*offs, "d=w")}, seeds=3, margin=0.1)
    for seed in range(3):
        made.add("d=w", seed, state=TrialState.PRUNED)
        for name, off in offs.items():
            noise = 0.001 * (seed - 1) * (name != "baseline")
            made.add(name, seed, {"val_loss": 3.0 + off * (seed if name == "c=z" else 1) + noise})
    sides = {"right": "baseline", "margin": 0.1}
    claims = [
        {"id": "one", "says": "It is worse.", "expect": "worse", "left": "a=x"} | sides,
        {"id": "two", "expect": "better", "left": "a=x"} | sides,
        {"id": "three", "expect": "worse", "left": "c=z"} | sides,
    ]
    made.record = replace(made.record, space={"claims": claims})
    made.studies = lambda: [made.record]  # type: ignore[attr-defined]
    ideas = read_ideas(made)  # type: ignore[arg-type]
    assert {(one.study, one.metric, one.margin, one.updated) for one in ideas} == {("a_study", "val_loss", 0.1, NOON)}
    assert sorted((one.idea, one.variant, one.outcome, one.verdict) for one in ideas) == [
        ("It is worse.", "", "held", "supported"),
        ("a=x", "a=x", "refuted", "needed"),
        ("b=y", "b=y", "held", "not needed"),
        ("c=z", "c=z", "undecided", "undecided"),
        ("d=w", "d=w", "undecided", "pruned"),
        ("three", "", "undecided", "undecided"),
        ("two", "", "refuted", "refuted"),
    ]
    assert {one.variant: one.difference for one in ideas if one.difference is not None} == pytest.approx(
        {"a=x": 0.5, "b=y": 0.0, "c=z": 0.3}
    )


@pytest.mark.parametrize("bar", [None, 1.0])
def test_the_overview_has_the_verdicts_of_the_report(bar: float | None) -> None:
    made = fake_store({name: ({}, 10 - n) for n, name in enumerate(("baseline", "a=x", "b=y"))}, seeds=3, margin=0.1)
    if bar is not None:  # no model has learnt
        made.record = replace(made.record, trivial={"bigram": {"val_loss": bar}})
    for seed in range(3):
        for name, loss in (("baseline", 3.0), ("a=x", 3.01), ("b=y", 3.5)):
            made.add(name, seed, {"val_loss": loss + 0.001 * seed * (name != "baseline")})
    found, report = read_overview(made, "a_study"), read_study(made, "a_study")
    assert found.verdicts == tuple(group.key for group in answer_of(report).groups for _ in group.rows)
    assert found.verdicts == (("no answer",) * 2 if bar else ("as good", "worse"))
    assert found.simplest == ("baseline" if bar else "a=x")


def test_arguments() -> None:
    assert study_arguments("s", "x.db", "3:8", ["p.py"]) == [
        "resume", "s", "--seeds=3:8", "--store=x.db", "--plugin=p.py",
    ]  # fmt: skip


VARIANTS = {"baseline": ({}, 100), "small": ({}, 40), "smaller": ({}, 20), "wild": ({}, 10), "best": ({}, 200)}
LOSSES = {"baseline": 2.0, "small": 2.001, "smaller": 3.0, "best": 1.5}


@pytest.fixture
def store() -> FakeStore:
    found = fake_store(VARIANTS)
    for seed in range(3):
        for variant, loss in LOSSES.items():
            found.add(variant, seed, {"val_loss": loss + 0.0001 * seed * (variant == "small")})
    found.add("wild", 0, state=TrialState.DIVERGED)
    return found


def test_the_best_and_the_simplest_are_those_of_the_report(store: FakeStore) -> None:
    found, report = read_overview(store, "a_study"), read_study(store, "a_study")
    means = {row.name: row.metrics["val_loss"].mean for row in report.variants if row.metrics and not row.diverged}
    assert (found.best, found.best_value) == min(means.items(), key=lambda item: item[1])
    will_do = [row for row in report.variants if row.verdict and row.verdict.word == "not needed"]
    simplest = min([report.baseline, *will_do], key=lambda row: row.parameters)
    assert (found.simplest, found.simplest_parameters) == (simplest.name, simplest.parameters) == ("small", 40)
    assert found.seconds == 130.0


def test_a_diverged_variant_is_never_the_best(store: FakeStore) -> None:
    store.add("wild", 1, {"val_loss": 0.1})
    store.add("wild", 2, {"val_loss": float("nan")})
    assert read_overview(store, "a_study").best == "best"


def test_time_left_follows_the_pace(store: FakeStore) -> None:
    for number, (key, trial) in enumerate(store.trial_records.items()):
        store.trial_records[key] = replace(trial, finished_at=NOON + timedelta(seconds=60 * number))
    assert read_overview(store, "a_study").seconds_left == pytest.approx(2 * 60.0)
    for seed in (1, 2):
        store.add("wild", seed, state=TrialState.DIVERGED)
    assert read_overview(store, "a_study").seconds_left is None


def test_nothing_has_finished_yet() -> None:
    found = read_overview(fake_store(VARIANTS), "a_study")
    assert (found.best, found.simplest, found.seconds, found.seconds_left) == (None, "baseline", 0.0, None)


def test_only_what_differs_is_compared() -> None:
    first, second = {"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 2, "d": 4}}
    sides = [first, second, {"a": 1, "b": {"c": 2}, "e": 5, "f": None}]
    expected = {"b.d": {0: 3, 1: 4}, "e": {2: 5}}  # a missing field equals null
    assert {change.path: change.values for change in differences(*sides)} == expected
