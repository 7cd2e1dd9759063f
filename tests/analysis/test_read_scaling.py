"""Verdicts at several budgets, and along the path of a sweep: against the baseline of the same place."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from fake_store import FakeStore, fake_store

from ablate.analysis import StudyReport, read_study
from ablate.analysis.answer import answer_of
from ablate.analysis.answer_rows import AlongCell
from ablate.analysis.claims import judge_claims
from ablate.analysis.fairness import Tried, Tuned, Tuning
from ablate.analysis.findings import read_findings
from ablate.analysis.runs import read_runs
from ablate.analysis.scaling import Scaling, Scalings, scaling_sentences, slope_cell, with_tail
from ablate.analysis.status import read_overview
from ablate.analysis.why import gate, why
from ablate.render.as_json import study_json
from ablate.render.formats import render_report
from ablate.render.formats.latex import paper_table
from ablate.spec.suite import on_data
from ablate.spec.task import task_hash
from ablate.stats import calibrate, summarise
from ablate.store.records import StudyRecord, TrialState

BUDGETS = (1, 2, 4)


def studied(gap: Callable[[float], float], *, seeds: int = 4, noise: float = 0.002) -> FakeStore:
    """The baseline gets better with the budget, and `a=off` is worse than it by a gap."""
    rng = np.random.default_rng(3)
    names = [f"{name}{'' if at == 1 else f'@budget={at}'}" for at in BUDGETS for name in ("baseline", "a=off")]
    made = fake_store({name: ({"a": "off" if "off" in name else "on"}, 100) for name in names}, seeds=seeds)
    made.record = replace(
        made.record, space={"budgets": list(BUDGETS), "design": {"kind": "leave_one_out", "seeds": seeds}}
    )
    for at in BUDGETS:
        end = "" if at == 1 else f"@budget={at}"
        for seed in range(seeds):
            base = 3.0 - 0.3 * math.log2(at) + rng.normal(0, 0.05)
            made.add(f"baseline{end}", seed, {"val_loss": base})
            made.add(f"a=off{end}", seed, {"val_loss": base + gap(at) + rng.normal(0, noise)})
    return made


def scaled(made: FakeStore) -> tuple[StudyReport, Scalings, Scaling]:
    report = read_study(made, "a_study")
    assert report.scaling is not None
    (one,) = report.scaling.of
    return report, report.scaling, one


@pytest.mark.parametrize(
    ("gap", "words", "outcome", "said"),
    [
        (lambda at: 0.1, ["needed"] * 3, "holds", "The verdicts hold from budget 1 to budget 4: a=off (needed)."),
        (
            lambda at: 0.04 * math.log2(at), ["not needed", "needed", "needed"], "turns",
            "The verdicts change between budget 1 and budget 4: a=off (not needed, then needed, then needed).",
        ),
        (
            lambda at: 0.1 - 0.04 * math.log2(at), ["needed", "needed", "undecided"], "undecided",
            "Undecided at budget 4: a=off (needed, then needed, then undecided).",
        ),
        (
            lambda at: 0.02 + 0.04 * math.log2(at), ["undecided", "needed", "needed"], "decided",
            "Decided at budget 4, but not at every place before: a=off (undecided, then needed, then needed).",
        ),
    ],
)  # fmt: skip
def test_a_verdict_holds_turns_or_is_undecided(
    gap: Callable[[float], float], words: list[str], outcome: str, said: str
) -> None:
    report, found, one = scaled(studied(gap))
    assert (found.axis, found.places) == ("budget", (1.0, 2.0, 4.0))
    assert [point.verdict.word for point in one.points] == words
    assert (one.variant, one.outcome) == ("a=off", outcome)
    assert said in report.answer.sentences
    assert one.slope is not None
    assert one.slope.difference == pytest.approx(gap(2) - gap(1), abs=0.004)


def test_the_slope_is_that_of_each_seed_with_an_interval_of_their_mean() -> None:
    made = studied(lambda at: 0.04 * math.log2(at))
    _, _, one = scaled(made)
    value = lambda name, seed: made.trial_records[f"{name}/{seed}"].metrics["val_loss"]  # noqa: E731
    ends = ["", "@budget=2", "@budget=4"]
    slopes = [
        np.polyfit([0, 1, 2], [value(f"a=off{end}", seed) - value(f"baseline{end}", seed) for end in ends], 1)[0]
        for seed in range(4)
    ]
    assert one.slope is not None
    assert one.slope.difference == pytest.approx(np.mean(slopes))
    half = 3.18245 * np.std(slopes, ddof=1) / 2  # t at 97.5 % for 3 degrees of freedom, printed table
    assert one.slope.high == pytest.approx(np.mean(slopes) + half, rel=1e-4)


def test_the_table_of_the_study_is_that_of_its_own_length() -> None:
    made = studied(lambda at: 0.1)
    report = read_study(made, "a_study")
    assert [row.name for row in report.variants] == ["baseline", "a=off"]
    assert report.progress.planned == 24
    assert report.progress.states[TrialState.FINISHED] == 24
    assert read_findings(made, "a_study").cost.trials == 24
    overview = read_overview(made, "a_study")
    assert (overview.best, overview.simplest) == ("baseline", "baseline")
    del made.trial_records["a=off@budget=4/3"]
    assert read_study(made, "a_study").answer.sentences[0] == "This answer is provisional: 1 trial is still missing."


@pytest.mark.parametrize(
    ("who", "state"),
    [
        *itertools.product(("a=off", "baseline"), (TrialState.DIVERGED, TrialState.FAILED)),
        ("a=off", TrialState.PRUNED),
    ],
)
def test_a_trial_that_was_lost_at_a_length_leaves_no_slope(who: str, state: TrialState) -> None:
    made = studied(lambda at: 0.0)
    made.add(f"{who}@budget=4", 2, {}, state=state)
    report, _, one = scaled(made)
    assert (one.slope, one.steps, one.no_slope) == (None, (), "trials were lost at 4")
    assert not any("With each doubling" in sentence for sentence in report.answer.sentences)


def test_a_trial_that_diverged_at_a_length_is_reported() -> None:
    made = studied(lambda at: 0.0)
    made.add("a=off@budget=4", 2, {}, state=TrialState.DIVERGED, stopped_at=9)
    _, _, one = scaled(made)
    assert [point.verdict.word for point in one.points] == ["not needed", "not needed", "diverged"]
    assert one.outcome == "turns"


@pytest.mark.parametrize("who", [("a=off",), ("baseline",), ("a=off", "baseline"), ()])
def test_a_place_whose_seeds_were_not_all_asked_for_gives_no_slope(who: tuple[str, ...]) -> None:
    made = studied(lambda at: 0.1)
    gone = [f"{name}@budget=4/3" for name in who]
    made.record = replace(made.record, planned=tuple(one for one in made.record.planned if one.key not in gone))
    _, _, one = scaled(made)
    assert one.no_slope == ("seeds are missing" if who else "")
    assert (one.slope is None) == bool(who)


def test_claims_follow_the_budgets() -> None:
    made = studied(lambda at: 0.2 - 0.05 * math.log2(at))
    plain = {
        "id": "closer",
        "expect": "shrinks",
        "along": "budget",
        "left": "baseline",
        "right": "a=off",
        "margin": 0.01,
    }
    made.record = replace(made.record, space={**made.record.space, "claims": [plain]})
    (found,) = read_study(made, "a_study").answer.claims
    assert (found.verdict, found.evidence["positions"]) == ("supported", [1.0, 2.0, 4.0])
    wrong = {**plain, "expect": "grows"}
    made.record = replace(made.record, space={**made.record.space, "claims": [wrong]})
    (contrary,) = judge_claims(made.record, read_runs(made, made.record, "val_loss"))
    assert contrary.verdict == "refuted"


def test_a_sweep_compares_with_the_baseline_of_the_same_value() -> None:
    rng = np.random.default_rng(8)
    names = [f"{name}@model.width={width}" for width in (32, 64, 128) for name in ("baseline", "sas")]
    made = fake_store({name: ({"a": "on"}, 100) for name in names}, seeds=4)
    design = {"kind": "sweep", "path": "model.width", "values": [64, 32, 128], "seeds": 4}
    made.record = replace(made.record, space={"design": design})
    for width in (32, 64, 128):
        for seed in range(4):
            base = 5.0 - 0.5 * math.log2(width) + rng.normal(0, 0.05)
            made.add(f"baseline@model.width={width}", seed, {"val_loss": base})
            made.add(f"sas@model.width={width}", seed, {"val_loss": base + 0.3 - 0.13 * math.log2(width / 32)
                                                        + rng.normal(0, 0.002)})  # fmt: skip
    report, found, one = scaled(made)
    assert (found.axis, found.places, one.variant) == ("model.width", (32.0, 64.0, 128.0), "sas")
    assert [point.difference.difference for point in one.points] == pytest.approx([0.3, 0.17, 0.04], abs=0.005)
    assert any(said.startswith("With each doubling of model.width the difference") for said in report.answer.sentences)
    verdicts = {row.name: row.verdict for row in report.variants}
    assert [verdicts[f"sas@model.width={point.at:g}"] for point in one.points] == [
        point.verdict for point in one.points
    ]
    assert {name for name, verdict in verdicts.items() if verdict is None} == set(names[::2]), "each place has its own"
    assert not any("baseline@" in sentence for sentence in report.answer.sentences)


WIDTHS = (32, 64, 128)


def swept(gaps: dict[int, float], direction: str = "minimize") -> FakeStore:
    """A sweep of the width, which moves the baseline by 5 from value to value; `sas` is worse than it by a gap."""
    rng, sign = np.random.default_rng(4), 1 if direction == "minimize" else -1
    names = [f"{name}@model.width={width}" for width in WIDTHS for name in ("baseline", "sas")]
    variants = {name: ({"model.width": name.rpartition("=")[2]}, 100) for name in names}
    made = fake_store(variants, seeds=4, direction=direction)
    design = {"kind": "sweep", "path": "model.width", "values": [*WIDTHS], "seeds": 4}
    made.record = replace(made.record, space={"design": design})
    for place, width in enumerate(WIDTHS):
        for seed in range(4):
            base = 20.0 - sign * 5 * place + rng.normal(0, 0.05)
            made.add(f"baseline@model.width={width}", seed, {"val_loss": base})
            made.add(f"sas@model.width={width}", seed, {"val_loss": base + sign * (gaps[width] + rng.normal(0, 0.002))})
    return made


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_every_output_of_a_sweep_compares_a_variant_with_the_baseline_of_its_own_value(direction: str) -> None:
    made = swept({32: 0.5, 64: 0.0, 128: -0.5}, direction)
    report, _, one = scaled(made)
    rows = {row.name: row for row in report.variants}
    sign = 1 if direction == "minimize" else -1
    words = {32: "needed", 64: "not needed", 128: "better"}
    value = lambda name, seed: made.trial_records[f"{name}/{seed}"].metrics["val_loss"]  # noqa: E731
    for point in one.points:
        name, baseline = f"sas@model.width={point.at:g}", f"baseline@model.width={point.at:g}"
        row = rows[name]
        assert (rows[baseline].verdict, rows[baseline].difference) == (None, None)
        assert (row.verdict, row.difference) == (point.verdict, point.difference)
        assert row.verdict is not None
        assert row.verdict.word == words[int(point.at)]
        assert report.baseline_of(name).name == baseline
        gaps = {seed: value(name, seed) - value(baseline, seed) for seed in range(4)}
        assert np.mean([*gaps.values()]) == pytest.approx(point.difference.difference)
        if point.at == 128:
            assert why(report, name).seeds == pytest.approx(gaps)
            assert gate(report, name, "better").passed == "passes"
    assert report.answer.together == {f"sas@model.width={width}" for width in WIDTHS}
    assert all(row.jointly and row.parameter_change is None for row in answer_of(report).rows)
    said = [sentence for sentence in report.answer.sentences if "than the baseline" in sentence]
    assert len(said) == 3, "one of each verdict"
    assert not any("baseline@" in sentence for sentence in report.answer.sentences)
    higher = "higher" if sign > 0 else "lower"
    assert any(f"sas@model.width=32 (val_loss at least 0.49 {higher})" in sentence for sentence in said)
    table = {row["name"]: row["versus_baseline"] for row in study_json(report)["variants"]}
    assert table["sas@model.width=128"]["difference"] == pytest.approx(-0.5 * sign, abs=0.01)
    assert table["baseline@model.width=64"] is None
    paper = paper_table(report)
    assert "baseline@model.width=128" in paper.replace("\\", "")
    assert "baseline@model.width=32" not in paper.replace("\\", "")
    assert "over 4 seeds" in paper


def test_a_sweep_of_the_baseline_alone_compares_its_values_with_the_first() -> None:
    made = swept(dict.fromkeys(WIDTHS, 0.0))
    variants = tuple(variant for variant in made.record.variants if variant.name.startswith("baseline"))
    planned = tuple(one for one in made.record.planned if one.variant.startswith("baseline"))
    made.record = replace(made.record, variants=variants, planned=planned)
    report = read_study(made, "a_study")
    assert report.scaling is None
    found = {row.name: row.verdict.word for row in report.variants if row.verdict is not None}
    assert found == {f"baseline@model.width={width}": "better" for width in (64, 128)}


def test_a_place_at_which_no_model_has_learnt_has_no_verdict() -> None:
    """The baseline has 3.0, 2.7 and 2.4 at the three budgets; that of the study itself is the first."""
    made = studied(lambda at: 0.1)
    for bar, words in {
        3.3: ["needed", "needed", "needed"],
        2.85: ["undecided", "needed", "needed"],
        2.0: ["undecided", "undecided", "undecided"],
    }.items():
        made.record = replace(made.record, trivial={"bigram": {"val_loss": bar}})
        report, _, one = scaled(made)
        assert [point.verdict.word for point in one.points] == words
        row = next(row for row in report.variants if row.name == "a=off")
        assert row.verdict is not None
        assert (row.verdict.word, row.verdict.withheld) == (words[0], one.points[0].verdict.withheld)
        assert (one.outcome == "undecided") == (words[-1] == "undecided")
        along = answer_of(report).along
        assert along is not None
        assert [cell.verdict for cell in along.rows[next(iter(along.rows))]] == words
        assert not any("needed" in sentence for sentence in report.answer.sentences if not report.answer.learnt)


def test_a_failed_trial_counts_alike_in_the_row_and_at_its_budget() -> None:
    """A failed trial is no worse than a trivial baseline, in the answer's row and along the budgets."""
    made = studied(lambda at: -0.3, seeds=6)
    made.record = replace(made.record, trivial={"constant": {"val_loss": 3.3}})
    made.add("a=off", 5, state=TrialState.FAILED, reason="out of memory")
    report, _, one = scaled(made)
    (row,) = [row for row in report.variants if row.name == "a=off"]
    assert row.verdict == one.points[0].verdict
    assert row.difference == one.points[0].difference


