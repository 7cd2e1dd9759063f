"""Each step that continues a study is offered where all of its conditions hold, and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from designed_study import on_off, run
from fake_store import fake_store

from ablate.analysis import StudyReport, read_study
from ablate.analysis.claims import ClaimVerdict, ClaimWord
from ablate.analysis.fairness import Tuned, Tuning
from ablate.analysis.next_steps import next_steps
from ablate.analysis.scaling import Scalings
from ablate.stats import SeedSchedule, summarise
from ablate.stats.schedule import LAST
from ablate.stats.verdict import Word
from ablate.store.records import JudgedRuns, TrialState

Turn = Callable[[StudyReport], StudyReport]


def traits(**changed: bool) -> Turn:
    return lambda report: replace(
        report, record=replace(report.record, traits=replace(report.record.traits, **changed))
    )


def space(**fields: Any) -> Turn:
    return lambda report: replace(report, record=replace(report.record, space={**report.record.space, **fields}))


def effects(**changed: Any) -> Turn:
    return lambda report: replace(report, effects=report.effects and replace(report.effects, **changed))


def pairs(**changed: Any) -> Turn:
    """The interactions, as those of removed parts."""

    def turned(report: StudyReport) -> StudyReport:
        assert report.effects is not None
        of = tuple(replace(row, **changed) for row in report.effects.interactions)
        return effects(interactions=of, titles=report.effects.titles | {row.name: "no a × no b" for row in of})(report)

    return turned


def rows(**changed: Any) -> Turn:
    return lambda report: replace(report, variants=tuple(replace(row, **changed) for row in report.variants))


def verdicts(word: Word) -> Turn:
    """The word of all verdicts."""
    return lambda report: replace(
        report,
        variants=tuple(
            replace(row, verdict=row.verdict and replace(row.verdict, word=word)) for row in report.variants
        ),
    )


def along(axis: str) -> Turn:
    return lambda report: replace(report, scaling=Scalings(axis, (1.0, 2.0), ()))


def left(waiting: int, running: int) -> Turn:
    counts = {TrialState.WAITING: waiting, TrialState.RUNNING: running}
    return lambda report: replace(
        report, progress=replace(report.progress, states={**report.progress.states, **counts})
    )


def scheduled(report: StudyReport) -> StudyReport:
    return replace(report, rule=replace(report.rule, schedule=SeedSchedule(2, 8)))


def further(*seeds: int | None) -> Turn:
    """How many more seeds may decide each comparison, and a chance that grows with it."""

    def turned(report: StudyReport) -> StudyReport:
        baseline, *others = report.variants
        assert len(others) == len(seeds)
        found = [
            replace(row, verdict=row.verdict and replace(row.verdict, further_seeds=more, chance=more and more / 10))
            for row, more in zip(others, seeds, strict=True)
        ]
        return replace(report, variants=(baseline, *found))

    return turned


def tuned(*values: dict[str, Any] | None) -> Turn:
    tuning = Tuning({}, (), {str(number): Tuned(of, (), ()) for number, of in enumerate(values)})
    return lambda report: replace(report, evidence=replace(report.evidence, tuning=tuning))


def relative(report: StudyReport) -> StudyReport:
    return replace(report, rule=replace(report.rule, relative=True))


def windows(report: StudyReport) -> StudyReport:
    return replace(report, evidence=replace(report.evidence, windows=8))


def judged(report: StudyReport) -> StudyReport:
    return replace(report, record=replace(report.record, judged=JudgedRuns("seed", frozenset(), "")))


def removals(*effects: float, noise: float = 0.003, seeds: int = 4, failed: int = 0) -> StudyReport:
    """Parts that are removed one at a time, each with its effect on the loss."""
    names = "abc"[: len(effects)]
    base = dict.fromkeys(names, "on")
    variants = {"baseline": (base, 10)} | {f"{name}=off": (base | {name: "off"}, 9) for name in names}
    made = fake_store(variants, seeds, margin=0.1)
    told = {name: {"on": {}, "off": {"removes": f"the {name}"}} for name in names}
    made.record = replace(made.record, space={"switches": told})
    for seed in range(seeds):
        for name, effect in zip(variants, (0.0, *effects), strict=True):
            scatter = noise * (-1) ** seed * (1 + seed / 20) * (name != "baseline")
            made.add(name, seed, {"val_loss": 3.0 + seed / 7 + effect + scatter})
    for seed in range(failed):
        made.add("a=off", seed, state=TrialState.FAILED, reason="out of memory")
    return read_study(made, "a_study")


def crossed(kind: str, noise: float = 0.2, seeds: int = 2, names: str = "") -> StudyReport:
    design = {"kind": kind, "seeds": seeds}
    if kind == "fractional":
        design |= {"resolution": "III" if names else "IV"}
    switches = names or ("abcd" if kind == "fractional" else "ab")
    made = run(design, on_off(*switches), lambda settings, _: 3.0 + (settings["a"] == "off"), noise=noise)
    return read_study(made, "a_study")


def partly_confirmed() -> StudyReport:
    """Two variants that results chose, of which fresh seeds confirm the first."""
    report = rows(chosen=True)(removals(0.0, 0.9))
    baseline, first, second = report.variants
    return replace(report, variants=(baseline, replace(first, confirmed=(7, 8)), second))


def test_open_claims_are_named_once_fresh_seeds_have_confirmed_some_of_what_was_chosen() -> None:
    found = removals(0.0, 0.9, 0.5)
    baseline, first, second, third = found.variants
    open_claim = ClaimVerdict("c", "It is.", "", "undecided", "undecided: so far", {})
    found = replace(found, answer=replace(found.answer, claims=(open_claim,)))
    for seeds, named in (((7, 8), 1), ((), 0)):
        variants = (baseline, replace(first, chosen=True, confirmed=seeds), replace(second, chosen=True), third)
        steps = next_steps(replace(found, variants=variants))
        assert sum(step.arguments[:1] == ("claims",) for step in steps) == named


def swept() -> StudyReport:
    design = {"kind": "sweep", "path": "model.heads", "values": [1, 2], "seeds": 4}
    variants = {"plain": {"a": "off"}}
    made = run(design, on_off("a"), lambda at, _: 3.0 + 0.2 * (at["a"] == "off"), noise=0.08, draw=3, variants=variants)
    return read_study(made, "a_study")


def claims(*words: ClaimWord) -> Turn:
    of = tuple(ClaimVerdict(word, "", "", word, f"{word}: so", {}) for word in words)
    return lambda report: replace(report, answer=replace(report.answer, claims=of))


MOVING: Any = SimpleNamespace(movement=summarise([0.2, 0.21, 0.22]))
CASES: dict[str, tuple[Callable[[], StudyReport], tuple[str, ...], str, list[Turn]]] = {
    "together": (
        lambda: removals(0.0, 0.01, 0.9),
        ("resume", "a_study", "--design", "simplify"),
        "tries 2 removals together",
        [traits(chooses=True), space(tuned={"training.lr": 1}), windows, along("budget"), verdicts("worse")],
    ),
    "narrower effects": (
        lambda: crossed("grid"),
        ("resume", "a_study", "--seeds", "4"),
        "trains every combination with 2 more seeds, which would decide .* of 1 undecided change and .* of 1 pair .*",
        [
            windows, effects(chosen=True), effects(withheld="trials wait"), effects(main=(), interactions=()),
            pairs(aliases=("c=off:d=off",)),
        ],
    ),
    "narrower effects of looks": (
        lambda: scheduled(crossed("grid")),
        ("resume", "a_study", "--seeds", "4"),
        "trains every combination with 2 more seeds, which narrows the intervals of 1 undecided change and 1 pair",
        [lambda report: crossed("grid"), lambda report: scheduled(crossed("grid", seeds=1))],
    ),
    "intervals": (
        lambda: crossed("grid", seeds=1),
        ("resume", "a_study", "--seeds", "2"),
        "trains every combination with 1 more seed, which gives intervals to 2 undecided changes and 1 pair",
        [lambda report: crossed("grid")],
    ),
    "values of tuning": (
        lambda: tuned({"lr": 1}, None)(removals(0.0)),
        ("resume", "a_study"),
        "tunes to the end, then trains the comparisons",
        [tuned({"lr": 1}), left(1, 0)],
    ),
    "seeds beside a time to a target": (
        lambda: relative(further(2, 5, None)(verdicts("undecided")(removals(0.0, 0.0, 0.0)))),
        ("resume", "a_study", "--seeds", "9"),
        "3 comparisons are undecided: about 5 more seeds would settle 2 of them with a chance of 20 % each",
        [further(2, 4, None), further(None, None, None), verdicts("worse")],
    ),
    "a chance that is not known": (
        lambda: relative(removals(0.2, seeds=1)),
        ("resume", "a_study", "--seeds", "2"),
        "the a is undecided: about 1 more seed may settle it",
        [lambda report: relative(removals(0.2, seeds=2)), further(None)],
    ),
    "windows": (
        lambda: windows(further(16, 9, 9)(verdicts("undecided")(removals(0.0, 0.0, 0.0)))),
        (),
        "3 undecided comparisons need 9 and 16 more windows",
        [further(16, 9, None), verdicts("worse")],
    ),
    "most combinations": (
        lambda: crossed("fractional", names="abcde"),
        ("resume", "a_study", "--design", "grid"),
        "trains the other 24 of 32 combinations, .*",
        [lambda report: crossed("fractional", names="abcdef")],
    ),
    "missing trials": (
        lambda: left(1, 1)(removals(0.0)),
        ("resume", "a_study"),
        "trains what is missing: 2 trials",
        [left(0, 0)],
    ),
    "no point is known to be better": (
        lambda: traits(finds_best=True)(removals(0.1, noise=0.05, seeds=6)),
        (),
        "keep the baseline: to tell the chosen point from it, over 100 more seeds would be needed",
        [traits(finds_best=False), verdicts("worse")],
    ),
    "twice as many seeds": (
        lambda: crossed("grid", 0.2, LAST // 2),
        ("resume", "a_study", "--seeds", r"\d+"),
        ".*",
        [lambda report: crossed("grid", 0.2, LAST // 2 + 1), lambda report: crossed("grid", 0.5, LAST // 2)],
    ),
    "all combinations": (
        lambda: crossed("fractional"),
        ("resume", "a_study", "--design", "grid"),
        "trains the other 8 of 16 combinations, .*: tells the 6 pairs apart",
        [
            traits(chooses=True), space(tune={"seeds": 1}), space(tuned={"training.lr": 1}), along("budget"),
            effects(axes=("lr",)), effects(main=(), interactions=()), space(design={"seeds": {"start": 2, "max": 4}}),
            space(switches={name: {"on": {}, "off": {}, "half": {}} for name in "abcd"}),
        ],
    ),
    "failed trials": (
        lambda: removals(0.1, failed=1),
        ("resume", "a_study"),
        "tries again what failed: 1 trial",
        [judged, verdicts("worse"), lambda report: replace(report, progress=replace(report.progress, failures=()))],
    ),
    "seeds of a schedule": (
        lambda: traits(adds_seeds=True)(removals(0.2, noise=0.08)),
        ("resume", "a_study", "--seeds", r"4:\d+"),
        "the a is undecided: about .* of it and of the baseline would settle it .*",
        [traits(adds_seeds=False), windows, along("model.width"), verdicts("worse")],
    ),
    "seeds of the design": (
        lambda: traits(adds_seeds=False)(removals(0.2, noise=0.08)),
        (),
        r"\d+ more seeds may settle the a",
        [judged, windows, traits(adds_seeds=True), verdicts("worse")],
    ),
    "as many seeds as a study may have": (
        lambda: traits(adds_seeds=False)(further(LAST - 4)(verdicts("undecided")(removals(0.0)))),
        (),
        f"{LAST - 4} more seeds may settle the a",
        [further(LAST - 3), further(None)],
    ),
    "the last seed of a schedule": (
        lambda: traits(adds_seeds=True)(further(30, 42)(verdicts("undecided")(removals(0.0, 0.0)))),
        ("resume", "a_study", "--seeds", "4:46"),
        "2 comparisons are undecided: about 42 more seeds of them and of the baseline would settle them with .* each",
        [further(30, 43), further(30, 41), further(None, None)],
    ),
    "seeds beyond a schedule": (
        lambda: removals(0.0, noise=0.14, seeds=2),
        (),
        r"1 undecided comparison needs \d\d more seeds, beyond any schedule",
        [traits(adds_seeds=False), windows],
    ),
    "seeds of a sweep": (
        swept,
        (),
        r"\d+ more seeds may settle plain at 1, plain at 2",
        [judged, windows, along("budget")],
    ),
    "longer": (
        lambda: rows(course=MOVING)(removals(0.0)),
        (),
        "train longer: 1 difference changed by more than the margin in the last third of training",
        [along("budget"), rows(course=None), verdicts("undecided")],
    ),
    "claims": (
        lambda: claims("undecided", "supported", "refuted")(removals(0.0)),
        ("claims", "a_study"),
        "says why 1 claim is open; every comparison is decided",
        [verdicts("undecided"), rows(chosen=True), rows(verdict=None), claims("supported")],
    ),
    "fresh seeds to confirm": (
        lambda: rows(chosen=True)(removals(0.0)),
        (),
        "`confirm: 3` in the design .*",
        [rows(chosen=False), rows(confirmed=(7, 8)), verdicts("undecided")],
    ),
    "nothing": (
        lambda: removals(0.0),
        (),
        "nothing is open: every comparison is decided",
        [windows, rows(chosen=True), rows(verdict=None), verdicts("undecided")],
    ),
    "nothing on fresh seeds": (
        partly_confirmed,
        (),
        "nothing is open: every comparison on fresh seeds is decided",
        [rows(chosen=False), rows(confirmed=(7, 8)), rows(confirmed=()), windows],
    ),
    "nothing of one model": (
        lambda: windows(removals(0.0)),
        (),
        "every comparison is decided for this one trained model; another training may differ",
        [lambda report: removals(0.0), verdicts("undecided")],
    ),
    "replacement alone": (
        lambda: pairs(low=-0.3, high=0.05)(crossed("grid", noise=0.001)),
        (),
        "the answer needs no more seeds; whether one part matters less without the other is open",
        [pairs(low=-0.05), pairs(high=0.3), pairs(aliases=("c=off:d=off",)), effects(interactions=())],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_step_is_offered_where_all_of_its_conditions_hold_and_nowhere_else(name: str) -> None:
    made, arguments, purpose, turns = CASES[name]

    def offered(report: StudyReport) -> bool:
        steps = [step for step in next_steps(report) if re.fullmatch(purpose, step.purpose)]
        return any(re.fullmatch(" ".join(arguments), " ".join(step.arguments)) for step in steps)

    report = made()
    assert offered(report), next_steps(report)
    assert [number for number, turn in enumerate(turns) if offered(turn(report))] == []
