"""The Pareto front, the first quantity against each of the others: a figure and a section of a report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise

from ablate.analysis.answer import Answer, answer_of
from ablate.analysis.answer_rows import OF_VARIANTS, GroupKey
from ablate.analysis.findings import Findings
from ablate.analysis.numbers import count, decimals_for, fixed, listed, percent, plural, with_interval
from ablate.analysis.pareto import Front, FrontPoint
from ablate.analysis.runs import UNITS, words_for
from ablate.metrics import COSTS, TIMED
from ablate.render.blocks import Block, Grid, Paragraph, Picture, Section
from ablate.render.figures.style import (
    DRAWN_AS,
    WIDTH,
    Look,
    Palette,
    Spec,
    by_look,
    layers,
    mark,
    names,
    number,
    wrapped,
)
from ablate.spec.design import BASELINE
from ablate.stats import Interval

FRONT, MEANS, CONFIDENT = "on the front", "dominated in the means", "dominated (95 % confidence)"
FAR = 0.6
"""How far intervals are shown beyond the means, as a share of the range of the means."""
HEIGHT = 440
"""Of a panel in pixels."""
LINE, LETTER = 14, 6.4
"""Height of a label and width of a letter in pixels."""
LITTLE = 0.05
"""Share of a value within which no point is too far to be drawn."""
MANY = 60
"""Number of variants from which dominated ones are drawn without their intervals."""
CROWD, MOST_ABOVE = 0.01, 4
"""Share of an axis within which points stand one above the other, and how many may."""
MOST_AWAY = 4
"""Lines by which a label may be moved from its point so that it covers no interval."""
MOST_BESIDE = 2
"""Variants on the front that its sentence names; of more it names both ends."""
GOOD: tuple[GroupKey, ...] = ("better", "ahead", "as good")
"""Verdicts on variants that may take the place of the baseline."""
Keys = Mapping[str, GroupKey]
"""Variants to the verdict on them, as the answer groups them."""
Box = tuple[float, float, float, float]
"""Left, bottom, right and top, in the units of the axes."""


def pictures(findings: Findings) -> tuple[Picture, ...]:
    """The figure of a study whose variants differ in cost."""
    front = findings.front
    if front is None:
        return ()
    costs = " and ".join(words_for(quantity) for quantity in front.quantities[1:])
    caption = (
        f"{front.quantities[0]} against {costs}, with 95 % intervals over {findings.report.unit}s; colour and mark: "
        "the verdict. Filled, with names: on the Pareto front, which is the line; hollow: dominated."
    )
    return (Picture("front", caption),)


def stand(point: FrontPoint) -> str:
    """How a variant stands: on the front, or how surely another one is better in all quantities."""
    return FRONT if point.on_front else CONFIDENT if point.significant else MEANS


def keys_of(answer: Answer) -> dict[str, GroupKey]:
    """The verdicts of an answer on its variants, as `OF_VARIANTS` calls them."""
    return {row.variant: OF_VARIANTS.get(group.key, group.key) for group in answer.groups for row in group.rows}


def draw_front(front: Front, keys: Keys, palette: Palette, width: float = WIDTH) -> Spec:
    """A panel for each quantity but the first, side by side, with the names of points on the front and the baseline.

    Args:
        width: Of the page, in pixels; on a narrow one those points alone, as rows.
    """
    named = {one.variant: front.titles[one.variant] for one in front.points if one.on_front or one.variant == BASELINE}
    if width < WIDTH:
        return draw_front_rows(front, keys, palette, named, width)
    wide = (width - 90) / (len(front.quantities) - 1)
    drawn = [draw_front_panel(front, quantity, keys, palette, named, wide) for quantity in front.quantities[1:]]
    if len(drawn) == 1:
        return drawn[0]
    size = {"width": wide, "height": 300}
    return {"hconcat": [{key: part for key, part in one.items() if key != "autosize"} | size for one in drawn]}


def draw_front_panel(
    front: Front, quantity: str, keys: Keys, palette: Palette, labels: Mapping[str, str], width: float = WIDTH
) -> Spec:
    """The first quantity against another; a click on a point picks its `variant`.

    Args:
        quantity: Of the horizontal axis.
        labels: Variants to what stands beside their points.
        width: Of the panel in pixels.
    """
    first = front.quantities[0]
    far = _far(front)
    said, looks = _verdicts(front, keys, palette)
    rows = [
        {**_row(point, quantity, first, front.titles[point.variant]), "verdict": said[point.variant]}
        for point in front.points
        if point not in far
    ]
    unit = f" ({UNITS[quantity]})" if quantity in UNITS else ""
    better = "lower" if front.directions[0] == "minimize" else "higher"
    x = number("x", words_for(quantity) + unit, domain=_reach(front, quantity), axis={"format": "~s"})
    y = number("y", f"{words_for(first)} ({better} is better)", domain=_reach(front, first))
    tone, limits = _legend(looks, "color", width=width), _limits(front, y["scale"]["domain"])
    ends = [row for row in rows if len(rows) <= MANY or row["stands"] == FRONT]
    titles = {"title": "variant", "verdict": "verdict", "stands": "stands", "said y": words_for(first),
              "said x": words_for(quantity)}  # fmt: skip
    corners = _corners(front, quantity) if len(front.quantities) == 2 else []
    return layers(
        [
            mark("line", corners, {"x": x, "y": y, "order": {"field": "order"}}, color=palette.grey, strokeWidth=2.5,
                 clip=True) if corners else None,
            mark("rule", ends, {"x": {**x, "field": "x low"}, "x2": {"field": "x high"}, "y": y, **tone},
                 strokeWidth=2, clip=True),
            mark("rule", ends, {"y": {**y, "field": "y low"}, "y2": {"field": "y high"}, "x": x, **tone},
                 strokeWidth=2, clip=True),
            *_limit_marks(limits, "y", palette),
            *_labels(rows, corners, x, y, labels, palette, width, limits),
            *_points(rows, {"x": x, "y": y}, looks, titles, palette, width),
        ],
        HEIGHT,
    )  # fmt: skip


def _verdicts(front: Front, keys: Keys, palette: Palette) -> tuple[dict[str, str], dict[str, Look]]:
    """The verdict on each variant as a legend calls it, and the look of each; those that look alike share one."""
    far = _far(front)
    names = [point.variant for point in front.points if point not in far]
    alike: dict[str, dict[str, None]] = {}
    for key in dict.fromkeys(key for name, key in keys.items() if name in names):
        alike.setdefault(DRAWN_AS[key], {})[key] = None
    labels = {word: " or ".join(of) for word, of in alike.items()}
    said = {name: labels[DRAWN_AS[keys[name]]] if name in keys else BASELINE for name in names}
    looks = {BASELINE: Look(palette.ink, (1, 0), "circle")} | {labels[word]: palette.verdict(word) for word in alike}
    return said, {label: look for label, look in looks.items() if label in said.values()}


def _points(
    rows: Sequence[Spec],
    channels: Spec,
    looks: Mapping[str, Look],
    titles: Mapping[str, str],
    palette: Palette,
    width: float,
) -> Iterator[Spec]:
    """The points, those that are dominated hollow, then all of them unseen, so that each can be picked."""
    tip = [{"field": key, "title": title} for key, title in titles.items()]
    looked = _legend(looks, "color", "shape", width=width)
    for on_front, fill in ((False, palette.ground), (True, None)):
        here = [row for row in rows if (row["stands"] == FRONT) == on_front]
        hollow = {"filled": False, "fill": fill, "strokeWidth": 1.8} if fill else {}
        yield mark("point", here, {**channels, **looked}, size=75, clip=True, **hollow)
    marks = mark("point", rows, {**channels, **by_look("verdict", looks, "shape"), "tooltip": tip}, size=140, clip=True,
                 opacity=0)  # fmt: skip
    marks["params"] = [{"name": "picked", "select": {"type": "point", "fields": ["variant"]}}]
    yield marks


def _legend(looks: Mapping[str, Look], *channels: str, width: float) -> Spec:
    """The looks of verdicts, with a legend above the figure in as few lines as its width holds."""
    widest = 50 + LETTER * max(map(len, looks), default=0)
    return by_look("verdict", looks, *channels, columns=max(1, int(width // widest)), orient="top")


def _limits(front: Front, domain: Sequence[float]) -> list[tuple[float, str]]:
    """Where the baseline worse by the margin is on the axis of the first quantity, with its name; none beyond it."""
    at, base = front.limit, _baseline(front)
    if at is None or base is None or not domain[0] < at < domain[1]:
        return []
    margin = at - _mean(base, front.quantities[0])
    return [(at, f"baseline {'+' if margin > 0 else '-'} margin {abs(margin):.3g}")]


def _limit_marks(limits: Sequence[tuple[float, str]], axis: str, palette: Palette) -> Iterator[Spec]:
    """The dashed line of a limit along `x` or `y`, with its name."""
    aside: Spec = {"dy": -2, "x": {"expr": "width / 2"}} if axis == "y" else {"dy": -3, "y": 0}
    for at, text in limits:
        yield mark("rule", [{}], {axis: {"datum": at}}, strokeDash=[4, 3])
        for halo in palette.halos:
            yield mark("text", [{"text": text}], {axis: {"datum": at}, "text": {"field": "text"}}, baseline="bottom",
                       **aside, **halo)  # fmt: skip


def is_crowded(front: Front, quantity: str) -> bool:
    """Whether so many points share a value of this quantity that they hide each other one above the other."""
    far = _far(front)
    values = sorted(point.values[quantity].mean or 0.0 for point in front.points if point not in far)
    near = CROWD * (values[-1] - values[0])
    return any(last - first <= near for first, last in zip(values, values[MOST_ABOVE:], strict=False))


def draw_front_rows(
    front: Front, keys: Keys, palette: Palette, labels: Mapping[str, str], width: float = WIDTH
) -> Spec:
    """A row for each point: the first quantity with its interval, and in words what differs of the others.

    Args:
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
    said, looks = _verdicts(front, keys, palette)
    rows = [
        {**_row(points[name], first, first, front.titles[name]), "name": line, "verdict": said[name]}
        for name, line in lines.items()
    ]
    better = "lower" if front.directions[0] == "minimize" else "higher"
    x = number("y", f"{words_for(first)} ({better} is better)", domain=_reach(front, first), axis={"tickCount": 5})
    y = names("name", [*lines.values()])
    ends = [row for row in rows if row["y low"] is not None]
    step = max(24, 13 * max(line.count("\n") + 1 for line in lines.values()) + 6)
    titles = {"title": "variant", "verdict": "verdict", "stands": "stands", "said y": words_for(first)}
    return layers(
        [
            None if base is None else mark("rule", [{}], {"x": {"datum": base.values[first].mean}}),
            *_limit_marks(_limits(front, x["scale"]["domain"]), "x", palette),
            mark("rule", ends, {"x": {**x, "field": "y low"}, "x2": {"field": "y high"}, "y": y,
                                **_legend(looks, "color", width=width)}, strokeWidth=2, clip=True),
            *_points(rows, {"x": x, "y": y}, looks, titles, palette, width),
        ],
        step * len(rows),
    )  # fmt: skip


