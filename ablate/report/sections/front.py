"""The Pareto front as a section of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ablate.report.blocks import Block, Grid, Paragraph, Picture, Section
from ablate.report.findings import Findings
from ablate.report.numbers import count, decimals_for, fixed
from ablate.report.pareto import Front, FrontPoint
from ablate.report.quantities import words_for
from ablate.spec.quantities import COSTS, TIMED
from ablate.stats import Interval

MOST_OTHERS = 20
"""Dominated variants that the table shows, the best in the first quantity."""


def section(findings: Findings, pictures: Mapping[str, Picture]) -> Section | None:
    """Which variants no other beats in everything."""
    if findings.front is None:
        return None
    return Section("Trade-offs", tuple(_blocks(findings.front, findings.report.margin, pictures)))


def what_it_says(front: Front) -> str:
    """How many variants stand on the front, how many are surely beaten, and what is left out, in sentences."""
    on_front = [point for point in front.points if point.on_front]
    others = [point for point in front.points if not point.on_front]
    sure = sum(point.surely for point in others)
    quantities = [words_for(quantity) for quantity in front.quantities]
    said = (
        f"Of {len(front.points)} variants {len(on_front)} are on the Pareto front of {' and '.join(quantities)}: no "
        "other has means that are at least as good in everything and better in something. Neighbours on the front may "
        f"differ by noise alone. {_beaten(len(others), sure)}"
    )
    if any(quantity in TIMED for quantity in front.quantities):
        said += " Speeds hang on the machine and on what else it did meanwhile."
    if front.left_out:
        said += f" Left out, as they diverged, were stopped early or lack a result: {', '.join(front.left_out)}."
    return said


def _blocks(front: Front, margin: float, pictures: Mapping[str, Picture]) -> Iterator[Block]:
    on_front = [point for point in front.points if point.on_front]
    others = [point for point in front.points if not point.on_front]
    yield Paragraph(what_it_says(front))
    if "front" in pictures:
        yield pictures["front"]
    titles = ("number", "variant", *front.quantities, "beaten by")
    numbered = {point.variant: str(number) for number, point in enumerate(on_front, 1)}
    groups = (on_front, others[:MOST_OTHERS])
    rows = tuple(tuple(_cells(point, front, numbered, margin) for point in group) for group in groups if group)
    yield Grid(titles, rows, frozenset({1, len(titles) - 1}))
    if len(others) > MOST_OTHERS:
        yield Paragraph(f"{len(others) - MOST_OTHERS} further variants that are beaten are left out of the table.")


def _beaten(others: int, sure: int) -> str:
    if not others:
        return "No variant is beaten."
    if sure == others:
        return f"{'The other one is' if others == 1 else f'All {others} others are'} surely beaten, beyond that noise."
    return f"Of the {others} others {sure} are surely beaten, beyond that noise; the rest may belong on the front."


def _cells(point: FrontPoint, front: Front, numbered: Mapping[str, str], margin: float) -> tuple[str, ...]:
    beaten = "on the front"
    if point.dominated_by is not None:
        by = numbered.get(point.dominated_by, point.dominated_by)
        beaten = f"{'surely' if point.surely else 'in the means'} by {by}"
    cells = [_interval(point.values[quantity], quantity, front, margin) for quantity in front.quantities]
    return numbered.get(point.variant, ""), point.variant, *cells, beaten


def _interval(interval: Interval, quantity: str, front: Front, margin: float) -> str:
    assert interval.mean is not None
    half = None if interval.low is None or interval.high is None else (interval.high - interval.low) / 2
    if quantity in COSTS:
        return count(round(interval.mean)) + (f" ± {count(round(half))}" if half else "")
    intervals = [point.values[quantity] for point in front.points]
    widths = [(one.high - one.low) / 2 for one in intervals if one.low is not None and one.high is not None]
    decimals = decimals_for(margin, widths)
    return fixed(interval.mean, decimals) + (f" ± {fixed(half, decimals)}" if half else "")
