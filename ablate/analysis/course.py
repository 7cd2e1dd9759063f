"""The course of a comparison: its difference and verdict at each evaluation, and whether it still moves at the end."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from ablate.analysis.curves import Line, share, versus
from ablate.analysis.rows import Course, CoursePoint, VariantRow
from ablate.analysis.runs import Curve, VariantRuns
from ablate.analysis.text import listed, shortened
from ablate.spec.schedule import ScheduleSpec
from ablate.stats import Allowance, Direction, PairedDifference, SeedPlan, over_looks, summarise
from ablate.stats.bounds import bounds
from ablate.stats.trend import MOVING, CourseWord, course_word, movements
from ablate.stats.verdict import Word, decision, replacement_word
from ablate.store.records import VariantRecord

METRIC = "val_loss"
"""The metric that curves have at every evaluation."""
NEAR = 0.1
"""Tolerance, as a share, between a learning rate and that at the end of a shorter training of the same schedule."""
_LONGER = " To see whether it holds, set `budgets: [1, 2, 4]` in the space, which also trains for longer."


@dataclass(frozen=True, slots=True)
class CourseRule:
    """The rule by which a course is judged.

    Attributes:
        metric: Name of the objective's metric; where it is another than `val_loss`, curves do not hold it.
        direction: Whether a smaller or a larger one is better.
        margin: How much worse matters.
        schedule: How seeds are added.
        axis: What is equal between variants before their end: `steps`, `tokens`, `seconds` or `flops`.
    """

    metric: str
    direction: Direction
    margin: float
    schedule: SeedPlan | None
    axis: Any


def course_of(
    runs: VariantRuns,
    baseline: VariantRuns,
    evaluated: Mapping[str, Curve],
    lines: Mapping[str, Line],
    rule: CourseRule,
    *,
    allowance: Allowance,
    comparable: bool | None,
    own_schedule: bool = False,
    replaces: bool = False,
) -> Course | None:
    """The course of a variant against the baseline, over the seeds that finished on both sides.

    Trainings of other lengths are compared at the same share of each, so that the last point is the difference at the
    end of both.

    Args:
        runs: Trials of the variant.
        baseline: Of the baseline.
        evaluated: Key of a trial to its points with a validation loss.
        lines: Key of a trial to these as a line on the axis of the rule.
        rule: By what it is judged.
        allowance: By how much the bounds of the verdict are widened.
        comparable: Whether earlier points show where shorter trainings would end; None if that is not known.
        own_schedule: Whether the variant has another schedule of the learning rate than the baseline.
        replaces: Whether the variant replaces a part or adds one, rather than removing it.

    Returns:
        None if a trial diverged or was pruned, no two seeds share evaluations, the objective is not `val_loss`, or the
        last third of training has fewer than two evaluations.
    """
    if rule.metric != METRIC or runs.diverged or runs.pruned or baseline.diverged:
        return None
    pairs = {
        seed: (runs.finished[seed].key, baseline.finished[seed].key)
        for seed in sorted(runs.finished.keys() & baseline.finished.keys())
    }
    gaps = {
        seed: versus(share(lines[ours]), share(lines[theirs]))
        for seed, (ours, theirs) in pairs.items()
        if {ours, theirs} <= lines.keys()
    }
    gaps = {seed: gap for seed, gap in gaps.items() if gap.steps}
    shared = sorted(set.intersection(*(set(gap.steps) for gap in gaps.values()))) if gaps else []
    at = {seed: _kept(gap, shared) for seed, gap in gaps.items()}
    movement = movements([float(step) for step in shared], at)
    if movement is None or movement.n < 2:
        return None
    movement = over_looks(movement, rule.schedule)
    spent = [{point.step: (point.tokens, point.flops) for point in evaluated[pairs[seed][0]]} for seed in at]
    differences = list(zip(*at.values(), strict=True))
    end = math.fsum(differences[-1]) / len(at)
    return Course(
        functools.partial(_points, shared, differences, spent, rule, allowance, replaces),
        end,
        movement,
        course_word(movement, end, rule.margin),
        comparable,
        own_schedule,
    )


def _points(
    steps: Sequence[int],
    differences: Sequence[Sequence[float]],
    spent: Sequence[Mapping[int, tuple[float, float]]],
    rule: CourseRule,
    allowance: Allowance,
    replaces: bool,
) -> tuple[CoursePoint, ...]:
    """The comparison at each step, from the differences there and the tokens and FLOP until then, for each seed."""
    points = []
    for step, values in zip(steps, differences, strict=True):
        word = _word(values, rule, allowance)
        summary = over_looks(summarise(values), rule.schedule, allowance=allowance.of_change(rule.direction))
        points.append(
            CoursePoint(
                step=step,
                tokens=math.fsum(at[step][0] for at in spent) / len(spent),
                flops=math.fsum(at[step][1] for at in spent) / len(spent),
                difference=math.fsum(values) / len(values),
                low=summary.low,
                high=summary.high,
                n=summary.n,
                word=replacement_word(word) if replaces else word,
            )
        )
    return tuple(points)


def _word(differences: Sequence[float], rule: CourseRule, allowance: Allowance) -> Word:
    """The verdict on differences, as that on the final ones: by the first look that decides."""
    sign = 1.0 if rule.direction == "minimize" else -1.0
    worse = [sign * value for value in differences]
    return decision(bounds(worse, rule.schedule, allowance=allowance), rule.margin)[0]


def _kept(gap: Line, steps: Sequence[int]) -> Sequence[float]:
    """The differences at some of the steps of a line."""
    if len(steps) == len(gap.steps):
        return gap.y
    gaps = dict(zip(gap.steps, gap.y, strict=True))
    return [gaps[step] for step in steps]


def comparable_before_end(*variants: VariantRecord) -> bool | None:
    """Whether the point at two thirds of a training shows where a training of that length would end.

    That is so where the schedule has the same rate there as at the end of the shorter training, as a constant one has;
    one that decays has it too high there. None if the schedule is not known here.
    """
    known = [_rate_agrees(variant.spec.get("training")) for variant in variants]
    return None if None in known else all(known)


def has_own_schedule(variant: VariantRecord, baseline: VariantRecord) -> bool:
    """Whether the learning rate of a variant follows another schedule than that of the baseline."""
    ours, theirs = (one.spec.get("training", {}).get("schedule") for one in (variant, baseline))
    return bool(ours != theirs)


def _rate_agrees(training: Mapping[str, Any] | None) -> bool | None:
    if not training or "steps" not in training:
        return None
    schedule = training.get("schedule") or {"kind": ScheduleSpec.default_kind}
    try:
        return _agrees(json.dumps(schedule), int(training["steps"]))
    except ValidationError:  # a schedule of a plugin that is not loaded
        return None


@functools.lru_cache
def _agrees(schedule: str, steps: int) -> bool:
    """The same of a schedule as JSON; the variants of a study have few."""
    early, factor = max(1, round(2 * steps / 3)), ScheduleSpec.parse(json.loads(schedule)).factor
    within, shorter = factor(early, steps), factor(early, early)
    return abs(within - shorter) <= NEAR * max(within, shorter)


def course_sentences(rows: Sequence[VariantRow], rule: CourseRule, *, advise: bool) -> Iterator[str]:
    """Sentences on differences that still move, and on verdicts that are provisional for longer training.

    Args:
        rows: The variants.
        rule: By what they are judged.
        advise: Whether to advise `budgets`, which the design must allow and the study not have.
    """
    sign = 1.0 if rule.direction == "minimize" else -1.0
    moving = [(row, row.course) for row in rows if row.course and row.course.word in MOVING]
    for word, worse, beginning in (
        ("crossing", True, "From ahead to behind"),
        ("crossing", False, "From behind to ahead"),
        ("growing", True, "Falling further behind"),
        ("shrinking", True, "Catching up"),
        ("growing", False, "Further ahead"),
        ("shrinking", False, "Losing their lead"),
    ):
        named = [
            f"{row.name} (by {_signed(course.movement)} to {_signed_number(course.end)})"
            for row, course in moving
            if course.word == word and (sign * _side(course) > 0) == worse
        ]
        if named:
            yield (
                f"{beginning} in the last third of training, where the difference of {rule.metric} moved: "
                f"{'; '.join(shortened(named))}."
            )
    if own := [row.name for row, course in moving if course.own_schedule]:
        yield (
            f"The learning rate of {listed(own)} follows another schedule than the baseline's, so part of this "
            "movement comes from the schedules and ends with them."
        )
    provisional = [row for row in rows if row.provisional(rule.margin)]
    if provisional:
        one = len(provisional) == 1
        yield (
            f"Provisional for longer training: {'the verdict' if one else 'the verdicts'} on "
            f"{listed(row.name for row in provisional)}, whose difference{'' if one else 's'} still changed by more "
            f"than the margin {rule.margin:g} over the last third.{_LONGER if advise else ''}"
        )
    if moving and any(course.comparable is False for _, course in moving):
        yield (
            "Before the end the learning rate had not decayed, so earlier points do not show where shorter trainings "
            "would end."
        )


def _side(course: Course) -> float:
    """The difference whose sign says who was ahead: that before the movement if it shrank, else that at the end."""
    return course.end - (course.movement.difference or 0.0) if course.word == "shrinking" else course.end


def _signed(movement: PairedDifference) -> str:
    return _signed_number(movement.difference or 0.0)


def _signed_number(value: float) -> str:
    return f"{value:+.2g}"


def course_limits(courses: Sequence[Course], margin: float) -> tuple[float, float]:
    """Limits of a drawing that show the second half of every course whole: early differences are far larger.

    Args:
        courses: That are drawn.
        margin: The difference from which on a variant is worse by more than the margin.
    """
    ends = [0.0, 1.5 * margin]
    for course in courses:
        for point in course.points[len(course.points) // 2 :]:
            ends += [end for end in (point.low, point.high, point.difference) if end is not None]
    room = 0.06 * (max(ends) - min(ends))
    return min(ends) - room, max(ends) + room


def course_cell(course: Course | None) -> str:
    """The word of a course with what the difference moved by over the last third; a hyphen if there is none."""
    if course is None or course.movement.difference is None:
        return "-"
    word: CourseWord = course.word
    return word if word in ("settled", "unclear") else f"{word} {_signed(course.movement)}"
