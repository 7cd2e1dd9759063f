"""The Pareto front: the first quantity against each of the others."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ablate.analysis.findings import Findings
from ablate.analysis.numbers import count
from ablate.analysis.pareto import Front, FrontPoint
from ablate.analysis.runs import UNITS, words_for
from ablate.metrics import COSTS
from ablate.render.blocks import Picture
from ablate.render.figures.style import WIDTH, Look, Palette, Spec, by_look, layers, mark, number
from ablate.stats import Interval

FRONT, MEANS, CONFIDENT = "on the front", "dominated in the means", "dominated (95 % confidence)"
FAR = 0.6
"""How far intervals are shown beyond the means, as a share of the range of the means."""
MANY = 60
"""Number of variants from which dominated ones are drawn without their intervals."""


def pictures(findings: Findings) -> tuple[Picture, ...]:
    """The figure of a study whose variants differ in cost."""
    front = findings.front
    if front is None:
        return ()
    caption = (
        f"{front.quantities[0]} against {' and '.join(words_for(one) for one in front.quantities[1:])}, with 95 % "
        "intervals over seeds. Numbered squares: the Pareto front, by the numbers of the table; circles: dominated "
        "in the means; crosses: dominated with 95 % confidence."
    )
    return (Picture("front", caption),)


def stand(point: FrontPoint) -> str:
    """How a variant stands: on the front, or how surely another one is better in all quantities."""
    return FRONT if point.on_front else CONFIDENT if point.significant else MEANS


def numbered(front: Front) -> dict[str, str]:
    """Variants on the front to their numbers, the best in the first quantity first."""
    return {name: str(number) for number, name in enumerate([one.variant for one in front.points if one.on_front], 1)}


def draw_front(front: Front, palette: Palette) -> Spec:
    """A panel for each quantity but the first, side by side."""
    across = front.quantities[1:]
    drawn = [draw_front_panel(front, quantity, palette) for quantity in across]
    if len(drawn) == 1:
        return drawn[0]
    wide = {"width": (WIDTH - 90) / len(drawn), "height": 300}
    return {"hconcat": [{key: part for key, part in one.items() if key != "autosize"} | wide for one in drawn]}


def draw_front_panel(front: Front, quantity: str, palette: Palette, looks: Mapping[str, Look] | None = None) -> Spec:
    """The first quantity against another; a click on a point picks its `variant`.

    Args:
        front: The front.
        quantity: Of the horizontal axis.
        palette: Of the figure.
        looks: By variant, for its colour; None: by how it stands.
    """
    first, numbers = front.quantities[0], numbered(front)
    stands = {FRONT: Look(palette.look(5).colour, (1, 0), "square"), MEANS: Look(palette.grey, (1, 0), "circle"),
              CONFIDENT: palette.verdict("diverged")}  # fmt: skip
    rows = [_row(point, quantity, first, numbers) for point in front.points]
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
    titles = {"variant": "variant", "stands": "stands", "said y": words_for(first), "said x": words_for(quantity)}
    tip = [{"field": key, "title": title} for key, title in titles.items()]
    looked = {**by_look("stands", found, "shape"), **colour}
    if looks is not None:
        looked["shape"] |= {"legend": {**looked["shape"]["legend"], "symbolFillColor": palette.ink}}
    marks = mark("point", rows, {"x": x, "y": y, **looked, "tooltip": tip}, size=75, clip=True)
    marks["params"] = [{"name": "picked", "select": {"type": "point", "fields": ["variant"]}}]
    number_of = [row for row in rows if row["number"]]
    return layers(
        [
            _staircase(front, quantity, x, y) if len(front.quantities) == 2 else None,
            mark("rule", ends, {"x": {**x, "field": "x low"}, "x2": {"field": "x high"}, "y": y, **colour},
                 strokeWidth=0.9, clip=True),
            mark("rule", ends, {"y": {**y, "field": "y low"}, "y2": {"field": "y high"}, "x": x, **colour},
                 strokeWidth=0.9, clip=True),
            marks,
            mark("text", number_of, {"x": x, "y": y, "text": {"field": "number"}}, dx=9, dy=-9, fontWeight="bold"),
        ],
        360,
    )  # fmt: skip


def _row(point: FrontPoint, quantity: str, first: str, numbers: Mapping[str, str]) -> Spec:
    row: Spec = {"variant": point.variant, "stands": stand(point), "number": numbers.get(point.variant, "")}
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
    intervals = [point.values[quantity] for point in front.points]
    means = [interval.mean or 0.0 for interval in intervals]
    low, high = min(means), max(means)
    room = FAR * (high - low) or math.inf
    ends = [end for interval in intervals for end in (interval.low, interval.high) if end is not None]
    least, most = min([low, *ends]), max([high, *ends])
    edge = 0.1 * (high - low) or 0.1 * abs(high)
    return max(low - room, least) - edge, min(high + room, most) + edge


def _staircase(front: Front, quantity: str, x: Spec, y: Spec) -> Spec:
    """The boundary of the dominated region: beyond it some variant is at least as good in both quantities."""
    corners = [
        {"x": point.values[quantity].mean, "y": point.values[front.quantities[0]].mean}
        for point in front.points
        if point.on_front
    ]
    small = front.directions[front.quantities.index(quantity)] == "minimize"
    step = "step-after" if small else "step-before"
    return mark("line", corners, {"x": x, "y": y}, interpolate=step, strokeDash=[2, 3], strokeWidth=1, clip=True)


def _front(findings: Findings, palette: Palette) -> Spec:
    assert findings.front is not None
    return draw_front(findings.front, palette)


FIGURES = {"front": _front}