def test_a_sweep_that_begins_at_zero_has_verdicts_at_every_value_and_no_slope() -> None:
    rates, gaps = (0, 0.1, 0.2), {0: 0.0, 0.1: 0.1, 0.2: 0.2}
    names = [f"{name}@training.dropout={rate}" for rate in rates for name in ("baseline", "sas")]
    made = fake_store({name: ({"a": "on"}, 100) for name in names}, seeds=3)
    design = {"kind": "sweep", "path": "training.dropout", "values": [*rates], "seeds": 3}
    made.record = replace(made.record, space={"design": design})
    for rate, gap in gaps.items():
        for seed in range(3):
            base = 2.0 + 3 * rate + 0.1 * seed
            made.add(f"baseline@training.dropout={rate}", seed, {"val_loss": base})
            made.add(f"sas@training.dropout={rate}", seed, {"val_loss": base + gap + 0.001 * (seed - 1)})
    _, found, one = scaled(made)
    assert found.places == (0.0, 0.1, 0.2)
    assert [point.difference.difference for point in one.points] == pytest.approx([0.0, 0.1, 0.2])
    assert [point.verdict.word for point in one.points] == ["not needed", "needed", "needed"]
    assert (one.slope, one.no_slope, len(one.steps)) == (None, "0 cannot be doubled", 2)
    for name in ("terminal", "md", "html", "latex"):
        assert "sas" in str(render_report(read_findings(made, "a_study"), name))


