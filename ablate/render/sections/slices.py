"""Slices along numeric axes as a section of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from ablate.analysis.findings import Findings
from ablate.analysis.numbers import MISSING, decimals_for, fixed, with_interval
from ablate.analysis.slices import SlicePoint
from ablate.analysis.text import plural
from ablate.render.blocks import Block, Grid, Paragraph, Picture, Section

MOST_ROWS = 40


def section(findings: Findings, pictures: Mapping[str, Picture]) -> Section | None:
    """How the objective changes along each numeric axis."""
    if not findings.slices:
        return None
    return Section("Along numeric axes", tuple(_blocks(findings, pictures)))


def _blocks(findings: Findings, pictures: Mapping[str, Picture]) -> Iterator[Block]:
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
        widths = [_half(point) for _, point in rows]
        decimals = decimals_for(findings.report.margin, [width for width in widths if width is not None])
        titles = ("variants", axis_slice.axis, axis_slice.metric, *(("gap",) if gaps else ()), "diverged")
        if axis_slice.scattered:
            rows.sort(key=lambda row: row[1].at)
        cells = [_cells(name, point, decimals, gaps) for name, point in rows[:MOST_ROWS]]
        groups = {name: tuple(row for row in cells if row[0] == name) for name, *_ in cells}
        yield Grid(titles, tuple(groups.values()) if not axis_slice.scattered else (tuple(cells),), frozenset({0}))
        if len(rows) > MOST_ROWS:
            yield Paragraph(f"Left out of the table: {plural(len(rows) - MOST_ROWS, 'further point')}.")


def _cells(name: str, point: SlicePoint, decimals: int, gaps: bool) -> tuple[str, ...]:
    mean, paired, gap = point.objective, point.gap, MISSING
    objective = " ".join(with_interval(mean.mean, mean.low, mean.high, partial(fixed, decimals=decimals)))
    if paired is not None:
        write = partial(fixed, decimals=decimals, sign=True)
        gap = " ".join(with_interval(paired.difference, paired.low, paired.high, write))
    return name, f"{point.at:.4g}", objective, *((gap,) if gaps else ()), str(point.diverged) if point.diverged else ""


def _half(point: SlicePoint) -> float | None:
    low, high = point.objective.low, point.objective.high
    return None if low is None or high is None else (high - low) / 2