def _labels(
    rows: Sequence[Spec], corners: Sequence[Spec], x: Spec, y: Spec, labels: Mapping[str, str], palette: Palette,
    width: float, limits: Sequence[tuple[float, str]],
) -> Iterator[Spec]:  # fmt: skip
    """Labels beside points, towards the middle, where neither the front nor another label is, with a line to each."""
    (left, right), (bottom, top) = x["scale"]["domain"], y["scale"]["domain"]
    away, line, letter = 0.04 * (right - left), LINE * (top - bottom) / HEIGHT, LETTER * (right - left) / width
    taken: list[Box] = [
        (min(a["x"], b["x"]), min(a["y"], b["y"]) - line / 4, max(a["x"], b["x"]), max(a["y"], b["y"]) + line / 4)
        for a, b in pairwise(corners)
    ]
    taken += [(row["x"] - letter, row["y"] - line / 2, row["x"] + letter, row["y"] + line / 2) for row in rows]
    for at, text in limits:
        middle, half = (left + right) / 2, len(text) * letter / 2
        taken += [(left, at - line / 4, right, at + line / 4), (middle - half, at, middle + half, at + line)]
    bars = [(row["x"] - letter / 2, row["y low"], row["x"] + letter / 2, row["y high"])
            for row in rows if row["y low"] is not None]  # fmt: skip
    put: dict[str, list[Spec]] = {"left": [], "right": []}
    for row in sorted((row for row in rows if row["variant"] in labels), key=lambda row: float(row["y"])):
        align = "left" if 2 * row["x"] < left + right else "right"
        label, beside = labels[row["variant"]], row["x"] + (away if align == "left" else -away)
        room = int(abs((right if align == "left" else left) - beside) / letter)
        label = label if len(label) <= room else f"{label[: room - 1]}…"
        ends = sorted((beside, beside + (len(label) if align == "left" else -len(label)) * letter))
        steps = sorted(range(-4 * len(rows), 4 * len(rows) + 1), key=abs)
        boxes = [(ends[0], at, ends[1], at + line) for at in (row["y"] + step * line / 2 for step in steps)]
        free = [one for one in boxes if bottom <= one[1] and one[3] <= top and not _hits(one, taken)]
        clear = (one for one in free if not _hits(one, bars) and abs(one[1] - row["y"]) <= MOST_AWAY * line)
        box = next(clear, (free or boxes)[0])
        taken.append(box)
        put[align].append({"x": row["x"], "y": row["y"], "label": label, "beside": beside, "place": box[1]})
    beside, place = {**x, "field": "beside"}, {**y, "field": "place"}
    for align, told in put.items():
        if told:
            yield mark("rule", told, {"x": x, "y": y, "x2": {"field": "beside"}, "y2": {"field": "place"}},
                       color=palette.grey)  # fmt: skip
            for halo in palette.halos:
                yield mark("text", told, {"x": beside, "y": place, "text": {"field": "label"}}, align=align,
                           baseline="bottom", dy=-1, **halo)  # fmt: skip