def test_every_format_shows_the_budgets() -> None:
    made = studied(lambda at: 0.04 * math.log2(at))
    plain = study_json(read_study(made, "a_study"))["scaling"]
    assert (plain["axis"], plain["places"]) == ("budget", [1.0, 2.0, 4.0])
    assert [point["verdict"] for point in plain["variants"][0]["points"]] == ["not needed", "needed", "needed"]
    for name in ("terminal", "md", "html", "latex"):
        written = str(render_report(read_findings(made, "a_study"), name))
        assert "The verdicts change between" in " ".join(written.replace("\\allowbreak{}", "").split())
    assert "Along training budgets" in str(render_report(read_findings(made, "a_study"), "md"))


def test_a_verdict_holds_only_if_every_place_agrees() -> None:
    """The ends agree, and the middle does not: once by another verdict, once by a trial that diverged."""
    middle = {1: 0.1, 2: 0.0, 4: 0.1}
    report, _, one = scaled(studied(lambda at: middle[int(at)]))
    assert one.outcome == "turns"
    said = "The verdicts change between budget 1 and budget 4: a=off (needed, then not needed, then needed)."
    assert said in report.answer.sentences
    made = studied(lambda at: 0.1)
    made.add("a=off@budget=2", 1, {}, state=TrialState.DIVERGED, stopped_at=9)
    report, _, one = scaled(made)
    assert one.outcome == "turns"
    assert not any("verdicts hold" in sentence for sentence in report.answer.sentences)
    undecided = {1: 0.1, 2: 0.02, 4: 0.1}
    assert scaled(studied(lambda at: undecided[int(at)]))[2].outcome == "decided"


