"""The course of comparisons in reports, and how soon an equal variant reaches the baseline's final loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_store import FakeStore, fake_store

from ablate.analysis import StudyReport, VariantRow, read_study
from ablate.analysis.course import comparable_before_end, course_cell, course_limits
from ablate.analysis.findings import read_findings
from ablate.render.as_json import study_json
from ablate.render.document import ablation_table
from ablate.render.formats import render_report
from ablate.render.formats.data import table_rows
from ablate.stats.bounds import bounds
from ablate.stats.verdict import decision
from ablate.store.records import TrialState, VariantRecord

STEPS = [100 * n for n in range(1, 13)]


def studied(
    gap: Callable[[int], float], *, seeds: int = 5, noise: float = 0.002, direction: str = "minimize"
) -> FakeStore:
    rng = np.random.default_rng(5)
    made = fake_store({"baseline": ({"a": "on"}, 100), "a=off": ({"a": "off"}, 90)}, seeds=seeds, direction=direction)
    for seed in range(seeds):
        base = [(step, 2.0 + 3.0 * math.exp(-step / 200) + rng.normal(0, 0.01)) for step in STEPS]
        off = [(step, loss + gap(step) + rng.normal(0, noise)) for step, loss in base]
        for name, curve in (("baseline", base), ("a=off", off)):
            made.add(name, seed, {"val_loss": curve[-1][1]}, curve=curve)
    return made


def read(made: FakeStore) -> tuple[StudyReport, VariantRow]:
    report = read_study(made, "a_study")
    return report, next(row for row in report.variants if row.name == "a=off")


def test_each_point_is_the_paired_difference_with_its_verdict() -> None:
    made = studied(lambda step: 0.0001 * step - 0.04)
    for key, curve in made.curve_points.items():
        spent = 2 + made.trial_records[key].seed
        made.curve_points[key] = tuple(
            one._replace(tokens=one.step * spent, flops=3.0 * one.step * spent) for one in curve
        )
    _, row = read(made)
    assert row.course is not None
    assert [point.step for point in row.course.points] == STEPS
    words = set()
    for at, point in enumerate(row.course.points):
        gaps = [
            made.curve_points[f"a=off/{seed}"][at].val_loss - made.curve_points[f"baseline/{seed}"][at].val_loss
            for seed in range(5)
        ]
        assert point.difference == pytest.approx(np.mean(gaps))
        assert (point.tokens, point.flops, point.n) == (4 * point.step, 12 * point.step, 5)
        half = 2.77645 * np.std(gaps, ddof=1) / math.sqrt(5)  # t at 97.5 % for 4 degrees of freedom, printed table
        assert (point.low, point.high) == (
            pytest.approx(point.difference - half, abs=1e-6), pytest.approx(point.difference + half, abs=1e-6),
        )  # fmt: skip
        assert point.word == decision((next(bounds(gaps, None)),), 0.02)[0]
        words.add(point.word)
    assert words >= {"not needed", "needed"}, "the study ends with the opposite of what it would have said early"


@pytest.mark.parametrize(
    ("gap", "word", "said"),
    [
        (lambda step: 0.0002 * step - 0.02, "growing", "Falling further behind in the last third of training"),
        (lambda step: 0.4 - 0.0003 * step, "shrinking", "Catching up in the last third of training"),
        (lambda step: -0.0002 * step, "growing", "Further ahead in the last third of training"),
        (lambda step: -0.4 + 0.0003 * step, "shrinking", "Losing their lead in the last third of training"),
        (lambda step: 0.0002 * step - 0.2, "crossing", "From ahead to behind in the last third of training"),
        (lambda step: 0.2 - 0.0002 * step, "crossing", "From behind to ahead in the last third of training"),
        (lambda step: 0.0002 * step - 0.2392, "shrinking", "Losing their lead in the last third of training"),
        (lambda step: 0.1, "settled", None),
    ],
)
def test_the_course_in_words(gap: Callable[[int], float], word: str, said: str | None) -> None:
    report, row = read(studied(gap))
    assert row.course is not None
    assert row.course.word == word
    told = [one for one in report.answer.sentences if "in the last third of training" in one]
    assert len(told) == (said is not None)
    if said:
        assert told[0].startswith(said)
        moved, ended = (gap(1200) - gap(800), row.course.end)
        assert told[0].endswith(f"a=off (by {row.course.movement.difference:+.2g} to {ended:+.2g}).")
        assert row.course.movement.difference == pytest.approx(moved, abs=0.004)
    moves = abs(gap(1200) - gap(800)) > 0.02
    assert row.provisional(0.02) == moves
    assert (
        any(one.startswith("Provisional for longer training: the verdict on a=off") for one in report.answer.sentences)
        == moves
    )


def test_a_drawing_of_courses_shows_their_second_halves_whole() -> None:
    _, row = read(studied(lambda step: 0.5 if step < 600 else -0.0002 * step))
    assert row.course is not None
    drawn = [end for point in row.course.points[6:] for end in (point.low, point.high) if end is not None]
    assert min(drawn) < -0.23
    assert max(drawn) < 0.03, "one and a half margins, and not the early differences"
    room = 0.06 * (0.03 - min(drawn))
    assert course_limits([row.course], 0.02) == pytest.approx((min(drawn) - room, 0.03 + room))
    low, high = course_limits([], 0.02)
    assert (low, high) == pytest.approx((-0.06 * 0.03, 1.06 * 0.03)), "nothing is drawn but the margin"


def test_a_larger_metric_may_be_better() -> None:
    report, row = read(studied(lambda step: -0.0002 * step, direction="maximize"))
    assert row.course is not None
    assert row.course.word == "growing"
    assert any(one.startswith("Falling further behind") for one in report.answer.sentences)


def test_every_format_shows_the_course() -> None:
    made = studied(lambda step: 0.0002 * step)
    report, row = read(made)
    assert row.course is not None
    cell = course_cell(row.course)
    assert cell.startswith("growing +0.0")
    table = ablation_table(report)
    assert table.groups[1][0][table.titles.index("course")] == cell
    plain = study_json(report)["variants"][1]["course"]
    assert (plain["word"], plain["provisional"], len(plain["points"])) == ("growing", True, len(STEPS))
    assert plain["points"][0].keys() == {"step", "tokens", "flops", "difference", "low", "high", "n", "word"}
    line = list(table_rows(read_findings(made, "a_study")))[1]
    assert (line["course"], line["provisional"]) == ("growing", True)
    for name in ("terminal", "md", "html", "latex"):
        written = str(render_report(read_findings(made, "a_study"), name))
        assert "growing" in written
        assert "Provisional for longer" in " ".join(written.replace("\\allowbreak{}", "").split())


NO_WARMUP = {"kind": "linear", "warmup": 0}
SETTINGS: dict[str, tuple[list[dict[str, Any]], bool | None]] = {
    "constant": ([{"steps": 1200, "schedule": {"kind": "constant"}}], True),
    "a decay that needs no length": ([{"steps": 1200, "schedule": {"kind": "inverse_sqrt", "warmup_steps": 40}}], True),
    "linear": ([{"steps": 1200, "schedule": {"kind": "linear"}}], False),
    "linear, by default": ([{"steps": 1200, "schedule": {}}], False),
    "linear, to 0.75: 0.8335 at two thirds": ([{"steps": 1199, "schedule": {**NO_WARMUP, "floor": 0.75}}], True),
    "linear, to 0.74: 0.8269 at two thirds": ([{"steps": 1199, "schedule": {**NO_WARMUP, "floor": 0.74}}], False),
    "linear, of one step": ([{"steps": 1, "schedule": NO_WARMUP}], True),
    "cosine": ([{"steps": 1200, "schedule": {"kind": "cosine"}}], False),
    "late decay": ([{"steps": 1200, "schedule": {"kind": "warmup_stable_decay", "decay": 0.2}}], False),
    "one of two decays": ([{"steps": 9, "schedule": {"kind": "constant"}}, {"steps": 9}], False),
    "a plugin that is not here": ([{"steps": 9, "schedule": {"kind": "of mine"}}, {"steps": 9}], None),
    "unknown": ([{}], None),
    "of unknown length": ([{"schedule": {"kind": "constant"}}], None),
}


@pytest.mark.parametrize(("training", "comparable"), SETTINGS.values(), ids=SETTINGS)
def test_with_a_decaying_rate_earlier_points_are_not_shorter_runs(
    training: list[dict[str, Any]], comparable: bool | None
) -> None:
    variants = [VariantRecord("v", "h", {}, {"training": one}, 1) for one in training]
    assert comparable_before_end(*variants) is comparable


def test_a_course_has_the_seeds_with_evaluations_on_both_sides_and_at_least_two() -> None:
    for lost, n in ((("a=off/0", "baseline/2"), 3), (("a=off/0", "a=off/1", "baseline/2"), 2)):
        made = studied(lambda step: 0.1)
        for key in lost:
            del made.curve_points[key]
        course = read(made)[1].course
        assert course is not None
        assert {point.n for point in course.points} == {n}
    assert read(studied(lambda step: 0.1, seeds=1))[1].course is None


def test_no_course_without_evaluations_or_of_another_metric() -> None:
    made = studied(lambda step: 0.1)
    made.curve_points.clear()
    assert read(made)[1].course is None
    other = studied(lambda step: 0.1)
    other.record = replace(other.record, objective={**other.record.objective, "metric": "val_accuracy"})
    for key, trial in other.trial_records.items():
        other.trial_records[key] = replace(trial, metrics={"val_accuracy": 0.5 + trial.seed / 100})
    assert read(other)[1].course is None
    for name, state in (
        ("a=off", TrialState.DIVERGED),
        ("a=off", TrialState.PRUNED),
        ("baseline", TrialState.DIVERGED),
    ):
        lost = studied(lambda step: 0.1)
        lost.trial_records[f"{name}/2"] = replace(lost.trial_records[f"{name}/2"], state=state)
        assert read(lost)[1].course is None, "the others are a biased selection"


def test_an_equal_variant_gets_where_the_baseline_ended_at_the_end() -> None:
    """In half of all studies before the end, in half not at all: a median that is right as often as it is wrong."""
    rng = np.random.default_rng(6)
    sooner = 0
    for _ in range(200):
        made = fake_store({"baseline": ({"a": "on"}, 100), "a=off": ({"a": "off"}, 90)}, seeds=3)
        for name in ("baseline", "a=off"):
            for seed in range(3):
                curve = [(step, 2.0 + math.exp(-step / 200) + rng.normal(0, 0.02)) for step in STEPS]
                made.add(name, seed, {"val_loss": curve[-1][1]}, curve=curve)
        steps = read(made)[1].steps_to_baseline
        sooner += steps.median is not None
    assert 0.5 - 3 * math.sqrt(0.25 / 200) < sooner / 200 < 0.5 + 3 * math.sqrt(0.25 / 200)


@pytest.mark.parametrize("length", [840, 1800])
def test_the_course_of_a_longer_or_shorter_training_ends_at_the_difference_of_the_table(length: int) -> None:
    made = fake_store({"baseline": ({"a": "on"}, 100), "a=off": ({"a": "off"}, 90)}, seeds=3)
    noise = np.random.default_rng(3)
    for seed in range(3):
        for name, end in (("baseline", 1200), ("a=off", length)):
            steps = range(end // 12, end + 1, end // 12)
            curve = [(step, 2.0 + 3.0 * math.exp(-step / 400) + noise.normal(0, 0.001)) for step in steps]
            made.add(name, seed, {"val_loss": curve[-1][1]}, curve=curve)
    _, row = read(made)
    assert row.course is not None
    assert row.difference is not None
    assert row.course.points[-1].step == length
    assert row.course.end == pytest.approx(row.difference.difference)
    assert row.course.points[-1].difference == pytest.approx(row.difference.difference)
    assert len(row.course.points) == 12


def test_another_schedule_than_the_baselines_is_named_as_a_cause_of_movement() -> None:
    made = studied(lambda step: 0.0002 * step - 0.2)
    specs = {"baseline": {"kind": "warmup_stable_decay", "decay": 0.2}, "a=off": {"kind": "linear"}}
    for schedules, said in ((specs, True), ({name: {"kind": "linear"} for name in specs}, False)):
        made.record = replace(
            made.record,
            variants=tuple(
                replace(one, spec={"training": {"steps": 1200, "schedule": schedules[one.name]}})
                for one in made.record.variants
            ),
        )
        report, _ = read(made)
        assert (
            any("of a=off follows another schedule than the baseline's" in one for one in report.answer.sentences)
            == said
        )