def _hits(box: Box, taken: Sequence[Box]) -> bool:
    """Whether a box overlaps another one."""
    return any(box[0] < one[2] and one[0] < box[2] and box[1] < one[3] and one[1] < box[3] for one in taken)


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


def _corners(front: Front, quantity: str) -> list[Spec]:
    """The boundary of the dominated region: beyond it some variant is at least as good in both quantities."""
    ends = sorted(
        (point.values[quantity].mean or 0.0, point.values[front.quantities[0]].mean or 0.0)
        for point in front.points
        if point.on_front
    )
    small = front.directions[front.quantities.index(quantity)] == "minimize"
    corners = [
        one for before, after in pairwise(ends)
        for one in (before, (after[0], before[1]) if small else (before[0], after[1]))
    ]  # fmt: skip
    return [{"x": x, "y": y, "order": order} for order, (x, y) in enumerate([*corners, *ends[-1:]])]


def _front(findings: Findings, palette: Palette, width: float) -> Spec:
    assert findings.front is not None
    return draw_front(findings.front, keys_of(answer_of(findings.report)), palette, width)


FIGURES = {"front": _front}


MOST_OTHERS = 20
"""Dominated variants that the table shows, the best in the first quantity."""


def section(findings: Findings, pictures: Mapping[str, Picture]) -> Section | None:
    """Which variants no other beats in everything."""
    if findings.front is None:
        return None
    return Section("Trade-offs", tuple(_blocks(findings.front, findings.report.margin, pictures)))


