"""How to read the ablation table: a sentence for each column that needs one."""

from __future__ import annotations

from collections.abc import Iterator

from ablate.analysis.study import StudyReport
from ablate.analysis.trust import assumption
from ablate.stats.bootstrap import MANY
from ablate.stats.course import NEGLIGIBLE

_SPEED = (
    "speed: training tokens per second, relative to the baseline, from steps of both in turns in one process; "
    "geometric mean of the rounds with its 95 % interval."
)
_PARTLY = "; `1 of 3`: only 1 of 3 seeds reached it"
_DECAYED = " The learning rate decays: earlier points do not show where shorter trainings would end."


def legend(report: StudyReport, plus_minus: str = "±") -> tuple[str, ...]:
    """How to read the table: a line for each of its columns that needs one."""
    better, schedule, rows = "lower" if report.direction == "minimize" else "higher", report.schedule, report.variants
    lopsided = (
        "; [low, high] where it is not symmetric"
        if report.tails is not None or any(row.difference is not None and row.difference.n >= MANY for row in rows)
        else ""
    )
    over_looks = f", over all looks from {schedule.start} to {schedule.max} seeds" if schedule else ""
    looks = f" at every look from {schedule.start} to {schedule.max} seeds" if schedule else ""
    partly = any(0 < row.spent_to_baseline.reached < row.spent_to_baseline.of for row in rows)
    margin, metric = f"{report.margin:g}", report.metric
    over = "initial values and batches; same split and validation windows"
    if report.windows:
        over = f"{report.windows} validation windows of one model, resampled"
    return (
        f"{plus_minus}: 95 % interval over {over}{_draw(report)}{over_looks}{lopsided}.",
        f"difference: variant minus baseline at the same {report.unit}; {better} {metric} is better.",
        *([f"{report.test_metric}: measured once, at the end; no verdict reads it."] if report.test_metric else []),
        f"verdict, by one-sided 95 % bounds{looks} on how much worse a variant is: needed or worse, above {margin}; "
        f"not needed or not worse, below {margin}; better, below -{margin}; undecided, none of these{_chance(report)}.",
        *_selected(report),
        *([f"A verdict {assumed}."] if (assumed := assumption(report)) else []),
        f"{axis_title(report)}: until the baseline's final validation loss, median over seeds of smoothed curves"
        f"{_PARTLY if partly else ''}.",
        *_course(report),
        *([_SPEED] if report.timed else []),
    )


def _chance(report: StudyReport) -> str:
    """How to read the chance beside a number of further seeds, as a clause; empty where there is none."""
    if all(row.verdict is None or row.verdict.chance is None for row in report.variants):
        return ""
    return f" (`12 more: 60 %` would be the chance that 12 more {report.unit}s decide; it is smaller near the margin)"


def _selected(report: StudyReport) -> Iterator[str]:
    """Which differences rest on fresh seeds."""
    if any(row.chosen or row.confirmed for row in report.variants):
        yield (
            "selected: chosen by results, so estimates on these seeds are biased. For confirmed variants difference "
            "and verdict rest on fresh seeds of the variant and the baseline."
        )


def _draw(report: StudyReport) -> str:
    """The standard deviation of a difference over draws of validation data, as a clause; empty if unknown."""
    if not report.draw_sd:  # not measured, or below what could be
        return ""
    return f"; another draw of these windows would move a difference by about {report.draw_sd:.1g} (standard deviation)"


def _course(report: StudyReport) -> Iterator[str]:
    """The legend of the course, and whether points before the end may stand for shorter trainings."""
    courses = [row.course for row in report.variants if row.course is not None]
    if courses:
        decay = any(course.comparable is False for course in courses)
        yield (
            "course: how much the difference changed over the last third of training; by its 95 % interval growing, "
            f"shrinking or crossing zero, by more than {NEGLIGIBLE * report.margin:g}; settled, by less than "
            f"{report.margin:g}; unclear, neither.{_DECAYED if decay else ''}"
        )


def axis_title(report: StudyReport) -> str:
    """The unit in which a column says when a variant reached the final loss of the baseline."""
    return "FLOP" if report.matching.axis == "flops" else report.matching.axis
