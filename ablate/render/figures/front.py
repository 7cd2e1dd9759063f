"""The Pareto front, the first quantity against each of the others: a figure and a section of a report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from ablate.analysis.findings import Findings
from ablate.analysis.numbers import count, decimals_for, fixed, listed, percent, plural, with_interval
from ablate.analysis.pareto import Front, FrontPoint
from ablate.analysis.runs import UNITS, words_for
from ablate.metrics import COSTS, TIMED
from ablate.render.blocks import Block, Grid, Paragraph, Picture, Section
from ablate.render.figures.style import (
    WIDTH,
    Look,
    Palette,
    Spec,
    by_look,
    layers,
    mark,
    names,
    number,
    spread,
    wrapped,
)
from ablate.spec.design import BASELINE
from ablate.stats import Interval

FRONT, MEANS, CONFIDENT = "on the front", "dominated in the means", "dominated (95 % confidence)"
FAR = 0.6
"""How far intervals are shown beyond the means, as a share of the range of the means."""
HEIGHT = 440
"""Of a panel in pixels."""
LINE = 14
"""Of a label in pixels."""
LITTLE = 0.05
"""Share of a value within which no point is too far to be drawn."""
MANY = 60
"""Number of variants from which dominated ones are drawn without their intervals."""
CROWD, MOST_ABOVE = 0.01, 4
"""Share of an axis within which points stand one above the other, and how many may."""
MOST_TOLD = 5
"""Variants on the front that its sentence names."""
STANDS = {FRONT: "square", MEANS: "circle", CONFIDENT: "cross"}
"""How a variant stands, to its mark where colours tell variants apart."""


def pictures(findings: Findings) -> tuple[Picture, ...]:
    """The figure of a study whose variants differ in cost."""
    front = findings.front
    if front is None:
        return ()
    costs = " and ".join(words_for(quantity) for quantity in front.quantities[1:])
    caption = (
        f"{front.quantities[0]} against {costs}, with 95 % intervals over seeds. Squares with names, joined by a line: "
        "the Pareto front; circles: dominated in the means; crosses: dominated with 95 % confidence."
    )
    return (Picture("front", caption),)


def stand(point: FrontPoint) -> str:
    """How a variant stands: on the front, or how surely another one is better in all quantities."""
    return FRONT if point.on_front else CONFIDENT if point.significant else MEANS


def draw_front(front: Front, palette: Palette) -> Spec:
    """A panel for each quantity but the first, side by side."""
    across = front.quantities[1:]
    drawn = [draw_front_panel(front, quantity, palette) for quantity in across]
    if len(drawn) == 1:
        return drawn[0]
    wide = {"width": (WIDTH - 90) / len(drawn), "height": 300}
    return {"hconcat": [{key: part for key, part in one.items() if key != "autosize"} | wide for one in drawn]}


def draw_front_panel(
    front: Front,
    quantity: str,
    palette: Palette,
    looks: Mapping[str, Look] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Spec:
    """The first quantity against another; a click on a point picks its `variant`.

    Args:
        quantity: Of the horizontal axis.
        looks: By variant, for its colour; None: by how it stands.
        labels: Variants to what stands beside their points; None: the titles of those on the front and the baseline.
    """
    first = front.quantities[0]
    stands = {FRONT: Look(palette.look(5).colour, (1, 0), "square"), MEANS: Look(palette.grey, (1, 0), "circle"),
              CONFIDENT: palette.verdict("diverged")}  # fmt: skip
    far = _far(front)
    rows = [_row(point, quantity, first, front.titles[point.variant]) for point in front.points if point not in far]
    found = {word: look for word, look in stands.items() if any(row["stands"] == word for row in rows)}
    unit = f" ({UNITS[quantity]})" if quantity in UNITS else ""
    better = "lower" if front.directions[0] == "minimize" else "higher"
    x = number("x", words_for(quantity) + unit, domain=_reach(front, quantity), axis={"format": "~s"})
    y = number("y", f"{words_for(first)} ({better} is better)", domain=_reach(front, first))
    colour = by_look("stands", found, "color")
    if looks is not None:
        colour = by_look("variant", {str(row["variant"]): looks[str(row["variant"])] for row in rows}, "color",
                         legend=False)  # fmt: skip
    ends = [row for row in rows if len(rows) <= MANY or row["stands"] == FRONT]
    titles = {"title": "variant", "stands": "stands", "said y": words_for(first), "said x": words_for(quantity)}
    tip = [{"field": key, "title": title} for key, title in titles.items()]
    looked = {**by_look("stands", found, "shape"), **colour}
    if looks is not None:
        looked["shape"] |= {"legend": {**looked["shape"]["legend"], "symbolFillColor": palette.ink}}
    marks = mark("point", rows, {"x": x, "y": y, **looked, "tooltip": tip}, size=75, clip=True, stroke=palette.ground,
                 strokeWidth=0.8)  # fmt: skip
    if labels is None:
        labels = {one.variant: front.titles[one.variant] for one in front.points
                  if one.on_front or one.variant == BASELINE}  # fmt: skip
    marks["params"] = [{"name": "picked", "select": {"type": "point", "fields": ["variant"]}}]
    return layers(
        [
            _staircase(front, quantity, x, y, stands[FRONT].colour) if len(front.quantities) == 2 else None,
            mark("rule", ends, {"x": {**x, "field": "x low"}, "x2": {"field": "x high"}, "y": y, **colour},
                 strokeWidth=0.9, clip=True),
            mark("rule", ends, {"y": {**y, "field": "y low"}, "y2": {"field": "y high"}, "x": x, **colour},
                 strokeWidth=0.9, clip=True),
            *_labels(rows, x, y, labels, palette),
            marks,
        ],
        HEIGHT,
    )  # fmt: skip


def is_crowded(front: Front, quantity: str) -> bool:
    """Whether so many points share a value of this quantity that they hide each other one above the other."""
    far = _far(front)
    values = sorted(point.values[quantity].mean or 0.0 for point in front.points if point not in far)
    near = CROWD * (values[-1] - values[0])
    return any(last - first <= near for first, last in zip(values, values[MOST_ABOVE:], strict=False))


def draw_front_rows(
    front: Front, palette: Palette, looks: Mapping[str, Look], labels: Mapping[str, str], width: float = WIDTH
) -> Spec:
    """A row for each point: the first quantity with its interval, and in words what differs of the others.

    Args:
        looks: By variant, for its colour.
        labels: Variants to their names, in the order of the rows.
        width: Of the page, in pixels.
    """
    first, others, base = front.quantities[0], front.quantities[1:], _baseline(front)
    far = _far(front)
    points = {point.variant: point for point in front.points if point not in far}
    lines = {
        name: wrapped(", ".join([label, *_savings(points[name], base, others)]), 24 if width < WIDTH else 56)
        for name, label in labels.items()
        if name in points
    }
    rows = [{**_row(points[name], first, first, front.titles[name]), "name": line} for name, line in lines.items()]
    stands = [word for word in STANDS if any(row["stands"] == word for row in rows)]
    better = "lower" if front.directions[0] == "minimize" else "higher"
    x = number("y", f"{words_for(first)} ({better} is better)", domain=_reach(front, first), axis={"tickCount": 5})
    y = names("name", [*lines.values()])
    colour = by_look("variant", {name: looks[name] for name in lines}, "color", legend=False)
    shape = by_look("stands", {word: Look(palette.ink, (1, 0), STANDS[word]) for word in stands}, "shape",
                    symbolFillColor=palette.ink)  # fmt: skip
    ends = [row for row in rows if row["y low"] is not None]
    step = max(24, 13 * max(line.count("\n") + 1 for line in lines.values()) + 6)
    titles = {"title": "variant", "stands": "stands", "said y": words_for(first)}
    tip = [{"field": key, "title": title} for key, title in titles.items()]
    marks = mark("point", rows, {"x": x, "y": y, **shape, **colour, "tooltip": tip}, size=75, clip=True)
    marks["params"] = [{"name": "picked", "select": {"type": "point", "fields": ["variant"]}}]
    return layers(
        [
            None if base is None else mark("rule", [{}], {"x": {"datum": base.values[first].mean}}, strokeDash=[4, 3]),
            mark("rule", ends, {"x": {**x, "field": "y low"}, "x2": {"field": "y high"}, "y": y, **colour},
                 strokeWidth=1.6, clip=True),
            marks,
        ],
        step * len(rows),
    )  # fmt: skip


def _labels(rows: Sequence[Spec], x: Spec, y: Spec, labels: Mapping[str, str], palette: Palette) -> Iterator[Spec]:
    """Labels beside points, towards the middle, one below the other, above a line from each to its point."""
    (left, right), (bottom, top) = x["scale"]["domain"], y["scale"]["domain"]
    away = 0.04 * (right - left)
    for align in ("left", "right"):
        told = [row for row in rows if row["variant"] in labels and (align == "left") == (2 * row["x"] < left + right)]
        places = spread([row["y"] for row in told], LINE * (top - bottom) / HEIGHT)
        put = [
            {"x": row["x"], "y": row["y"], "label": labels[row["variant"]], "place": place,
             "beside": row["x"] + (away if align == "left" else -away)}
            for row, place in zip(told, places, strict=True)
        ]  # fmt: skip
        beside, place = {**x, "field": "beside"}, {**y, "field": "place"}
        if put:
            yield mark("rule", put, {"x": x, "y": y, "x2": {"field": "beside"}, "y2": {"field": "place"}},
                       color=palette.grey, strokeWidth=0.7)  # fmt: skip
            for halo in ({"stroke": palette.ground, "strokeWidth": 4, "strokeJoin": "round"}, {}):
                yield mark("text", put, {"x": beside, "y": place, "text": {"field": "label"}}, align=align,
                           baseline="bottom", dy=-1, **halo)  # fmt: skip


def _row(point: FrontPoint, quantity: str, first: str, title: str) -> Spec:
    row: Spec = {"variant": point.variant, "stands": stand(point), "title": title}
    for axis, of in (("x", quantity), ("y", first)):
        interval = point.values[of]
        row |= {axis: interval.mean, f"{axis} low": interval.low, f"{axis} high": interval.high}
        row[f"said {axis}"] = _said(interval, of)
    return row


def half_width(interval: Interval) -> float | None:
    """Half of an interval; None if it has no width."""
    if interval.low is None or interval.high is None or interval.low == interval.high:
        return None
    return (interval.high - interval.low) / 2


def _said(interval: Interval, quantity: str) -> str:
    def write(value: float) -> str:
        return count(round(value)) if quantity in COSTS else f"{value:.4g}"

    half = half_width(interval)
    return write(interval.mean or 0.0) + (f" ± {write(half)}" if half else "")


def _reach(front: Front, quantity: str) -> tuple[float, float]:
    """The range of an axis: all means, and the intervals unless they are very long."""
    far = _far(front)
    intervals = [point.values[quantity] for point in front.points if point not in far]
    means = [interval.mean or 0.0 for interval in intervals]
    low, high = min(means), max(means)
    room = FAR * (high - low) or math.inf
    ends = [end for interval in intervals for end in (interval.low, interval.high) if end is not None]
    least, most = min([low, *ends]), max([high, *ends])
    edge = 0.1 * (high - low) or 0.1 * abs(high)
    return max(low - room, least) - edge, min(high + room, most) + edge


def _far(front: Front) -> list[FrontPoint]:
    """Points dominated with 95 % confidence, and too far off for the others to be told apart beside them."""
    near = [point for point in front.points if not point.significant]
    far: list[FrontPoint] = []
    for quantity in front.quantities:
        means = [point.values[quantity].mean or 0.0 for point in near]
        low, high = min(means), max(means)
        reach = max(high - low, LITTLE * abs(high))
        far += [one for one in front.points if not low - reach <= (one.values[quantity].mean or 0.0) <= high + reach]
    return [one for one in front.points if one in far]


def _staircase(front: Front, quantity: str, x: Spec, y: Spec, colour: str) -> Spec:
    """The boundary of the dominated region: beyond it some variant is at least as good in both quantities."""
    corners = [
        {"x": point.values[quantity].mean, "y": point.values[front.quantities[0]].mean}
        for point in front.points
        if point.on_front
    ]
    small = front.directions[front.quantities.index(quantity)] == "minimize"
    step = "step-after" if small else "step-before"
    return mark("line", corners, {"x": x, "y": y}, interpolate=step, color=colour, strokeWidth=2, clip=True)


def _front(findings: Findings, palette: Palette) -> Spec:
    assert findings.front is not None
    return draw_front(findings.front, palette)


FIGURES = {"front": _front}


MOST_OTHERS = 20
"""Dominated variants that the table shows, the best in the first quantity."""


def section(findings: Findings, pictures: Mapping[str, Picture]) -> Section | None:
    """Which variants no other beats in everything."""
    if findings.front is None:
        return None
    return Section("Trade-offs", tuple(_blocks(findings.front, findings.report.margin, pictures)))


def finding(front: Front) -> str:
    """Which variants are on the front, and what each saves or costs beside the baseline."""
    base = _baseline(front)
    on_front = [point for point in front.points if point.on_front]
    told = []
    for point in on_front[:MOST_TOLD]:
        beside = _savings(point, base, front.quantities)
        told.append(front.titles[point.variant] + (f" ({', '.join(beside)})" if beside else ""))
    if len(on_front) > MOST_TOLD:
        told.append(f"{len(on_front) - MOST_TOLD} more")
    seen = listed([words_for(quantity) for quantity in front.quantities])
    said = f"On the front of {seen}: {listed(told)}."
    if base is not None and not base.on_front:
        said += f" The baseline is not: {front.titles[str(base.dominated_by)]} is better in the means."
    return said


def _baseline(front: Front) -> FrontPoint | None:
    return next((point for point in front.points if point.variant == BASELINE), None)


def _savings(point: FrontPoint, base: FrontPoint | None, quantities: Sequence[str]) -> list[str]:
    """What a variant has more or less of these quantities than the baseline, without what rounds to nothing."""
    if base is None or point is base:
        return []
    return [said for quantity in quantities if (said := _change(point, base, quantity))]


def _change(point: FrontPoint, base: FrontPoint, quantity: str) -> str:
    """What a variant has more or less of a quantity than the baseline; empty if that rounds to nothing."""
    own, other = point.values[quantity].mean, base.values[quantity].mean
    if own is None or other is None:
        return ""
    if quantity not in COSTS:
        return f"{words_for(quantity)} {own - other:+.2g}"
    change = percent(own / other - 1) if other else "0%"
    return "" if change == "0%" else f"{words_for(quantity)} {change.replace('%', ' %')}"


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
    if far := _far(front):
        said += f" Too far off to be drawn, and dominated: {listed([front.titles[one.variant] for one in far])}."
    if front.left_out:
        said += f" Left out, as they diverged, were stopped early or lack a result: {listed(front.left_out)}."
    return said


def _blocks(front: Front, margin: float, pictures: Mapping[str, Picture]) -> Iterator[Block]:
    on_front = [point for point in front.points if point.on_front]
    others = [point for point in front.points if not point.on_front]
    yield Paragraph(what_it_says(front))
    if "front" in pictures:
        yield pictures["front"]
    titles = ("variant", *front.quantities, "dominated by")
    groups = (on_front, others[:MOST_OTHERS])
    rows = tuple(tuple(_cells(point, front, margin) for point in group) for group in groups if group)
    yield Grid(titles, rows, frozenset({0, len(titles) - 1}))
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


def _cells(point: FrontPoint, front: Front, margin: float) -> tuple[str, ...]:
    standing = "on the front"
    if point.dominated_by is not None:
        standing = f"{front.titles[point.dominated_by]}{'' if point.significant else ' (in the means)'}"
    cells = [_interval(point.values[quantity], quantity, front, margin) for quantity in front.quantities]
    return front.titles[point.variant], *cells, standing


def _interval(interval: Interval, quantity: str, front: Front, margin: float) -> str:
    low, high = (None, None) if interval.low == interval.high else (interval.low, interval.high)  # exact: no interval
    intervals = [point.values[quantity] for point in front.points]
    widths = [(one.high - one.low) / 2 for one in intervals if one.low is not None and one.high is not None]
    decimals = decimals_for(margin, widths)
    write = _count if quantity in COSTS else partial(fixed, decimals=decimals)
    return " ".join(with_interval(interval.mean, low, high, write))


def _count(value: float) -> str:
    return count(round(value))
