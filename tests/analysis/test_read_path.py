"""The path of `simplify` as it is read from a store, against the design that was run."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from designed_study import kept_parameters, on_off, runs_of
from designed_study import run as run_exactly
from fake_store import NOON
from scipy.stats import ttest_1samp
from vega import marks, rows

from ablate.analysis.answer import answer_of
from ablate.analysis.fairness import Tried, Tuned, Tuning
from ablate.analysis.findings import read_findings
from ablate.analysis.path import _Replay, read_path
from ablate.analysis.runs import VariantRuns
from ablate.analysis.status import read_overview
from ablate.analysis.study import read_study
from ablate.analysis.why import gate
from ablate.designs.base import Point, PointCost
from ablate.render.figures.path import FRESH, draw_path, outcome, pictures, removal_outcome
from ablate.render.figures.style import PAPER
from ablate.render.formats.html import path_table
from ablate.store.records import Declaration, StudyRecord, TrialState

ABCD = on_off(*"abcd")
run = partial(run_exactly, noise=1e-8)  # without any spread nothing is decided


def prices(**each: float) -> Any:
    def landscape(settings: Mapping[str, str], values: Mapping[str, Any]) -> float | None:
        return 3.0 + sum(price for name, price in each.items() if settings[name] == "off")

    return landscape


def test_the_path_removes_what_can_go_the_most_expensive_first() -> None:
    made = run({"kind": "simplify", "seeds": 3}, ABCD, prices(a=0.01, b=0.02, c=0.0, d=0.9))
    path = read_path(made, "a_study")
    assert path is not None
    assert [step.switch for step in path.steps] == ["c", "b", "a"]
    assert [step.standing.parameters for step in path.steps] == [170, 150, 140]
    assert path.baseline.parameters == kept_parameters(dict.fromkeys("abcd", "on"))
    differences = [step.standing.difference.difference for step in path.steps if step.standing.difference]
    assert differences == pytest.approx([0.0, 0.02, 0.03], abs=1e-6)
    assert [step.standing.flops for step in path.steps] == [170e6, 150e6, 140e6]
    assert [step.standing.tokens_per_second.mean for step in path.steps] == [None] * 3, "none was timed"
    assert path.trying == ()


def test_a_path_without_a_step_names_what_was_tried_and_has_no_figure() -> None:
    made = run({"kind": "simplify", "seeds": 3}, ABCD, prices(a=0.9, b=0.8, c=0.7, d=0.9))
    path = read_path(made, "a_study")
    assert path is not None
    assert not path.steps
    words = [one.words for one in path.rounds[0]]
    first, second = outcome(path)
    assert first == f"Must stay: {', '.join(words[:-1])} and {words[-1]}."
    assert second.startswith("Without any one of them ")
    one_open = read_path(run({"kind": "simplify", "seeds": 3}, ABCD, prices(a=0.9, b=0.8, c=0.1, d=0.9)), "a_study")
    assert one_open is not None
    assert outcome(one_open)[0].startswith("Nothing can be removed: ")
    assert "path" not in {picture.name for picture in pictures(read_findings(made, "a_study"))}


def test_a_path_of_unknown_costs_tells_none() -> None:
    made = run({"kind": "simplify", "seeds": 3}, ABCD, prices(a=0.0, b=0.9, c=0.9, d=0.9))
    whole, context = Point("baseline", dict.fromkeys("abcd", "on")), _Replay(made.record, runs_of(made)).context()
    assert context.cost(whole) == PointCost(200, 200e6)
    variants = tuple(replace(one, parameters=None) for one in made.record.variants)
    unknown = _Replay(
        replace(made.record, variants=variants), dict.fromkeys(runs_of(made), VariantRuns({}, {}, {}, {}))
    )
    assert unknown.context().cost(whole) == PointCost(0, math.inf)
    path = read_path(made, "a_study")
    assert path is not None
    assert " parameters, " in " ".join(outcome(path))
    free = [replace(step, standing=replace(step.standing, parameters=0, flops=0.0)) for step in path.steps]
    baseline = replace(path.baseline, parameters=0, flops=0.0)
    assert "parameters" not in " ".join(outcome(replace(path, steps=tuple(free), baseline=baseline)))


def test_each_round_says_what_was_tried_and_why() -> None:
    path = read_path(run({"kind": "simplify", "seeds": 3}, ABCD, prices(a=0.01, b=0.02, c=0.0, d=0.9)), "a_study")
    assert path is not None
    assert [len(tried) for tried in path.rounds] == [4, 3, 2, 1]
    first = {one.switch: one for one in path.rounds[0]}
    assert first["c"].kept
    assert first["c"].on_path
    assert first["c"].reason.startswith("kept: at most")
    assert first["b"].reason == "not kept: acceptable, but a cheaper removal was kept (parameters)"
    assert first["d"].reason.startswith("needed: worse by at least 0.8")
    assert {one.parent for one in path.rounds[1]} == {"c=off"}
    (last,) = path.rounds[-1]
    assert (last.switch, last.kept, last.on_path) == ("d", False, False)
    for one in (one for tried in path.rounds for one in tried):
        assert one.bounds is not None
        assert one.bounds.low <= one.standing.difference.difference <= one.bounds.high
        sides = {"not needed": one.bounds.high < path.margin, "needed": one.bounds.low > path.margin}
        assert sides[one.verdict.word], "no interval reaches over the margin beside a verdict"


@pytest.mark.parametrize("beam", [1, 2, 4])
@pytest.mark.parametrize("draw", range(4))
def test_replaying_is_what_the_design_did(beam: int, draw: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from ablate.designs.simplify import SimplifyDesign, SimplifySpec

    ran: list[SimplifyDesign] = []
    build = SimplifySpec.build

    def remembered(self: SimplifySpec, context: Any) -> SimplifyDesign:
        ran.append(build(self, context))
        return ran[-1]

    monkeypatch.setattr(SimplifySpec, "build", remembered)
    landscape = prices(a=0.05, b=0.03, c=0.06, d=0.04)
    made = run({"kind": "simplify", "seeds": 3, "beam": beam}, ABCD, landscape, noise=0.03, draw=draw)
    path = read_path(made, "a_study")
    assert path is not None
    design = ran[0]
    assert [step.standing.variant for step in path.steps] == [step.point.name for step in design.path]
    for read, tried in zip(path.rounds, design.rounds, strict=True):
        assert {one.standing.variant: one.verdict for one in read} == {
            one.point.name: one.verdict for one in tried.candidates
        }
        assert [one.standing.variant for one in read if one.kept] == list(tried.kept)


@pytest.mark.parametrize(
    ("trained", "missing"),
    [
        (12, ("c=off,d=off", "a=off,d=off", "b=off,d=off")),  # seed 0 of c, and seed 1 of all three
        (14, ("b=off,d=off", "c=off,d=off")),  # seed 1 of two
        (16, ()),
    ],
)
def test_the_variants_that_an_unfinished_round_waits_for_are_named(trained: int, missing: tuple[str, ...]) -> None:
    # The first round trains 5 variants with 2 seeds; d costs most. The second trains 3 variants, seed 0 before seed 1.
    made = run({"kind": "simplify", "seeds": 2}, ABCD, prices(a=0.0, b=0.0, c=0.0, d=0.0), most=trained)
    path = read_path(made, "a_study")
    assert path is not None
    assert len(path.rounds) == (1 if missing else 2)
    assert path.trying == missing


def test_what_diverged_is_refused_and_other_designs_have_no_path() -> None:
    def diverging(settings: Mapping[str, str], values: Mapping[str, Any]) -> float | None:
        return None if settings["a"] == "off" else 1.0

    path = read_path(run({"kind": "simplify", "seeds": 2}, on_off("b", "a"), diverging), "a_study")
    assert path is not None
    refused = next(one for one in path.rounds[0] if one.switch == "a")
    assert refused.reason.startswith("diverged: 2 of 2 seeds")
    assert refused.standing.objective.mean is None
    assert [step.switch for step in path.steps] == ["b"]
    assert read_path(run({"kind": "grid"}, ABCD, prices()), "a_study") is None
    shifts = np.random.default_rng(0).normal(0, 1, 100)  # what `designed_study.run` adds to each seed
    assert path.baseline.objective.mean == pytest.approx(1.0 + (shifts[0] + shifts[1]) / 2, abs=1e-6)


def test_fresh_seeds_confirm_nothing_that_tuning_leaves_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh seeds know nothing of the choice of a variant, but they share the value that was tuned for it."""
    made = run_exactly(
        {"kind": "simplify", "seeds": 3, "confirm": 4}, on_off("a", "b"), prices(a=0.0, b=0.9), noise=0.002
    )
    path = read_path(made, "a_study")
    assert path is not None
    assert [step.switch for step in path.confirmed] == ["a"]
    values = path.confirmations[0].difference.values
    bound = ttest_1samp(values, 0.0, alternative="less").confidence_interval(0.95).high
    said = re.fullmatch(
        r"Confirmed on 4 fresh seeds: a=off can go \(at most (\S+) worse, margin 0.1\)\.", outcome(path)[0]
    )
    assert said is not None
    assert bound <= float(said[1]) < bound + 1e-4  # rounded up
    tried = tuple(Tried({"lr": at}, 0.1 * at, 1, 0, 1, {1000: 0.1 * at}) for at in range(2))  # one seed bounds nothing

    def tuning(store: object, record: StudyRecord) -> Tuning:
        return Tuning({"lr": [0, 1]}, (1000,), {one.name: Tuned({"lr": 0}, (), tried) for one in record.variants})

    made.record = replace(made.record, space=made.record.space | {"tune": {"grid": {"lr": [0, 1]}, "seeds": 1}})
    for place in ("path", "study"):
        monkeypatch.setattr(f"ablate.analysis.{place}.read_tuning", tuning)
    tuned, report = read_path(made, "a_study"), read_study(made, "a_study")
    assert tuned is not None
    assert tuned.confirmed == ()
    assert outcome(tuned)[0].startswith("Chosen, not confirmed on 4 fresh seeds: a=off (undecided")
    verdict = next(row.verdict for row in report.variants if row.confirmed)
    assert verdict is not None
    assert "do not bound how much better" in verdict.withheld
    assert set(read_overview(made, "a_study").verdicts) == {"undecided"}