def test_a_curve_that_bends_has_no_slope_and_shows_its_steps() -> None:
    bent = {1: 0.1, 2: 0.2, 4: 0.2}
    report, _, one = scaled(studied(lambda at: bent[int(at)]))
    assert one.slope is None
    assert [step.difference for step in one.steps] == pytest.approx([0.1, 0.0], abs=0.004)
    assert any("a=off no slope: it bends (+0." in sentence for sentence in report.answer.sentences)
    plain = study_json(report)["scaling"]["variants"][0]
    assert (plain["for_each_doubling"], plain["no_slope"], len(plain["steps"])) == (None, "it bends", 2)


def test_all_slopes_are_said_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flat difference is said as well as one that moves: who names only those that move errs in 40 % of reports."""
    monkeypatch.setattr("ablate.analysis.scaling.MOST_SLOPES", 1)
    report, _, one = scaled(studied(lambda at: 0.1, noise=0.01))
    assert one.slope is not None
    assert one.slope.low is not None
    assert one.slope.high is not None
    assert one.slope.low < 0 < one.slope.high
    (said,) = [
        sentence for sentence in report.answer.sentences if sentence.startswith("With each doubling of training")
    ]
    assert f"a=off {one.slope.difference:+.2g} [" in said
    made = studied(lambda at: 0.1)
    del made.trial_records["a=off@budget=4/3"]
    assert scaled(made)[2].no_slope == "seeds are missing"
    monkeypatch.undo()
    _, found, one = scaled(studied(lambda at: 0.1))
    lost = replace(one, slope=None, steps=(), no_slope="trials were lost at 4")
    for rows, said in (((one,) * 8, True), ((one,) * 9, False), ((one, lost), True), ((lost, lost), False)):
        sentences = scaling_sentences(replace(found, of=rows), "val_loss")
        assert any(sentence.startswith("With each doubling") for sentence in sentences) == said


def test_the_best_of_several_places_is_said_to_err_more_often() -> None:
    for gaps in ((0.1, 0.1, 0.1), (0.1, 0.02, 0.1), (0.02, 0.02, 0.02)):  # at three places, of which some decide
        answer = scaled(studied(lambda at, of=gaps: of[int(math.log2(at))]))[0].answer  # type: ignore[misc]
        warned = any("the best of the 3 is wrong in up to 15 %" in sentence for sentence in answer.sentences)
        assert warned == (max(gaps) > 0.02)
    _, found, _ = scaled(studied(lambda at: 0.1))
    said = " ".join(scaling_sentences(replace(found, places=tuple(range(21))), "val_loss"))
    assert "the best of the 21 is wrong in up to 100 %." in said


def test_a_slope_shows_its_steps_if_there_are_several_and_its_interval_if_there_is_one() -> None:
    _, _, one = scaled(studied(lambda at: 0.1 * at))
    slope = summarise([0.1, 0.2, 0.3])
    assert slope_cell(replace(one, slope=slope)) == "+0.2 [-0.048, +0.45] (+0.1, +0.2)"
    assert slope_cell(replace(one, slope=slope, points=one.points[:2])) == "+0.2 [-0.048, +0.45]"
    assert slope_cell(replace(one, slope=summarise([-0.1]), steps=())) == "-0.1"


def test_two_places_have_a_slope() -> None:
    made = studied(lambda at: 0.1)
    made.record = replace(made.record, space={**made.record.space, "budgets": [1, 2]})
    _, _, one = scaled(made)
    assert (one.no_slope, one.slope is None, len(one.steps)) == ("", False, 1)


def test_tuned_values_widen_the_bounds_at_every_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    made = studied(lambda at: 0.0)
    assert [point.verdict.word for point in scaled(made)[2].points] == ["not needed"] * 3
    tried = tuple(Tried({"lr": at}, 0.1 * at, 1, 0, 1, {1000: 0.1 * at}) for at in range(2))  # one seed bounds nothing

    def tuning(store: object, record: StudyRecord) -> Tuning:
        """Values are tuned at the study's own length alone."""
        own_length = not any("@" in planned.key for planned in record.planned)
        of = {one.name: Tuned({"lr": 0}, (), tried if own_length else ()) for one in record.variants}
        return Tuning({"lr": [0, 1]}, (1000,), of)

    monkeypatch.setattr("ablate.analysis.scaling.read_tuning", tuning)
    assert [point.verdict.word for point in scaled(made)[2].points] == ["undecided"] * 3