def finding(front: Front, keys: Keys) -> str:
    """Which variant has the least of each cost and is as good as the baseline, then which are on the front."""
    base = _baseline(front)
    told = [] if base is None else [_said_of(front, base, quantity, keys) for quantity in front.quantities]
    on_front = [point for point in front.points if point.on_front]
    both = "both" if len(front.quantities) == 2 else "all"
    if len(on_front) <= MOST_BESIDE:
        savings = [", ".join(_savings(point, base, front.quantities)) for point in on_front]
        which = (front.titles[point.variant] + (f" ({of})" if of else "")
                 for point, of in zip(on_front, savings, strict=True))  # fmt: skip
        told.append(f"No other variant is better in {both} than {listed(which)}.")
    else:
        told.append(f"{len(on_front)} of {len(front.points)} are on the front: no other is better in {both}.")
    return " ".join(filter(None, told))


def cheapest(front: Front, quantity: str, keys: Keys) -> FrontPoint | None:
    """The variant with the least of a cost, below the baseline's, that is as good as the baseline or better."""
    base = _baseline(front)
    good = [] if base is None else [base, *(point for point in front.points if keys.get(point.variant) in GOOD)]
    best = min(good, key=lambda point: _sign(front, quantity) * _mean(point, quantity), default=base)
    return None if best is base else best


