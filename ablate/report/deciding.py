"""Where a difference is judged: the margin with its sign, and the bounds that the verdict rests on."""

from __future__ import annotations

from ablate.report.study import StudyReport
from ablate.stats import Bounds, PairedDifference, bounds


def worst_margin(report: StudyReport) -> float:
    """The difference from which on a variant is worse by more than the margin."""
    return report.margin if report.direction == "minimize" else -report.margin


def deciding_bounds(paired: PairedDifference, report: StudyReport) -> Bounds | None:
    """The bounds of the first look that decides, as the verdict takes them; of the last look if none does."""
    margin, bound = worst_margin(report), None
    for bound in bounds(paired.values, report.schedule):
        if not bound.low <= margin <= bound.high:
            break
    return bound