def test_a_claimed_trend_needs_every_step_where_the_gap_bends() -> None:
    plain = {"id": "grows", "expect": "grows", "along": "budget", "left": "baseline", "right": "a=off", "margin": 0.01}

    def claimed(gaps: dict[int, float]) -> str:
        made = studied(lambda at: gaps[int(at)])
        made.record = replace(made.record, space={**made.record.space, "claims": [plain]})
        (found,) = read_study(made, "a_study").answer.claims
        return found.sentence

    assert claimed({1: 0.1, 2: 0.2, 4: 0.5}).startswith("supported: the gap grows by at least 0.1")
    turned = claimed({1: 0.1, 2: 0.3, 4: 0.2})
    assert turned.startswith(
        "undecided: the gap bends, and from 2 to 4 it does not show this: the gap shrinks by at least 0."
    )


def test_a_study_without_either_has_none() -> None:
    made = fake_store({"baseline": ({}, 1), "b": ({}, 1)}, seeds=2)
    for seed in range(2):
        made.add("baseline", seed, {"val_loss": 1.0})
    report = read_study(made, "a_study")
    assert report.scaling is None
    assert study_json(report)["scaling"] is None


def test_a_place_where_no_model_has_learnt_has_no_verdict() -> None:
    """At budget 1 nothing is learnt, so all variants are alike: that is not a part that can go."""
    made = studied(lambda at: 0.0 if at == 1 else 0.1)
    bar = {"bigram": {"val_loss": 2.85}}
    assert [point.verdict.word for point in scaled(made)[2].points] == ["not needed", "needed", "needed"]
    made.record = replace(made.record, trivial=bar)
    report = read_study(made, "a_study")
    assert report.scaling is not None
    words = [point.verdict for point in report.scaling.of[0].points]
    assert [verdict.word for verdict in words] == ["undecided", "needed", "needed"]
    assert words[0].withheld.startswith("no model beats a bigram")
    other = {
        key: replace(trial, data_fingerprint="other") if "@" in key else trial
        for key, trial in made.trial_records.items()
    }
    made.record = replace(made.record, trivial={"bigram": {"val_loss": 1.0}})
    changed = read_study(replace(made, trial_records=other), "a_study").scaling
    assert changed is not None
    assert [point.verdict.word for point in changed.of[0].points] == ["undecided", "needed", "needed"], "other data"