def _said_of(front: Front, base: FrontPoint, quantity: str, keys: Keys) -> str:
    """Which variant is the `cheapest`, in a sentence; empty of what is no cost."""
    if quantity not in COSTS or not keys:
        return ""
    words, best, less = words_for(quantity), cheapest(front, quantity, keys), _sign(front, quantity) > 0
    if best is None:
        return f"No variant with {'fewer' if less else 'more'} {words} is shown to be as good as the baseline."
    change = _change(best, base, quantity).removeprefix(words).strip() or "by less than 1 %"
    most = "fewest" if less else "most"
    return f"As good as the baseline with the {most} {words}: {front.titles[best.variant]}, {change}."


def _sign(front: Front, quantity: str) -> int:
    return 1 if front.directions[front.quantities.index(quantity)] == "minimize" else -1


def _mean(point: FrontPoint, quantity: str) -> float:
    return point.values[quantity].mean or 0.0


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
    if front.left_out:
        said += f" Left out, as they diverged, were stopped early or lack a result: {listed(front.left_out)}."
    return said


def not_drawn(front: Front) -> str:
    """The points that a figure leaves out, in a sentence; empty without one."""
    far = [front.titles[one.variant] for one in _far(front)]
    return f"Too far off to be drawn, and dominated: {listed(far)}." if far else ""


def _blocks(front: Front, margin: float, pictures: Mapping[str, Picture]) -> Iterator[Block]:
    on_front = [point for point in front.points if point.on_front]
    others = [point for point in front.points if not point.on_front]
    yield Paragraph(f"{what_it_says(front)} {not_drawn(front)}".strip())
    if "front" in pictures:
        yield pictures["front"]
    titles = ("variant", *front.quantities, "stands")
    groups = (on_front, others[:MOST_OTHERS])
    rows = tuple(tuple(_cells(point, front, margin) for point in group) for group in groups if group)
    yield Grid(titles, rows, frozenset({0, len(titles) - 1}), fold="In numbers")
    if len(others) > MOST_OTHERS:
        yield Paragraph(
            f"Left out of the table: {plural(len(others) - MOST_OTHERS, 'further variant')}, all dominated."
        )


def _dominated(others: int, shown: int) -> str:
    if not others:
        return "No variant is dominated."
    together = "with 95 % confidence jointly (Holm's procedure)"
    if not shown:
        which, may = ("The other one is", "it") if others == 1 else (f"The {others} others are", "they")
        return f"{which} dominated in the means, not {together}: {may} may belong on the front."
    if shown == others:
        return f"{'The other one is' if others == 1 else f'All {others} others are'} dominated {together}."
    which = f"{shown} {'is' if shown == 1 else 'are'} dominated"
    return f"Of the {others} others {which} {together}; the rest may belong on the front."


def _cells(point: FrontPoint, front: Front, margin: float) -> tuple[str, ...]:
    standing = "on the front"
    if point.dominated_by is not None:
        standing = f"dominated by {front.titles[point.dominated_by]}{'' if point.significant else ' (in the means)'}"
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