def test_a_step_beyond_one_that_fresh_seeds_do_not_confirm_is_not_the_smallest() -> None:
    """Each step alone holds with 95 %; the best of several does not, so the path ends at the first that fails."""
    design = {"kind": "simplify", "seeds": 3, "confirm": 3}
    made = run_exactly(design, on_off("a", "b"), prices(a=0.0, b=0.0), noise=0.01)
    confirmed = [row.name for row in read_study(made, "a_study").variants if row.confirmed]
    assert confirmed == ["b=off", "a=off,b=off"]
    (smallest,) = [said for said in answer_of(read_study(made, "a_study")).headline if said.startswith("Smallest")]
    assert re.fullmatch(r"Smallest that is as good: a=off,b=off,.*, confirmed on 3 fresh seeds\.", smallest)
    whole = read_path(made, "a_study")
    assert whole is not None
    assert outcome(whole)[0].startswith("Confirmed on 3 fresh seeds: b=off, then a=off, can go (at most ")
    half = replace(whole, confirmations=whole.confirmations[:1])
    fresh = tuple(one for one in made.record.confirm_trials if one.variant != "a=off,b=off")  # it was no step then
    assert read_path(replace(made, record=replace(made.record, confirm_trials=fresh)), "a_study") == half
    said = outcome(half)
    assert said[0].startswith("Confirmed on 3 fresh seeds: b=off can go (at most ")
    assert "Next, not confirmed: a=off." in said
    assert [removal_outcome(step, half)[0] for step in half.steps] == ["confirmed", "chosen"]
    drawn = rows(marks(draw_path(half, PAPER), "point")[0])
    assert [row["difference"] for row in drawn if row["seeds"] == FRESH] == [
        half.confirmations[0].difference.difference
    ]
    (fresh,) = re.findall(
        r">on 3 fresh seeds; \S+ on the seeds that chose it</small></td><td class=.number.><b>(\S+)</b>",
        path_table(half, PAPER),
    )
    assert float(fresh) == pytest.approx(half.confirmations[0].difference.difference, abs=0.005)
    broken = deepcopy(made)
    broken.add("b=off", 3000, {}, state=TrialState.DIVERGED, stopped_at=1)
    last = next(row for row in read_study(broken, "a_study").variants if row.name == "a=off,b=off")
    assert last.verdict is not None
    assert last.verdict.is_acceptable
    assert not any("a=off,b=off" in said for said in answer_of(read_study(broken, "a_study")).headline)
    seen = Declaration(made.record.objective, [], NOON, 9, 3, pairs=3, confirm=2, confirmed=2)
    made.record = replace(made.record, trivial={"bigram": {"val_loss": 9.0}}, declared_before=(seen,))
    for end in (TrialState.FINISHED, TrialState.FAILED):
        if end is TrialState.FAILED:
            made.add("a=off,b=off", 3000, {}, state=end, reason="out of memory")
        report, path = read_study(made, "a_study"), read_path(made, "a_study")
        assert path is not None
        assert {one.variant: (one.verdict, one.difference) for one in path.confirmations} == {
            row.name: (row.verdict, row.difference) for row in report.variants if row.confirmed
        }, "the path says of fresh seeds what the rows say"
    made.add("b=off", 3000, {}, state=TrialState.DIVERGED, stopped_at=1)
    report = read_study(made, "a_study")
    (lost,) = (row for row in report.variants if row.name == "b=off")
    assert (lost.lost, lost.shown_difference) == ("diverged", None), "its other fresh seeds are a biased selection"
    assert gate(report, "b=off", "not worse").passed == "fails"
    assert not any("a=off,b=off" in said and "Smallest that is as good" in said for said in answer_of(report).headline)
    assert read_overview(made, "a_study").simplest == "a=off", "removed alone, which was declared"
    alone = "Smallest that is as good: a=off, 7.7 % fewer parameters, at most 0.0099 worse."
    assert answer_of(report).headline[0] == alone, "no fresh seed was its own"
    path = read_path(made, "a_study")
    assert path is not None
    assert path.confirmed == ()


def test_fresh_seeds_confirm_nothing_where_no_model_has_learnt() -> None:
    made = run_exactly(
        {"kind": "simplify", "seeds": 3, "confirm": 3}, on_off("a", "b"), prices(a=0.0, b=0.9), noise=0.01
    )
    made.record = replace(made.record, trivial={"bigram": {"val_loss": -9.0}})
    path = read_path(made, "a_study")
    assert path is not None
    assert [one.verdict.word for one in path.confirmations] == ["undecided"]