@pytest.mark.parametrize("gaps", [(0.02, 0.02, 0.02), (0.1, 0.1, 0.1)])
def test_what_is_undecided_everywhere_does_not_hold(gaps: tuple[float, ...]) -> None:
    """Of more variants than a headline spells out, it counts those whose verdict holds."""
    rng, names = np.random.default_rng(2), ["a=off", "b=off", "c=off", "d=off"]
    made = fake_store(
        {f"{name}{end}": ({}, 100) for end in ("", "@budget=2", "@budget=4") for name in ("baseline", *names)}
    )
    made.record = replace(made.record, space={"budgets": [1, 2, 4], "design": {"kind": "leave_one_out", "seeds": 3}})
    for end, gap in zip(("", "@budget=2", "@budget=4"), gaps, strict=True):
        for seed in range(3):
            made.add(f"baseline{end}", seed, {"val_loss": 3.0})
            for name in names:
                made.add(f"{name}{end}", seed, {"val_loss": 3.0 + gap + rng.normal(0, 0.005)})
    holds = 4 if gaps[0] > 0.02 else 0
    (said,) = [sentence for sentence in answer_of(read_study(made, "a_study")).headline if "along training" in sentence]
    many = {4: "All 4 verdicts hold", 0: "0 of 4 verdicts hold"}[holds]
    assert said.startswith(f"{many} along training from 1x to 4x")


def noisily_tuned(made: FakeStore) -> Callable[[object, StudyRecord], Tuning]:
    """Tuning at the study's own length, whose seeds leave open whether another value is 0.2 better in either metric."""
    tried = tuple(
        Tried({"lr": at}, 0.1, 2, 0, 2, by_seed, {"val_loss": by_seed, "val_accuracy": by_seed})
        for at, by_seed in enumerate(({1000: 0.0, 1001: 0.2}, {1000: 0.2, 1001: 0.0}))
    )

    def tuning(store: object, record: StudyRecord) -> Tuning:
        of = {one.name: Tuned({"lr": 0}, (), () if "@budget" in one.name else tried) for one in record.variants}
        return Tuning({"lr": [0, 1]}, (1000, 1001), of)

    return tuning


