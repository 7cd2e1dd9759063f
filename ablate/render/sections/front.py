"""The Pareto front as a section of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from ablate.analysis.findings import Findings
from ablate.analysis.numbers import count, decimals_for, fixed, with_interval
from ablate.analysis.pareto import Front, FrontPoint
from ablate.analysis.runs import words_for
from ablate.analysis.text import listed, plural
from ablate.metrics import COSTS, TIMED
from ablate.render.blocks import Block, Grid, Paragraph, Picture, Section
from ablate.stats import Interval

MOST_OTHERS = 20
"""Dominated variants that the table shows, the best in the first quantity."""


def section(findings: Findings, pictures: Mapping[str, Picture]) -> Section | None:
    """Which variants no other beats in everything."""
    if findings.front is None:
        return None
    return Section("Trade-offs", tuple(_blocks(findings.front, findings.report.margin, pictures)))


def what_it_says(front: Front) -> str:
    """Sentences that count the variants on the front, the dominated and the excluded ones."""
    on_front = [point for point in front.points if point.on_front]
    others = [point for point in front.points if not point.on_front]
    shown = sum(point.significant for point in others)
    quantities = [words_for(quantity) for quantity in front.quantities]
    standing = f"{len(on_front)} {'is' if len(on_front) == 1 else 'are'}"
    said = (
        f"Of {len(front.points)} variants {standing} on the Pareto front of {' and '.join(quantities)}: no other has "
        "means that are at least as good in everything and better in something. Neighbours on the front may differ by "
        f"noise alone. {_dominated(len(others), shown)}"
    )
    if any(quantity in TIMED for quantity in front.quantities):
        said += " Speeds depend on the machine and its other load."
    if front.left_out:
        said += f" Left out, as they diverged, were stopped early or lack a result: {listed(front.left_out)}."
    return said


def _blocks(front: Front, margin: float, pictures: Mapping[str, Picture]) -> Iterator[Block]:
    on_front = [point for point in front.points if point.on_front]
    others = [point for point in front.points if not point.on_front]
    yield Paragraph(what_it_says(front))
    if "front" in pictures:
        yield pictures["front"]
    titles = ("number", "variant", *front.quantities, "dominated by")
    numbered = {point.variant: str(number) for number, point in enumerate(on_front, 1)}
    groups = (on_front, others[:MOST_OTHERS])
    rows = tuple(tuple(_cells(point, front, numbered, margin) for point in group) for group in groups if group)
    yield Grid(titles, rows, frozenset({1, len(titles) - 1}))
    if len(others) > MOST_OTHERS:
        yield Paragraph(
            f"Left out of the table: {plural(len(others) - MOST_OTHERS, 'further variant')}, all dominated."
        )


def _dominated(others: int, shown: int) -> str:
    if not others:
        return "No variant is dominated."
    if not shown:
        which = "The other one is" if others == 1 else f"The {others} others are"
        return f"{which} dominated in the means only, within that noise, and may belong on the front."
    together = "with 95 % confidence jointly (Holm's procedure)"
    if shown == others:
        return f"{'The other one is' if others == 1 else f'All {others} others are'} dominated {together}."
    which = f"{shown} {'is' if shown == 1 else 'are'} dominated"
    return f"Of the {others} others {which} {together}; the rest may belong on the front."


def _cells(point: FrontPoint, front: Front, numbered: Mapping[str, str], margin: float) -> tuple[str, ...]:
    standing = "on the front"
    if point.dominated_by is not None:
        by = numbered.get(point.dominated_by, point.dominated_by)
        standing = f"{by}{'' if point.significant else ' (in the means)'}"
    cells = [_interval(point.values[quantity], quantity, front, margin) for quantity in front.quantities]
    return numbered.get(point.variant, ""), point.variant, *cells, standing


def _interval(interval: Interval, quantity: str, front: Front, margin: float) -> str:
    low, high = (None, None) if interval.low == interval.high else (interval.low, interval.high)  # exact: no interval
    intervals = [point.values[quantity] for point in front.points]
    widths = [(one.high - one.low) / 2 for one in intervals if one.low is not None and one.high is not None]
    decimals = decimals_for(margin, widths)
    write = _count if quantity in COSTS else partial(fixed, decimals=decimals)
    return " ".join(with_interval(interval.mean, low, high, write))


def _count(value: float) -> str:
    return count(round(value))
