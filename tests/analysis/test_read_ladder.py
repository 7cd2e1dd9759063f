"""What a ladder says: verdicts on the largest rung, effective speedup, extrapolation, and why there is none."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_store import NOON, FakeStore, fake_store

from ablate.analysis import read_study
from ablate.analysis.answer import answer_of
from ablate.analysis.answer_rows import AnswerGroup, outcome_words
from ablate.analysis.changes import in_words
from ablate.analysis.fairness import Tuned, Tuning
from ablate.analysis.findings import read_findings
from ablate.analysis.headline import headline
from ablate.analysis.ladder import Climb, ScaleRow, _in_seconds, climb_sentences, speedup_text
from ablate.analysis.next_steps import NextStep, next_steps
from ablate.analysis.numbers import fixed
from ablate.analysis.runs import read_runs
from ablate.analysis.why import gate, why
from ablate.designs.ladder import LadderSpec
from ablate.render.answer import answer_text
from ablate.render.as_json import study_json
from ablate.render.figures import draw, pictures
from ablate.render.figures.style import PAPER
from ablate.render.formats.html import page_table, rows_of, scale_forest
from ablate.roles import TrialRole
from ablate.spec.code import stage_identity
from ablate.stats.bounds import at_most
from ablate.stats.scaling_law import WithBounds
from ablate.store.records import Declaration, DesignTraits, PlannedTrial, SpeedTiming, StudyRecord, TrialState

RUNGS = 5


def loss(compute: float) -> float:
    return float(1.5 + 0.5 * (compute / 1e13) ** -0.3)


def studied(
    variant: Callable[[float], float],
    *,
    seeds: int = 4,
    noise: float = 0.002,
    rungs: int = RUNGS,
    margin: float = 0.01,
    direction: str = "minimize",
    design: dict[str, Any] | None = None,
) -> FakeStore:
    """A ladder over a factor of 100 in compute."""
    rng = np.random.default_rng(5)
    names = [f"{name}@rung={rung}" for rung in range(1, rungs + 1) for name in ("baseline", "a=off")]
    settings = {name: ({"a": "off" if "off" in name else "on"}, 100) for name in names}
    made = fake_store(settings, seeds=seeds, margin=margin, direction=direction)
    space = {"design": {"kind": "ladder", "rungs": list(range(1, rungs + 1)), "target": 10.0, **(design or {})}}
    traits = DesignTraits(adds_seeds=LadderSpec.adds_seeds)
    made.record = replace(made.record, space=space, baseline="baseline@rung=1", traits=traits)
    for rung, compute in enumerate(np.geomspace(1e12, 1e14, rungs), 1):
        for seed in range(seeds):
            common = rng.normal(0, noise)
            for name, truth in (("baseline", loss), ("a=off", variant)):
                value = truth(compute) + common + rng.normal(0, noise)
                made.add(f"{name}@rung={rung}", seed, {"val_loss": value}, flops=compute)
    return made


def climbed(made: FakeStore) -> Climb:
    report = read_study(made, "a_study")
    assert report.climbs is not None
    (one,) = report.climbs.of
    return one


def test_a_gain_that_survives_holds_with_its_speedup_and_stands_in_the_answer() -> None:
    made = studied(lambda compute: loss(2 * compute))
    one = climbed(made)
    assert one.outcome == "holds"
    assert one.ladder is not None
    assert one.ladder.speedup is not None
    assert one.ladder.speedup.low < 2 < one.ladder.speedup.high
    report = read_study(made, "a_study")
    answer = answer_of(report)
    (row,) = answer.rows
    assert (row.variant, row.verdict) == ("a=off@rung=5", "better")
    (row,) = answer.scale
    assert row.line.endswith(", better")
    assert (row.compute, one.ladder.target) == (("0.01x", "0.032x", "0.1x", "0.32x", "1x"), pytest.approx(1e15))
    assert "| 10x: -0.0" in row.line
    assert study_json(report)["answer"]["scale"][0]["there"] == row.there
    shown = answer_text(answer).splitlines()
    (head,) = [number for number, line in enumerate(shown) if line.startswith("val_loss − baseline")]
    assert "10x" in shown[head]
    cells = shown[head + 1].split()
    assert cells[-1] == "better"
    marks = {"better": "▲", "not worse": "=", "undecided": "?"}
    assert [cell[-1] for cell in cells if cell[-1] in marks.values()] == [marks[word] for word in row.verdicts]
    assert max(map(len, shown)) <= 80
    assert len(shown) <= 24
    shown = why(report, "a=off@rung=5")
    assert shown.row.variant == "a=off@rung=5"
    assert shown.row.bound is not None
    above = at_most(-shown.row.bound, report.margin, 3)
    assert shown.facts["changes if"] == f"the margin were above {above}", "it would not be better then"


def test_what_is_trained_and_what_is_extrapolated_are_told_apart() -> None:
    report = read_study(studied(lambda compute: loss(2 * compute)), "a_study")
    answer, climbs = answer_of(report), report.climbs
    assert climbs is not None
    trained, extrapolated = "On the largest models", "Extrapolated to 10 times that compute: "
    first, *_, last = answer.headline
    assert first == "1 of 1 gain is shown to survive 100 times the compute: a=off.", "what was trained comes first"
    assert last.startswith(extrapolated)
    assert sum(said.startswith((trained, extrapolated)) for said in answer.headline) == 2
    shown = scale_forest(answer, climbs, PAPER)
    assert "@rung" not in shown + page_table(answer, rows_of(answer)), "a rung is no part of a name"
    (one,) = climbs.of
    assert one.ladder is not None
    assert one.ladder.difference is not None
    assert f"<b>{fixed(one.ladder.difference.value, answer.decimals, sign=True)}</b>" in shown
    assert in_words("worse than baseline@rung=5", report.titles) == "worse than baseline at rung 5"


@pytest.mark.parametrize(
    ("key", "one", "two"),
    [
        ("better", "a is better", "a and b are better"),
        ("can go", "a can go", "a and b can go, one at a time"),
        ("ahead", "a is ahead", "a and b are ahead"),
        ("as good", "a is as good", "a and b are as good"),
        ("must stay", "a must stay", "a and b must stay"),
        ("worse", "a is worse", "a and b are worse"),
    ],
)
def test_a_headline_has_every_verdict_on_the_largest_models(key: Any, one: str, two: str) -> None:
    report = read_study(studied(loss, margin=0.05), "a_study")
    (row,) = answer_of(report).rows
    for names, said in (("a", one), ("ab", two)):
        rows = tuple(replace(row, variant=f"{name}=off@rung=5", words=name) for name in names)
        first, *_ = headline((AnswerGroup(key, "", rows),), (), None, report)
        assert first == f"On the largest models, 100 times the compute of the smallest: {said}."


def test_a_gain_that_fades_vanishes_and_one_that_becomes_a_loss_turns() -> None:
    shrinking = studied(lambda compute: loss(1.5 * compute), seeds=8, noise=0.0005, margin=0.02)
    turning = studied(lambda compute: 1.5 + 0.42 * (compute / 1e13) ** -0.24, seeds=8, noise=0.0005, margin=0.005)
    for made, fate, said in ((shrinking, "vanishes", "falls within the margin"), (turning, "turns", "turns to the")):
        one = climbed(made)
        assert one.fate_in_words == fate
        assert (one.scaling.points[-1].verdict.word, one.outcome) == ("better", fate)
        assert f": a=off {said}" in answer_of(read_study(made, "a_study")).headline[-1]
    for at_first, said in ((-0.1, "0 of 1 gain is shown to survive"), (0.1, ": a=off is as good.")):
        gone = studied(lambda compute, at=at_first: loss(compute) + (at if compute < 2e12 else 0.001), margin=0.02)
        assert said in answer_of(read_study(gone, "a_study")).headline[0]


def test_a_gain_that_only_the_largest_rung_has_holds() -> None:
    made = studied(lambda compute: 1.5 + 0.561 * (compute / 1e13) ** -0.4, seeds=8, noise=0.0005)
    one = climbed(made)
    assert [point.verdict.word for point in one.scaling.points] == [
        "needed",
        "needed",
        "needed",
        "not needed",
        "better",
    ]
    assert (one.outcome, one.fate_in_words) == ("holds", "better")
    worse = climbed(studied(lambda compute: loss(compute / 3), seeds=2))
    assert (worse.outcome, worse.fate_in_words) == ("holds", "worse")


@pytest.mark.parametrize(("who", "whose"), [("baseline", "the baseline's"), ("a=off", "its")])
def test_a_rung_that_is_tuned_to_the_edge_of_its_grid_is_not_extrapolated(
    who: str, whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tuning(store: object, study: StudyRecord) -> Tuning | None:
        edges = {"3": ("lr", "decay"), "4": ("decay",)}.get(study.planned[0].key[-3], ())
        of = {one.name: Tuned({}, edges if one.name == who else (), ()) for one in study.variants}
        return Tuning({"lr": [1, 2], "decay": [1, 2]}, (1000,), of) if study.planned[0].key[-3] != "1" else None

    monkeypatch.setattr("ablate.analysis.ladder.read_tuning", tuning)
    one = climbed(studied(lambda compute: loss(2 * compute)))
    assert one.refusal == f"{whose} lr on rung 3 lies at the edge of the grid"
    assert (one.outcome, one.ladder is None) == ("undecided", False)


def test_a_removal_that_costs_nothing_holds_inside_the_margin() -> None:
    made = studied(loss, margin=0.05)
    one = climbed(made)
    assert one.scaling.points[-1].verdict.is_acceptable
    assert one.outcome == "holds"
    assert answer_of(read_study(made, "a_study")).headline[-1].endswith(" that compute: a=off is as good.")


@pytest.mark.parametrize(("margin", "decimals"), [(0.05, 2), (0.1, 1), (1.0, 1)])
def test_rungs_have_the_decimals_of_the_margin_and_one_at_least(margin: float, decimals: int) -> None:
    (row,) = answer_of(read_study(studied(loss, margin=margin), "a_study")).scale
    assert {len(shown) for shown in re.findall(r"[+-]\d+\.(\d+)", row.line)} == {decimals}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"rungs": 3}, "extrapolated from 4"),
        ({"rungs": 2}, "a law needs 3"),
        ({"design": {"target": 1.0}}, "`target: 1`"),
        ({"seeds": 1}, "fewer than two seeds"),
        ({"direction": "maximize"}, "larger values of this objective are better"),
    ],
)
def test_what_is_not_extrapolated_says_why(fields: dict[str, Any], said: str) -> None:
    made = studied(lambda compute: loss(2 * compute), **fields)
    one = climbed(made)
    assert said in one.refusal
    assert one.outcome == "undecided"
    report = read_study(made, "a_study")
    assert any(said in sentence for sentence in climb_sentences(report.climbs, "val_loss", 3))
    line = answer_of(report).scale[0].line
    assert said in line
    assert (", speedup 2." in line) == (one.ladder is not None)
    assert said in " ".join(answer_text(answer_of(report)).split())


def test_a_diverged_trial_is_no_point_of_a_law() -> None:
    made = studied(loss)
    made.add("a=off@rung=2", 0, {}, state=TrialState.DIVERGED, flops=1e12)
    assert "lost trials" in climbed(made).refusal


def test_speedups_in_seconds_have_the_rate_of_each_rung_and_the_noise_of_both() -> None:
    made = studied(lambda compute: loss(2 * compute))
    assert climbed(made).seconds == (None,) * RUNGS, "not timed"
    rates = {4: (50.0, 51.0, 49.0) * 4, 5: (25.0, 25.5, 24.5) * 4}
    for rung, ours in rates.items():
        timing = SpeedTiming(f"hash of baseline@rung={rung}", ours, (100.0, 99.0, 101.0) * 4, "cpu")
        made.timed[f"a=off@rung={rung}/0"] = (timing,)
    made.trial_records = {
        key: replace(trial, tokens=500) if key.startswith("a=off") else trial
        for key, trial in made.trial_records.items()
    }
    one = climbed(made)
    assert one.ladder is not None
    assert one.seconds[:3] == (None,) * 3
    for rung, speed in ((4, 1.0), (5, 0.5)):  # its tokens have twice the FLOPs
        flops, seconds = one.ladder.speedups[rung - 1], one.seconds[rung - 1]
        assert seconds is not None
        assert seconds.value == pytest.approx(speed * flops.value, rel=0.01)
        assert seconds.low / seconds.value < flops.low / flops.value
        assert seconds.high / seconds.value > flops.high / flops.value
    report = read_study(made, "a_study")
    assert ", in seconds 1.0" in answer_of(report).scale[0].line
    assert report.climbs is not None
    two = replace(report.climbs, of=(Climb(one.scaling, None, "undecided", "it waits"), one))
    first, second, _ = climb_sentences(two, "val_loss", 3)
    assert first == "a=off: no law is fitted, because it waits."
    assert "in seconds of training not timed, not timed, not timed, 2.0" in second


@pytest.mark.parametrize(("low", "high"), [(0.5, 3.0), (2.0, 2.0), (0.0, 3.0), (1.0, math.inf)])
def test_a_speedup_in_seconds_is_that_in_flops_times_the_flops_a_second_with_the_errors_of_both(
    low: float, high: float
) -> None:
    made = fake_store({"baseline": ({}, 1), "a": ({}, 1)}, seeds=2)
    for seed in (1, 2):
        made.add("baseline", seed - 1, {"val_loss": 3.0}, flops=seed * 4e6, tokens=seed * 1000)
        made.add("a", seed - 1, {"val_loss": 3.0}, flops=seed * 3e6, tokens=seed * 500)

    def in_seconds() -> WithBounds | None:
        runs = read_runs(made, made.record, "val_loss")
        return _in_seconds(WithBounds(2.0, low, high), runs["a"], runs["baseline"])

    made.time("a", [60.0], [100.0])
    assert in_seconds() is None, "one round has no error"
    made.time("a", [60.0, 50.0], [100.0, 100.0])
    found, factor = in_seconds(), 1.5 * math.sqrt(0.6 * 0.5)
    spread = 12.7062 * math.log(60 / 50) / 2  # t at 97.5 % for 1 degree of freedom, printed table
    below, above = factor * low, factor * high
    if low > 0 and high < math.inf:
        below = 2 * factor * math.exp(-math.hypot(math.log(2 / low), spread))
        above = 2 * factor * math.exp(math.hypot(math.log(high / 2), spread))
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((2 * factor, below, above), rel=1e-4)


def next_of(made: FakeStore) -> list[NextStep]:
    return [step for step in next_steps(read_study(made, "a_study")) if "--rung" in step.arguments]


def test_the_next_rung_is_the_one_that_would_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    (step,) = next_of(studied(lambda compute: loss(2 * compute), rungs=3))
    assert step.arguments == ("resume", "a_study", "--rung", "4")
    assert step.purpose == "a rung of 10 times the compute is needed before anything is extrapolated: a=off"
    assert step.seconds == pytest.approx(10 * 8 * 10.0)  # as long as 8 trials of 10 s, times 10
    made = studied(lambda compute: loss(2 * compute), rungs=3)
    tune = {"grid": {"training.optimizer.lr": [1, 2, 3], "training.optimizer.beta": [1, 2]}, "seeds": 2}
    spec = {"training": {"optimizer": {"lr": 1, "beta": 1}}}
    variants = tuple(replace(one, spec=spec) for one in made.record.variants)
    made.record = replace(made.record, space=made.record.space | {"tune": tune}, variants=variants)
    (step,) = next_of(made)
    assert step.seconds == pytest.approx(10 * (8 + 2 * 6 * 2) * 10.0), "six values for each side with two seeds"
    gap = loss(1e14 / 1.3) - loss(1e14)
    for count, growth in ((4, "4.6"), (5, "3.2")):
        made = studied(lambda compute: loss(compute / 1.3), margin=gap, noise=0.001, rungs=count)
        (step,) = next_of(made)
        assert step.arguments[-1] == f"{count + 1}"  # the gap shrinks, and is clearly within the margin there
        assert step.purpose == f"a rung of {growth} times the compute would decide a=off"
        for most in (count, count + 1):
            with monkeypatch.context() as limits:
                limits.setattr("ablate.analysis.ladder.MOST_RUNGS", most)
                assert next_of(made) == [step] * (most > count), "a ladder has no more rungs"
    noisy = studied(lambda compute: loss(compute / 1.3), margin=gap, noise=0.001)
    for rung, seed in itertools.product((1, 2, 4), range(4)):
        trial = noisy.trial_records[f"a=off@rung={rung}/{seed}"]
        metrics = {"val_loss": trial.metrics["val_loss"] + 0.01 * (-1) ** seed}
        noisy.trial_records[trial.key] = replace(trial, metrics=metrics)
    assert [one.arguments[-1] for one in next_of(noisy)] == ["6"], "the noise of the largest rung counts"
    far = studied(lambda compute: loss(compute / 1.3), margin=0.72 * gap, noise=0.004)
    assert (climbed(far).refusal, climbed(far).outcome, next_of(far)) == ("", "undecided", []), "no rung in reach does"
    (step,) = next_of(studied(lambda compute: loss(compute / 1.3), margin=0.9 * gap, noise=0.002, rungs=7))
    assert (step.arguments[-1], step.purpose) == ("10", "a rung of 4.6 times the compute would decide a=off")
    for dial, rungs, after in (("depth", [2, 4, 8], "16"), ("depth", [2, 3, 4], "5"), ("width", [64, 96, 144], "216")):
        design = {"dial": dial, "rungs": rungs, "target": 1.5}
        (step,) = next_of(studied(lambda compute: loss(2 * compute), rungs=3, design=design))
        assert step.arguments[-1] == after, "rungs go on as the last two do"
    assert next_of(studied(lambda compute: loss(2 * compute))) == [], "it holds"
    for design in ({"target": 1.0}, {"per_rung": {"training.batch_size": [8, 9, 9]}}, {"seeds_per_rung": [4, 4, 4]}):
        assert next_of(studied(lambda compute: loss(2 * compute), rungs=3, design=design)) == []


@pytest.mark.parametrize("state", [TrialState.DIVERGED, TrialState.FAILED, TrialState.PRUNED, TrialState.WAITING])
@pytest.mark.parametrize("who", ["baseline", "a=off"])
@pytest.mark.parametrize("rung", [3, RUNGS])
def test_a_rung_without_results_of_one_side_gives_no_law_over_the_others(
    state: TrialState, who: str, rung: int
) -> None:
    made = studied(lambda compute: loss(2 * compute))
    for seed in range(4):
        if state is TrialState.WAITING:
            del made.trial_records[f"{who}@rung={rung}/{seed}"]
        else:
            made.add(f"{who}@rung={rung}", seed, {}, state=state, flops=1e13)
    one = climbed(made)
    if state is not TrialState.WAITING:
        assert (one.outcome, one.ladder) == ("undecided", None)
        assert "lost trials" in one.refusal
    assert answer_text(answer_of(read_study(made, "a_study")))


@pytest.mark.parametrize(("last", "place"), [(1, ""), (2, "3.16"), (3, "10"), (4, "31.6")])
def test_a_variant_that_was_dropped_has_the_verdict_of_its_last_rung(last: int, place: str) -> None:
    """It was better on all rungs before."""
    made = studied(lambda compute: loss(compute) + (0.3 if compute > 0.9 * 10 ** (12 + (last - 1) / 2) else -0.3))
    gone = [f"a=off@rung={rung}" for rung in range(last + 1, RUNGS + 1)]
    kept = [one for one in made.record.planned if one.variant not in gone]
    made.record = replace(made.record, planned=tuple(kept))
    one, report = climbed(made), read_study(made, "a_study")
    assert (one.outcome, one.ladder is None or one.ladder.difference is None or bool(one.refusal)) == (
        "undecided",
        True,
    )
    answer = answer_of(report)
    (row,), (scale,) = answer.rows, answer.scale
    assert (scale.there, len(scale.by_rung)) == ("", last)
    assert f"because {one.refusal}." in next(climb_sentences(report.climbs, "val_loss", 3))
    assert one.refusal == scale.refusal == f"it was dropped after rung {last}"
    assert (row.verdict, row.warning) == ("needed", f"on rung {last}, after which it was dropped")
    assert gate(report, "a=off@rung=5", "not worse").passed == "fails"
    said = [sentence for sentence in report.answer.sentences if sentence.startswith("The verdicts")]
    change = f"The verdicts change between 1 TFLOP and {place} TFLOP: a=off ({'better, then ' * (last - 1)}needed)."
    assert said == [change] * (last > 1), "one place has no change"
    assert report.scaling is not None
    assert (report.scaling.of[0].no_slope == "it was compared at one place alone") == (last == 1)
    assert "Waiting for trials" not in answer_text(answer)
    began = [one for one in kept if int(one.variant[-1]) <= last]
    waiting = read_study(replace(made, record=replace(made.record, planned=tuple(began))), "a_study")
    assert waiting.variants[1].awaits == "not planned yet", "the next rung has not begun"


def test_a_rung_that_a_variant_waits_for_is_drawn_for_the_baseline_alone() -> None:
    made = studied(loss)
    for seed in range(4):
        del made.trial_records[f"a=off@rung={RUNGS}/{seed}"]
    rows = draw("laws", read_findings(made, "a_study"))["data"]["values"]
    means = [row["mean"] for row in rows if "mean" in row]
    assert (len(means), None in means) == (2 * RUNGS - 1, False)


@pytest.mark.parametrize("rung", [1, RUNGS])
def test_a_rung_on_which_a_variant_is_invalid_has_not_dropped_it_and_is_not_drawn(rung: int) -> None:
    made, gone = studied(lambda compute: loss(2 * compute), noise=1e-5), f"a=off@rung={rung}"
    made.record = replace(
        made.record,
        variants=tuple(one for one in made.record.variants if one.name != gone),
        planned=tuple(one for one in made.record.planned if one.variant != gone),
    )
    one = climbed(made)
    assert (one.outcome, one.refusal) == ("holds", "")
    rows = draw("laws", read_findings(made, "a_study"))["data"]["values"]
    for row in rows:
        if "mean" in row:
            factor = 2 if row["name"] == "variant" else 1
            assert row["mean"] == pytest.approx(loss(factor * row["compute"]), rel=1e-3)
    assert sum("mean" in row for row in rows) == 2 * (RUNGS - 1)


@pytest.mark.parametrize("rungs", range(1, RUNGS + 1))
def test_a_single_place_is_no_axis(rungs: int) -> None:
    report = read_study(studied(loss, rungs=rungs, margin=0.05), "a_study")
    said = [sentence.partition(" places")[0] for sentence in report.answer.sentences if " places has" in sentence]
    assert said == [f"Each of the {rungs}"] * (rungs > 1)
    assert (report.scaling is None) == (rungs == 1)


def test_larger_is_better_has_no_speedup_at_all() -> None:
    made = studied(lambda compute: -loss(2 * compute), direction="maximize")
    assert climbed(made).ladder is None
    report = read_study(made, "a_study")
    assert not any("effective speedup by rung" in said for said in report.answer.sentences)


def test_the_compute_of_a_law_has_that_of_the_stages_in_it() -> None:
    made = studied(lambda compute: loss(2 * compute))
    plain, stages = climbed(made).ladder, []
    for rung, compute in enumerate(np.geomspace(1e12, 1e14, RUNGS), 1):
        stage = f"stage of a=off@rung={rung}"
        start = {"training": {"init_from": {"identity": stage_identity(f"hash of {stage}", "data")}}}
        of_variant = next(one for one in made.record.variants if one.name == f"a=off@rung={rung}")
        staged = replace(of_variant, spec=start | {"training": start["training"] | {"steps": 10}})
        others = tuple(staged if one is of_variant else one for one in made.record.variants)
        before = (*made.record.scout_variants, replace(of_variant, name=stage, hash=f"hash of {stage}"))
        made.record = replace(made.record, variants=others, scout_variants=before)
        for seed in range(4):
            made.add(stage, seed, {"val_loss": 3.0}, flops=compute)
            stages.append(PlannedTrial(f"{stage}/{seed}", stage, seed, TrialRole.STAGE))
    made.record = replace(made.record, scout_trials=tuple(stages))
    for variant in made.record.variants:
        variant.spec.setdefault("training", {"steps": 10})
    ladder = climbed(made).ladder
    assert plain is not None
    assert ladder is not None
    for before_, after in zip(plain.speedups, ladder.speedups, strict=True):
        assert after.value == pytest.approx(before_.value / 2, rel=0.05), "it takes twice the compute"


def test_what_is_extrapolated_is_the_difference_of_both_laws_there() -> None:
    for times in (1.5, 4.0):
        one = climbed(studied(lambda compute: loss(2 * compute), design={"target": times}))
        ladder = one.ladder
        assert (one.outcome, one.refusal) == ("holds", "")
        assert ladder is not None
        assert ladder.difference is not None
        there = ladder.variant.loss(times * 1e14) - ladder.baseline.loss(times * 1e14)
        assert ladder.difference.value == pytest.approx(there)


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ((1.5, 0.01, 999.0), "1.50 (0.01 … 999.00)"),
        ((0.02, 0.009, 1000.0), "0.02 (0 … ∞)"),
        ((1000.0, 2.5, 1e9), "above 2.50"),
        ((0.001, 0.0, 0.009), "below 0.01"),
    ],
)
def test_a_speedup_in_words_has_no_more_digits_than_it_can(bounds: tuple[float, float, float], said: str) -> None:
    assert speedup_text(WithBounds(*bounds)) == said


def test_a_model_that_learns_nothing_has_a_speedup_of_none_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    one = climbed(studied(lambda compute: 1e6))
    assert one.ladder is not None
    assert one.ladder.speedups[-1].value < 1e-3
    assert not recwarn.list


def test_the_laws_are_drawn_through_their_rungs_and_as_far_as_they_are_extrapolated() -> None:
    for fields, times in (({}, 10.0), ({"rungs": 3}, 1.0)):
        made = studied(lambda compute: loss(2 * compute), noise=1e-5, **fields)
        findings = read_findings(made, "a_study")
        assert "laws" in {picture.name for picture in pictures(findings)}
        rows = draw("laws", findings)["data"]["values"]
        drawn = {(row["name"], round(row["compute"])): row["law"] for row in rows if "law" in row}
        measured = [row for row in rows if "mean" in row]
        assert len(measured) == 2 * fields.get("rungs", RUNGS)
        largest = max(row["compute"] for row in measured)
        for name, factor in (("baseline", 1), ("variant", 2)):
            computes = [compute for who, compute in drawn if who == name]
            assert max(computes) == pytest.approx(times * largest)
            for compute in computes:
                assert drawn[name, compute] == pytest.approx(loss(factor * compute), rel=1e-3)


def test_a_ladder_with_more_reasons_than_letters_has_a_mark_for_each() -> None:
    answer = answer_of(read_study(studied(loss, rungs=3), "a_study"))
    (row,) = answer.scale
    rows = tuple(replace(row, words=f"part {number}", refusal=f"reason {number}") for number in range(30))
    shown = answer_text(replace(answer, scale=rows))
    marked = {reason: mark for mark, reason in re.findall(r"\[(\w+)\] (reason \d+)", " ".join(shown.split()))}
    assert len(set(marked.values())) == len(marked) == 30
    assert (marked["reason 0"], marked["reason 26"]) == ("a", "a1")


@pytest.mark.parametrize(
    ("key", "was", "there"), [("seeds_per_rung", 2, (2, 1)), ("seeds", 2, (0, 2)), ("seeds", 3, (2, 2))]
)
def test_seeds_of_a_rung_that_were_added_after_its_results_spend_error_there_alone(
    key: str, was: int, there: tuple[int, int]
) -> None:
    """On rung 1 all was seen at 2 seeds, on rung 2 at most one pair, or its model was another; each has 4 now."""
    made = studied(lambda compute: loss(compute) + 0.008, rungs=2, design={key: [4, 4] if "rung" in key else 4})
    changed = {"rungs": [1, was], key: [2, 2] if "rung" in key else 2}
    before = {**made.record.space, "design": made.record.space["design"] | changed}
    seen = {"baseline@rung=1": 2, "a=off@rung=1": 2, "baseline@rung=2": there[0], "a=off@rung=2": there[1]}
    seeds = before["design"].get("seeds")
    old = Declaration(made.record.objective, [], NOON, 4, seeds, space=before, variants=seen, pairs=2)
    fixed = read_study(made, "a_study").scaling
    claim = {"expect": "not_worse", "margin": 0.01}
    names = [(f"a=off@rung={rung}", f"baseline@rung={rung}") for rung in (1, 2)]
    claims = [{"id": f"r{at}", "left": left, "right": right, **claim} for at, (left, right) in enumerate(names, 1)]
    made.record = replace(made.record, declared_before=(old,), space={**made.record.space, "claims": claims})
    report = read_study(made, "a_study")
    assert fixed is not None
    assert report.scaling is not None
    (one,), (whole,) = report.scaling.of, fixed.of
    widths = [
        [(point.difference.high or 0.0) - (point.difference.low or 0.0) for point in of.points] for of in (one, whole)
    ]
    assert widths[0][0] > 1.5 * widths[1][0]
    assert widths[0][1] == widths[1][1]
    assert report.rule.schedule is None, "the rows are those of the largest rung"
    shown = [(found.evidence["high"] - found.evidence["low"]) for found in report.answer.claims]
    assert shown == pytest.approx(widths[0])


@pytest.mark.parametrize(
    ("outcome", "here", "there", "said"),
    [
        ("undecided", "undecided", "-0.01 … +0.02", "undecided: it is undecided on the largest rung, so here too"),
        ("undecided", "not worse", "-0.04 … +0.15", "undecided"),
        ("not worse", "not worse", "-0.02 … +0.00", "as good"),
        ("undecided", "needed", "", "not extrapolated: the rungs differ"),
    ],
)
def test_what_is_open_within_the_margin_says_why(outcome: str, here: str, there: str, said: str) -> None:
    row = ScaleRow("parallel", ("0.1x", "1x"), ("+0.1", "+0.0"), ("", "", here), 10.0, there, "1.0", "", outcome,
                   "" if there else "the rungs differ")  # fmt: skip
    assert outcome_words(row) == said