@pytest.mark.parametrize(
    "plain",
    [
        {"expect": "not_worse", "left": "a=off", "right": "baseline"},
        {"expect": "not_worse", "left": "a=off@budget=4", "right": "baseline@budget=4"},
        {
            "expect": "not_worse",
            "left": "a=off",
            "right": "baseline",
            "metric": "val_accuracy",
            "direction": "maximize",
        },
        {"expect": "ordered", "order": ["baseline@budget=2", "b=off@budget=2"]},
        {"expect": "grows", "along": "budget", "left": "baseline", "right": "b=off"},
        {"expect": "shrinks", "along": "budget", "left": "b=off", "right": "baseline"},
    ],
)
def test_claims_allow_for_the_tuning_of_every_place_and_metric(
    plain: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, rng = studied(lambda at: 0.0), np.random.default_rng(4)
    ends = {1: "", 2: "@budget=2", 4: "@budget=4"}
    extra = fake_store({f"b=off{end}": ({"a": "on"}, 100) for end in ends.values()}, seeds=4).record
    made.record = replace(
        made.record,
        variants=(*made.record.variants, *extra.variants),
        planned=(*made.record.planned, *extra.planned),
        space={**made.record.space, "claims": [{"id": "a", "margin": 0.01, **plain}]},
    )
    for at, end in ends.items():
        for seed in range(4):
            base = made.trial_records[f"baseline{end}/{seed}"].metrics["val_loss"]
            made.add(f"b=off{end}", seed, {"val_loss": base + 0.1 + 0.1 * math.log2(at) + rng.normal(0, 0.001)})
    made.trial_records = {
        key: replace(trial, metrics={**trial.metrics, "val_accuracy": 0.5 + rng.normal(0, 0.001)})
        for key, trial in made.trial_records.items()
    }
    (free,) = read_study(made, "a_study").answer.claims
    assert free.verdict == "supported"
    monkeypatch.setattr("ablate.analysis.study.read_tuning", noisily_tuned(made))
    monkeypatch.setattr("ablate.analysis.scaling.read_tuning", noisily_tuned(made))
    (bound,) = read_study(made, "a_study").answer.claims
    assert bound.verdict == "undecided"
    assert "tune with more seeds" in bound.sentence


def test_a_variant_that_is_valid_at_one_value_of_a_sweep_is_in_the_answer() -> None:
    names = ["baseline@model.heads=1", "baseline@model.heads=2", "sas@model.heads=1"]
    made = fake_store({name: ({"a": "on"}, 100) for name in names}, seeds=3)
    design = {"kind": "sweep", "path": "model.heads", "values": [1, 2], "seeds": 3}
    made.record = replace(made.record, space={"design": design})
    for seed in range(3):
        for name in names:
            made.add(name, seed, {"val_loss": 2.0 + (0.1 + 0.001 * seed) * name.startswith("sas")})
    report = read_study(made, "a_study")
    answer = answer_of(report)
    assert [(row.variant, row.verdict) for row in answer.rows] == [("sas@model.heads=1", "needed")]
    assert answer.along is not None
    assert (answer.along.axis, answer.along.places) == ("heads", ("1", "2"))
    assert answer.along.rows["sas"][1] == AlongCell(None, None, None, "", alike=False)
    assert not any("hold" in sentence and "heads 2" in sentence for sentence in report.answer.sentences)
    for name in ("terminal", "md", "html", "latex"):
        assert "sas" in str(render_report(read_findings(made, "a_study"), name))


def test_each_place_of_a_sweep_is_held_against_the_trivial_baselines_of_its_own_data() -> None:
    """A guess among more symbols is worse: what is below that of few symbols has learnt there all the same."""
    names = [f"{name}@task.symbols={count}" for count in (4, 32) for name in ("baseline", "sas")]
    made = fake_store({name: ({"a": "on"}, 100) for name in names}, seeds=3)
    design = {"kind": "sweep", "path": "task.symbols", "values": [4, 32], "seeds": 3}
    tasks = {count: {"kind": "of_a_plugin", "symbols": count} for count in (4, 32)}
    few, many = (on_data("guess", task_hash(json.dumps(task, sort_keys=True))) for task in tasks.values())
    made.record = replace(
        made.record,
        space={"design": design},
        variants=tuple(
            replace(one, spec={"task": tasks[int(one.name.rpartition("=")[2])]}) for one in made.record.variants
        ),
        trivial={"guess": {"val_loss": 1.386}, few: {"val_loss": 1.386}, many: {"val_loss": 3.466}},
    )
    for count, loss in ((4, 1.0), (32, 2.0)):
        for seed in range(3):
            for name in ("baseline", "sas"):
                value = loss + 0.01 * seed + (0.1 + 0.001 * seed) * (name == "sas")
                made.add(key := f"{name}@task.symbols={count}", seed, {"val_loss": value})
                trial = made.trial_records[f"{key}/{seed}"]
                made.trial_records[f"{key}/{seed}"] = replace(trial, data_fingerprint=f"{count} symbols")
    report = read_study(made, "a_study")
    assert report.evidence.unlearnt == frozenset()
    assert [trivial.name for trivial in report.evidence.trivials] == ["guess"]
    assert report.scaling is not None
    assert [point.verdict.word for point in report.scaling.of[0].points] == ["needed", "needed"]
    made.record = replace(made.record, trivial={**made.record.trivial, many: {"val_loss": 1.9}})
    report = read_study(made, "a_study")
    assert report.evidence.unlearnt == {"baseline@task.symbols=32", "sas@task.symbols=32"}
    assert report.scaling is not None
    assert [point.verdict.word for point in report.scaling.of[0].points] == ["needed", "undecided"]


@pytest.mark.parametrize("left", ["baseline", "a=off"])
@pytest.mark.parametrize("unlearnt", [1, 2, 4])
def test_claims_are_decided_at_the_places_where_a_model_has_learnt(unlearnt: int, left: str) -> None:
    """In the sign of the table at each of them, whichever variant is on the left."""
    made, right = studied(lambda at: 0.1 * at), {"baseline": "a=off", "a=off": "baseline"}[left]
    for key, trial in made.trial_records.items():
        if (f"@budget={unlearnt}/" in key) if unlearnt > 1 else "@" not in key:
            worse = {name: value + 7.0 for name, value in trial.metrics.items()}
            made.trial_records[key] = replace(trial, metrics=worse)
    expect = "better" if left == "baseline" else "worse"
    claims = [
        {"id": f"at{at}", "expect": expect, "left": left + end, "right": right + end, "margin": 0.02}
        for at, end in ((1, ""), (2, "@budget=2"), (4, "@budget=4"))
    ]
    trend = {"id": "trend", "expect": "grows", "along": "budget", "left": left, "right": right, "margin": 0.01}
    across = {"id": "across", "expect": "worse", "left": f"{left}@budget=2", "right": f"{left}@budget=4", "margin": 0.1}
    made.record = replace(
        made.record,
        space={**made.record.space, "claims": [*claims, trend, across]},
        trivial={"bigram": {"val_loss": 5.0}},
    )
    report = read_study(made, "a_study")
    found = {claim.id: claim for claim in report.answer.claims}
    for at in BUDGETS:
        assert found[f"at{at}"].verdict == ("undecided" if at == unlearnt else "supported")
        assert found[f"at{at}"].evidence["difference"] == pytest.approx(0.1 * at, abs=0.01)
    assert found["trend"].verdict == "undecided"
    assert found["trend"].evidence["difference"] == pytest.approx(0.15, abs=0.01)
    if unlearnt == 2:
        assert found["across"].verdict == "supported", "one side has learnt"
    assert report.scaling is not None
    assert report.scaling.of[0].no_slope == f"no model has learnt enough at {unlearnt}"


def test_two_variants_that_have_not_learnt_are_not_compared_by_a_claim() -> None:
    made = fake_store({name: ({}, 10) for name in ("baseline", "a", "b")}, seeds=3)
    values = {"baseline": 1.0, "a": 3.0, "b": 3.5}
    for seed in range(3):
        for name, value in values.items():
            made.add(name, seed, {"val_loss": value + 0.01 * seed * value})
    claims = [{"id": "ab", "expect": "better", "left": "a", "right": "b", "margin": 0.1},
              {"id": "base", "expect": "better", "left": "baseline", "right": "b", "margin": 0.1}]  # fmt: skip
    made.record = replace(made.record, space={"claims": claims}, trivial={"bigram": {"val_loss": 2.0}})
    both, one = read_study(made, "a_study").answer.claims
    assert both.sentence.startswith("undecided: neither a nor b is shown to beat a trivial baseline")
    assert one.verdict == "supported"


def test_slopes_hold_where_the_noise_of_the_places_differs_and_is_skewed() -> None:
    """Three times the noise at the first of three places leaves its tail in the slope; equal tails would cancel."""
    rng, seen, unseen = np.random.default_rng(8), list[bool](), list[bool]()
    for _ in range(150):
        noise = np.array([3.0, 1.0, 1.0])[:, None, None] * (rng.gamma(0.5, 1.0, (3, 8, 10)) - 0.5)
        plain = [
            Scaling(f"{n}", (), summarise(row.tolist()), "holds") for n, row in enumerate((noise[2] - noise[0]) / 2)
        ]
        for scalings, missed in ((plain, unseen), (with_tail(plain, None), seen)):
            slopes = [one.slope for one in scalings if one.slope is not None]
            assert len(slopes) == 8
            missed += [not (one.low or 0.0) <= 0 <= (one.high or 0.0) for one in slopes]
    assert calibrate.rate(np.array(unseen)).low > 0.08
    assert calibrate.rate(np.array(seen)).share <= 0.05
