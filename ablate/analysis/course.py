"""The course of a comparison: its difference and verdict at each evaluation, and whether it still moves.

Steps, tokens, seconds or FLOP to the baseline's loss are times to a target (`ablate.analysis.times`).
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from ablate.analysis.curves import Line, share, versus
from ablate.analysis.numbers import listed, shortened
from ablate.analysis.rows import Course, JudgingRule, MeasuredCourse, StepsToBaseline, VariantRow
from ablate.analysis.runs import Curve, VariantRuns
from ablate.analysis.times import first_at, losses_of
from ablate.metrics import CURVE_METRIC
from ablate.spec.schedule import ScheduleSpec
from ablate.stats import Allowance, over_looks
from ablate.stats.trend import MOVING, course_word, fit_non_increasing, movements
from ablate.store.records import VariantRecord


def read_goals(baseline: VariantRuns, evaluated: Mapping[str, Curve]) -> dict[int, float]:
    """Seed to the final validation loss of the baseline, where it finished with a curve.

    It is read off the smoothed curve and not the metrics, so that like is compared with like.

    Args:
        evaluated: Key of a trial to its points with a validation loss.
    """
    curves = {seed: evaluated.get(trial.key, ()) for seed, trial in baseline.finished.items()}
    return {seed: fit_non_increasing(losses_of(curve))[-1][1] for seed, curve in curves.items() if curve}


def to_baseline(
    runs: VariantRuns, goals: Mapping[int, float], axis: str, evaluated: Mapping[str, Curve]
) -> StepsToBaseline:
    """When a variant reached the final loss of the baseline.

    Args:
        goals: By seed.
        axis: `step`, `tokens`, `seconds` or `flops`.
        evaluated: Key of a trial to its points with a validation loss.
    """
    compared = [seed for seed in goals if seed in runs.finished or seed in runs.diverged]
    finished = [seed for seed in compared if seed in runs.finished]
    steps = [first_at(evaluated.get(runs.finished[seed].key, ()), goals[seed], axis) for seed in finished]
    reached = sorted(where for where in steps if where is not None)
    middle, last = (len(compared) - 1) // 2, len(compared) // 2
    median = (reached[middle] + reached[last]) / 2 if compared and last < len(reached) else None
    return StepsToBaseline(median, len(reached), len(compared))


NEAR = 0.1
"""Tolerance, as a share, between a learning rate and that at the end of a shorter training of the same schedule."""
_LONGER = " To see whether it holds, set `budgets: [1, 2, 4]` in the space, which also trains for longer."


def course_of(
    runs: VariantRuns,
    baseline: VariantRuns,
    evaluated: Mapping[str, Curve],
    lines: Mapping[str, Line],
    rule: JudgingRule,
    *,
    allowance: Allowance,
    comparable: bool | None,
    own_schedule: bool,
    replaces: bool,
) -> Course | None:
    """The course of a variant against the baseline, over the seeds that finished on both sides.

    Training runs of other lengths are compared at the same share of each, so that the last point is the difference at
    the end of both.

    Args:
        evaluated: Key of a trial to its points with a validation loss.
        lines: Key of a trial to these as a line on the axis of the rule.
        rule: By what it is judged.
        allowance: By how much the bounds of the verdict are widened.
        comparable: Whether earlier points show where shorter training runs would end; None if that is not known.
        own_schedule: Whether the variant has another schedule of the learning rate than the baseline.
        replaces: Whether the variant replaces a part or adds one, rather than removing it.

    Returns:
        None if a trial diverged or was pruned, no two seeds share evaluations, the objective is not `val_loss`, or the
        last third of training has fewer than two evaluations.
    """
    if rule.metric != CURVE_METRIC or runs.diverged or runs.pruned or baseline.diverged:
        return None
    pairs = {
        seed: (runs.finished[seed].key, baseline.finished[seed].key)
        for seed in sorted(runs.finished.keys() & baseline.finished.keys())
    }
    gaps = {
        seed: versus(share(lines[ours]), share(lines[theirs]))
        for seed, (ours, theirs) in pairs.items()
        if ours in lines and theirs in lines
    }
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
        MeasuredCourse(shared, differences, spent, rule, allowance, replaces),
        end,
        movement,
        course_word(movement, end, rule.margin),
        comparable,
        own_schedule,
    )


def _kept(gap: Line, steps: Sequence[int]) -> Sequence[float]:
    """The differences at some of the steps of a line."""
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
    ours, theirs = (record.spec.get("training", {}).get("schedule") for record in (variant, baseline))
    return bool(ours != theirs)


def _rate_agrees(training: Mapping[str, Any] | None) -> bool | None:
    if not training or "steps" not in training:
        return None
    schedule = training.get("schedule") or {}
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


def course_sentences(rows: Sequence[VariantRow], rule: JudgingRule, *, advise: bool) -> Iterator[str]:
    """Sentences on differences that still move, and on verdicts that are provisional for longer training.

    Args:
        rule: By what they are judged.
        advise: Whether to advise `budgets`, which the design must allow and the study not have.
    """
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
            f"{row.name} (by {_signed_number(_moved(course))} to {_signed_number(course.end)})"
            for row, course in moving
            if course.word == word and (rule.sign * _side(course) > 0) == worse
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
            "Before the end the learning rate had not decayed, so earlier points do not show where shorter "
            "training runs would end."
        )


def _side(course: Course) -> float:
    """The difference whose sign says who was ahead: that before the movement if it shrank, else that at the end."""
    return course.end - _moved(course) if course.word == "shrinking" else course.end


def _moved(course: Course) -> float:
    """By how much the difference moved over the last third; a course has at least two seeds."""
    assert course.movement.difference is not None
    return course.movement.difference


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
    if course is None:
        return "-"
    return f"{course.word} {_signed_number(_moved(course))}" if course.word in MOVING else course.word
