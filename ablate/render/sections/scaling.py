"""Differences along budgets, or along the path of a sweep, as a section of a report."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ablate.analysis.findings import Findings
from ablate.analysis.numbers import MISSING, decimals_for, fixed, with_interval
from ablate.analysis.scaling import ScalePoint, Scaling, Scalings, slope_cell
from ablate.render.blocks import Grid, Paragraph, Picture, Section
from ablate.spec.fairness import BUDGET

OUTCOMES = {
    "holds": "holds",
    "turns": "turns",
    "decided": "decided at the largest, not at all before",
    "undecided": "undecided at the largest",
}


def section(findings: Findings, pictures: Mapping[str, Picture]) -> Section | None:
    """A row for each variant: its difference and verdict at each place, its slope, and how its verdict changes."""
    report, scalings = findings.report, findings.report.scaling
    if scalings is None:
        return None
    each = "length has a whole schedule of its own" if scalings.axis == BUDGET else "value has a baseline of its own"
    text = (
        f"Difference of {report.metric} from the baseline of the same {scalings.axis}, paired by seed, with its 95 % "
        f"interval and its verdict; each {each}. Each doubling: least-squares slope of the difference along the "
        "logarithm, one for each seed, with the 95 % interval of their mean, and in brackets the change of each step; "
        "there is no slope where the difference bends or trials were lost. No verdict is adjusted for the others."
    )
    picture = [pictures["scaling"]] if "scaling" in pictures else []
    return Section(scaling_title(scalings), (Paragraph(text), scaling_table(scalings, report.margin), *picture))


def scaling_title(scalings: Scalings) -> str:
    """The heading of the table."""
    return "Along training budgets" if scalings.axis == BUDGET else f"Along {scalings.axis}"


def scaling_table(scalings: Scalings, margin: float) -> Grid:
    """The rows.

    Args:
        scalings: The variants along their axis.
        margin: Of the study, which says how many decimals matter.
    """
    halves = [
        (point.difference.high - point.difference.low) / 2
        for one in scalings.of
        for point in one.points
        if point.difference.low is not None and point.difference.high is not None
    ]
    decimals = decimals_for(margin, halves)
    titles = ("variant", *(_title(scalings.axis, at) for at in scalings.places), "each doubling", "verdict")
    rows = tuple(_cells(one, scalings.places, decimals) for one in scalings.of)
    return Grid(titles, (rows,), frozenset({0, len(titles) - 1}))


def _title(axis: str, at: float) -> str:
    return f"{at:g} x" if axis == BUDGET else f"{axis.rpartition('.')[2]} {at:g}"


def _cells(one: Scaling, places: tuple[float, ...], decimals: int) -> tuple[str, ...]:
    at = {point.at: _cell(point, decimals) for point in one.points}
    return (one.variant, *(at.get(place, MISSING) for place in places), slope_cell(one), OUTCOMES[one.outcome])


def _cell(point: ScalePoint, decimals: int) -> str:
    if point.verdict.word == "diverged":
        return "diverged"
    write = partial(fixed, decimals=decimals, sign=True)
    paired = point.difference
    return f"{' '.join(with_interval(paired.difference, paired.low, paired.high, write))}, {point.verdict.word}"
