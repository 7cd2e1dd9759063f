"""Differences along budgets or the path of a sweep, and slices along numeric axes, as sections of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from ablate.analysis.findings import Findings
from ablate.analysis.numbers import MISSING, decimals_for, fixed, with_interval
from ablate.analysis.scaling import ScalePoint, Scaling, Scalings, slope_cell
from ablate.analysis.slices import SlicePoint
from ablate.analysis.text import plural
from ablate.render.blocks import Block, Grid, Paragraph, Picture, Section
from ablate.spec.fairness import BUDGET

MOST_ROWS = 40
"""Points of a slice that its table shows."""
OUTCOMES = {
    "holds": "holds",
    "turns": "turns",
    "decided": "decided at the largest, not at all before",
    "undecided": "undecided at the largest",
}


def scaling_section(findings: Findings, pictures: Mapping[str, Picture]) -> Section | None:
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


def slices_section(findings: Findings, pictures: Mapping[str, Picture]) -> Section | None:
    """How the objective changes along each numeric axis."""
    if not findings.slices:
        return None
    return Section("Along numeric axes", tuple(_slice_blocks(findings, pictures)))


def _slice_blocks(findings: Findings, pictures: Mapping[str, Picture]) -> Iterator[Block]:
    if "slices" in pictures:
        yield pictures["slices"]
    for axis_slice in findings.slices:
        first, rows = (
            axis_slice.lines[0].name,
            [(line.name, point) for line in axis_slice.lines for point in line.points],
        )
        said = f"{axis_slice.metric} along {axis_slice.axis}: means over seeds with their 95 % intervals."
        gaps = any(point.gap is not None for _, point in rows)
        if gaps:
            said += f" The gap is that to {first} at the same place, paired by seed."
        if axis_slice.scattered:
            said += " The variants differ in other things too, so this is a cloud of points, not a curve."
        yield Paragraph(said)
        widths = [_half_width(point) for _, point in rows]
        decimals = decimals_for(findings.report.margin, [width for width in widths if width is not None])
        titles = ("variants", axis_slice.axis, axis_slice.metric, *(("gap",) if gaps else ()), "diverged")
        if axis_slice.scattered:
            rows.sort(key=lambda row: row[1].at)
        cells = [_slice_cells(name, point, decimals, gaps) for name, point in rows[:MOST_ROWS]]
        groups = {name: tuple(row for row in cells if row[0] == name) for name, *_ in cells}
        yield Grid(titles, tuple(groups.values()) if not axis_slice.scattered else (tuple(cells),), frozenset({0}))
        if len(rows) > MOST_ROWS:
            yield Paragraph(f"Left out of the table: {plural(len(rows) - MOST_ROWS, 'further point')}.")


def _slice_cells(name: str, point: SlicePoint, decimals: int, gaps: bool) -> tuple[str, ...]:
    mean, paired, gap = point.objective, point.gap, MISSING
    objective = " ".join(with_interval(mean.mean, mean.low, mean.high, partial(fixed, decimals=decimals)))
    if paired is not None:
        write = partial(fixed, decimals=decimals, sign=True)
        gap = " ".join(with_interval(paired.difference, paired.low, paired.high, write))
    return name, f"{point.at:.4g}", objective, *((gap,) if gaps else ()), str(point.diverged) if point.diverged else ""


def _half_width(point: SlicePoint) -> float | None:
    low, high = point.objective.low, point.objective.high
    return None if low is None or high is None else (high - low) / 2
