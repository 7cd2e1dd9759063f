"""Differences along budgets or a sweep, and slices along numeric axes: figures, and sections of a report."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from statistics import quantiles
from typing import Any

from ablate.analysis.changes import setting_titles
from ablate.analysis.findings import Findings
from ablate.analysis.judging import deciding_bounds, worst_margin
from ablate.analysis.numbers import MISSING, count, decimals_for, fixed, listed, plural, scaled, with_interval
from ablate.analysis.report import StudyReport
from ablate.analysis.scaling import COMPUTE, ScalePoint, Scaling, Scalings, slope_cell
from ablate.analysis.slices import Slice, SliceLine, SlicePoint, is_logarithmic
from ablate.render.blocks import Block, Grid, Paragraph, Picture, Section
from ablate.render.figures.style import (
    WIDTH,
    Look,
    Palette,
    Spec,
    alike,
    by_look,
    far_off,
    layers,
    margin_marks,
    mark,
    number,
    omission,
    panels,
    spread,
    with_equal_decimals,
    wrapped,
)
from ablate.spec.fairness import BUDGET
from ablate.stats import Verdict, mean_interval

MOST_PANELS = 24
"""Variants beyond this number are not drawn along budgets or a sweep."""
MOST_LINES = 12
"""Lines of a slice; further ones are in the table only."""
SCATTERED = "variants"
Column = Sequence[str | float | None]
"""What the variants have on an axis: words, or numbers."""
LETTER, LINE = 6.0, 12
"""Width of a letter and height of a line among parallel axes, in pixels."""
ROOM_DOWN, STEP_DOWN = 12, 60
"""Letters on a line of a label, and pixels from one axis to the next, where they lie below each other."""
STOPS = 24
"""Colours that the last of parallel axes shows."""
FEW = 6
"""Values of a numeric axis among parallel ones that are all written; of more both ends, and those that stand out."""
MOST_NAMED = 20
"""Parallel lines that all end in their names."""
APART = 0.15
"""Least distance of two values that are written beside a numeric axis among parallel ones, of the whole axis."""


def pictures(findings: Findings) -> Iterator[Picture]:
    """The figures of a study with budgets, a sweep or another numeric axis."""
    scalings, metric = findings.report.scaling, findings.report.metric
    if scalings is not None:
        far = _far(scalings, findings.report.margin)
        rest = omission(far, len(scalings.of) - len(far) - MOST_PANELS)
        yield Picture(
            "scaling",
            f"Difference of {metric} from the baseline at each {scalings.axis}, paired by seed, with its one-sided "
            f"95 % bounds; a mark is the verdict there, dashed the margin ±{findings.report.margin:g}.{rest}",
        )
    if findings.slices:
        along = " and ".join(f"{axis_slice.metric} along {axis_slice.axis}" for axis_slice in findings.slices)
        hidden = sum(max(0, len(one.lines) - MOST_LINES) for one in findings.slices if not one.scattered)
        rest = f" {hidden} further lines are left out." if hidden > 0 else ""
        yield Picture("slices", f"{along}: means with 95 % intervals over seeds.{rest}")
    if findings.depths:
        measures = ", ".join(one.metric for one in findings.depths)
        hidden = max(0, len(findings.depths[0].lines) - MOST_LINES)
        rest = f" Left out: {plural(hidden, 'further variant')}." if hidden else ""
        yield Picture(
            "insides",
            f"{measures} of each block at the end of training (`initial`: before the first step), means with 95 % "
            f"intervals over seeds; block 0 is the input of the first.{rest}",
        )


def beyond_scale(report: StudyReport) -> str:
    """The variants that `draw_scaling` leaves out because they lie far off, with their last differences."""
    scalings = report.scaling
    assert scalings is not None, "only a study with an axis is drawn along it"
    write, far = partial(fixed, decimals=decimals_for(report.margin, ()), sign=True), _far(scalings, report.margin)
    ends = {one.variant: write(one.points[-1].difference.difference) for one in scalings.of if one.points}
    return listed([f"{report.titles.get(name, name)} ({ends[name]})" for name in far])


def _far(scalings: Scalings, margin: float) -> list[str]:
    """The variants whose differences are far off those of the others at every place."""
    return far_off({one.variant: [point.difference.difference for point in one.points] for one in scalings.of}, margin)


def _said(verdict: Verdict) -> str:
    """The verdict, or the group of answers in which it is `ahead`."""
    return "ahead" if verdict.word == "not worse" and verdict.is_ahead else verdict.word


def draw_scaling(report: StudyReport, palette: Palette, width: float = WIDTH) -> Spec:
    """A panel for each variant, all with the same axes."""
    scalings = report.scaling
    assert scalings is not None, "only a study with an axis is drawn along it"
    far, titles = _far(scalings, report.margin), report.titles
    near = [one for one in scalings.of if one.variant not in far][:MOST_PANELS]
    near.sort(key=lambda one: report.rule.sign * (one.points[0].difference.difference or 0.0))  # gains come first
    shown = [(one, point) for one in near for point in one.points]
    first = scalings.places[0] if scalings.axis == COMPUTE else 1.0
    labels = alike(_said(point.verdict) for _, point in shown)

    def title(one: Scaling) -> str:
        ends = dict.fromkeys((one.points[0], one.points[-1]))
        said = (fixed(point.difference.difference, decimals_for(report.margin, ()), sign=True) for point in ends)
        return f"{titles.get(one.variant, one.variant)}\n{' → '.join(said)}"

    rows = list[Spec]()
    for one, point in shown:
        if point.difference.difference is not None:
            ends = deciding_bounds(point.verdict, report.direction)
            low, high = (None, None) if ends is None else (ends.low, ends.high)
            rows.append({"panel": title(one), "at": point.at / first, "difference": point.difference.difference,
                         "low": low, "high": high, "word": labels[_said(point.verdict)]})  # fmt: skip
    worst = worst_margin(report.margin, report.direction)
    if rows:  # the margin has its name in the first panel alone
        rows.append({"panel": rows[0]["panel"], "at": rows[0]["at"], "name": f"margin ±{report.margin:g}"})
    along = {BUDGET: "budget: steps over those of the space", COMPUTE: "times the compute"}
    scale: Spec = {"log": True, "base": 2} if min(scalings.places) > 0 else {}
    marks = {"values": [place / first for place in scalings.places], "format": ".2~g"}
    x = number("at", along.get(scalings.axis, scalings.axis), **scale, axis=marks)
    y = number("difference", f"Δ {report.metric}", axis={"tickCount": 5})
    x["scale"]["padding"] = y["scale"]["padding"] = 9
    looks = palette.verdicts(labels)
    drawn = {"transform": [{"filter": "isValid(datum.word)"}]}
    named = {"y": {"datum": worst}, "text": {"field": "name"}}
    return panels(
        [
            *margin_marks(worst, "y")[:2],
            margin_marks(-worst, "y")[1],
            mark("text", None, named, align="left", x=3, baseline="bottom" if worst > 0 else "top",
                 dy=-3 if worst > 0 else 3)
            | {"transform": [{"filter": "isValid(datum.name)"}]},
            mark("line", None, {"x": x, "y": y}, color=palette.grey, strokeWidth=1.6) | drawn,
            mark("rule", None, {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"},
                                **by_look("word", looks, "color")}, strokeWidth=2)
            | {"transform": [{"filter": "isValid(datum.low) && isFinite(datum.low) && isFinite(datum.high)"}]},
            mark("point", None, {"x": x, "y": y, **by_look("word", looks, "color", "shape")}, size=120,
                 stroke=palette.ground, strokeWidth=1.5) | drawn,
        ],
        rows, width=width,
    )  # fmt: skip


def slice_panels(found: Sequence[Slice], looks: Mapping[str, Look], palette: Palette, width: float = WIDTH) -> Spec:
    """A panel for each slice, two in a row if there is room.

    Args:
        looks: By name of a line, where it is that of a variant.
        width: Of the figure in pixels.
    """
    drawn = [draw_slice(one, looks, palette) for one in found]
    if len(drawn) == 1:
        return drawn[0]
    columns = 2 if width >= WIDTH else 1
    each = {"width": width / columns - 65, "height": 200}
    return {
        "concat": [{key: part for key, part in one.items() if key != "autosize"} | each for one in drawn],
        "columns": columns,
        "resolve": {"scale": {"color": "independent", "shape": "independent", "strokeDash": "independent"}},
    }


def draw_search(
    found: Sequence[Slice],
    kinds: Mapping[str, str],
    fresh: Mapping[str, tuple[str, Sequence[float]]],
    palette: Palette,
    width: float = WIDTH,
) -> Spec:
    """The points of a search along each number that it varies, and large those that fresh seeds tried.

    What these had on the seeds that chose among the points is ringed; with each fresh seed, a dash.

    Args:
        kinds: Variant to what is said of its point in the legend.
        fresh: Variant to what is said of its mean over fresh seeds, and its values with these.
        width: Of the figure in pixels.
    """
    series = (number for number in itertools.count() if palette.look(number).colour != palette.chosen)
    looks = {name: palette.look(next(series)) for name in dict.fromkeys(kinds.values())}
    tones = (palette.baseline().colour, palette.chosen)
    looks |= {name: Look(tone, (1, 0), "circle") for (name, _), tone in zip(fresh.values(), tones, strict=False)}
    columns, drawn = 2 if width >= WIDTH and len(found) > 1 else 1, list[Spec]()
    for one in found:
        points = [point for line in one.lines for point in line.points if point.objective.mean is not None]
        rows: list[Spec] = [
            {"name": kinds[one.variant], "variant": one.variant, "at": one.at, "mean": one.objective.mean}
            for one in points
        ]
        tried = [row | {"name": fresh[row["variant"]][0]} for row in rows if row["variant"] in fresh]
        means = [row | {"mean": of.mean, "low": of.low, "high": of.high}
                 for row in tried for of in [mean_interval(fresh[row["variant"]][1])]]  # fmt: skip
        singles = [row | {"mean": value} for row in tried for value in fresh[row["variant"]][1]]
        places, ends = [row["at"] for row in rows], [row["mean"] for row in (*rows, *means, *singles)]
        ends += [row[end] for row in means for end in ("low", "high") if row[end] is not None]
        room = 0.04 * (max(ends) - min(ends)) or 1.0
        first, last = min(places), max(places)
        wide = (last / first) ** 0.03 if one.logarithmic else 0.03 * (last - first)
        domain = (first / wide, last * wide) if one.logarithmic else (first - wide, last + wide)
        x = number("at", setting_titles([one.axis])[one.axis], log=one.logarithmic, domain=domain,
                   axis={"format": ".4~g", "tickCount": 6})  # fmt: skip
        better = {"minimize": " (lower is better)", "maximize": " (higher is better)", None: ""}[one.direction]
        y = number("mean", f"{one.metric}{better}", domain=(min(ends) - room, max(ends) + room), axis={"tickCount": 6})
        tone = by_look("name", looks, "color", "shape", columns=max(1, int(width // 170)), orient="top")
        plain = {"x": x, "y": y, "color": tone["color"]}
        tip = [{"field": key, "title": key} for key in ("variant", "at", "mean", "low", "high")]
        drawn.append(
            {
                "width": width / columns - 65,
                "height": 200,
                "layer": [
                    mark("point", rows, {"x": x, "y": y, **tone, "tooltip": tip[:3]}, size=45),
                    mark("point", tried, plain, filled=False, size=190, strokeWidth=2),
                    mark("rule", [row for row in means if row["low"] is not None],
                         plain | {"y": {**y, "field": "low"}, "y2": {"field": "high"}}, strokeWidth=2.5),
                    mark("tick", singles, {**plain, "tooltip": tip[:3]}, orient="horizontal", size=16, thickness=2),
                    mark("point", means, {"x": x, "y": y, **tone, "tooltip": tip}, size=130),
                ],
            }
        )  # fmt: skip
    return {"concat": drawn, "columns": columns}


def draw_slice(axis_slice: Slice, looks: Mapping[str, Look], palette: Palette) -> Spec:
    """The objective with its intervals along an axis, with a line for each group of variants that differ only in it.

    Args:
        looks: By name of a line, where it is that of a variant.
    """
    lines = axis_slice.lines[:MOST_LINES]
    if axis_slice.scattered:
        points = sorted((point for line in axis_slice.lines for point in line.points), key=lambda point: point.at)
        lines = (SliceLine(SCATTERED, tuple(points)),)
    drawn = {wrapped(line.name, 34): looks.get(line.name) or palette.look(index) for index, line in enumerate(lines)}
    rows: list[Spec] = [
        {"name": name, "at": point.at, "mean": point.objective.mean, "low": point.objective.low,
         "high": point.objective.high, "variant": point.variant, "diverged": point.diverged}
        for name, line in zip(drawn, lines, strict=True) for point in line.points if point.objective.mean is not None
    ]  # fmt: skip
    at = sorted({row["at"] for row in rows})
    doubles = all(value > 0 and math.log2(value).is_integer() for value in at)
    ticks = {"values": at, "format": ".4~g"} if len(at) <= 12 else {"format": ".4~g"}
    x = number("at", setting_titles([axis_slice.axis])[axis_slice.axis], log=axis_slice.logarithmic, axis=ticks,
               **({"base": 2} if axis_slice.logarithmic and doubles else {}))  # fmt: skip
    better = {"minimize": " (lower is better)", "maximize": " (higher is better)", None: ""}[axis_slice.direction]
    y = number("mean", f"{axis_slice.metric}{better}")
    tip = [{"field": key, "title": key} for key in ("variant", "at", "mean", "low", "high", "diverged")]
    lost = [row for row in rows if row["diverged"]]
    many = len(drawn) > 1
    trained = [] if axis_slice.trained is None else [{"at": axis_slice.trained, "text": "trained"}]
    return layers(
        [
            mark("rule", trained, {"x": x}, color=palette.grey, strokeDash=[4, 3]) if trained else None,
            mark("text", trained, {"x": x, "text": {"field": "text"}}, y=0, align="left", baseline="top", dx=3,
                 color=palette.grey) if trained else None,
            None if axis_slice.scattered else mark(
                "line", rows, {"x": x, "y": y, **by_look("name", drawn, "color", "strokeDash", legend=many)},
            ),
            mark("rule", [row for row in rows if row["low"] is not None],
                 {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"},
                  **by_look("name", drawn, "color", legend=many)}),
            mark("point", rows, {"x": x, "y": y, "tooltip": tip,
                                 **by_look("name", drawn, "color", "shape", "strokeDash", legend=many)}, size=50),
            mark("point", lost, {"x": x, "y": y}, filled=False, size=190, color=palette.ink) if lost else None,
        ],
        300,
    )  # fmt: skip


def draw_parallel(
    columns: Mapping[str, Column],
    coloured: str,
    palette: Palette,
    variants: Sequence[str] = (),
    *,
    wide: Sequence[int] = (),
    best: int | None = None,
    best_as: str = "best",
    down: bool = False,
    width: float = WIDTH,
    linear: Collection[str] = (),
    highest: bool = False,
) -> Spec:
    """Parallel coordinates: an axis for each switch and quantity, a line through them for each variant.

    The lines end in their names: all of them where they are few, else and on a narrow page only those that stand out.
    What lies far off the others stands at an end of the axis of the colours.

    Args:
        columns: Name of an axis to a value for each variant; words are in order of first occurrence.
        coloured: The last axis, of numbers, whose values colour the lines; a line that has none is dashed, in grey,
            and does not reach this axis.
        variants: Their names, shown where the pointer is.
        wide: The places of the variants whose lines are wide, in the colour of text.
        best: The place of another variant whose line is wide, in a colour of its own.
        best_as: What that line ends in.
        down: Whether the axes lie below each other, as a narrow page has room for, instead of side by side.
        width: Of the figure in pixels.
        linear: Axes that are not logarithmic however far their numbers reach.
        highest: Whether the highest values of the last axis stand out instead of the lowest.
    """
    room = ROOM_DOWN if down else max(8, int(width / LETTER / (len(columns) + 1)))
    logs = {name for name, column in columns.items() if name not in linear and _is_logarithmic(column)}
    titles = [wrapped(f"{name} (log)" if name in logs else name, room, "= _") for name in columns]
    lines = 0 if down else max(title.count("\n") for title in titles)
    if not down:
        titles = ["\n" * (lines - title.count("\n")) + title for title in titles]  # all end above their axes
    low, high, _ = near_range(columns[coloured])
    near = [min(max(v, low), high) if isinstance(v, int | float) else None for v in columns[coloured]]
    drawn = {**columns, coloured: near}
    places = {
        title: positions(column, linear=name not in logs)
        for title, (name, column) in zip(titles, drawn.items(), strict=True)
    }
    rows = [
        {"line": line, "axis": title, "order": order, "at": at, "value": near[line],
         "variant": variants[line] if variants else "", "said": str(column[line])}
        for order, ((title, heights), column) in enumerate(zip(places.items(), columns.values(), strict=True))
        for line, at in enumerate(heights) if at is not None
    ]  # fmt: skip
    stand_out = [line for line in (best, *wide) if line is not None]
    last = {"axis": titles[[*columns].index(coloured)]}
    named = _line_ends(near, columns[coloured], variants, stand_out, width, best_as, down=down) if variants else []
    ends = [end | last for end in named]
    tone = {best: palette.chosen}
    ticks: list[dict[str, Any]] = [
        {"axis": title, "at": height, "text": text, "tone": tone.get(line, palette.ink), "line": line}
        for title, (name, column) in zip(titles, drawn.items(), strict=True)
        for height, text, line in (
            _ends(column, columns[coloured])
            if name == coloured
            else _ticks(column, room, APART * (4 if down else 1), stand_out, linear=name not in logs)
        )
    ]
    head = {"grid": False, "title": None, "domain": False, "ticks": False, "labelAngle": 0, "labelOverlap": False,
            "labelPadding": 6 + LINE * lines, "orient": "left" if down else "top"}  # fmt: skip
    places_of: Spec = {"type": "point", "domain": titles, "padding": 0.5}
    if ends and not down:  # as much room as the longest name takes
        longest = 10 + LETTER * max(len(line) for end in ends for line in end["text"].split("\n"))
        first = [titles[0], *(tick["text"] for tick in ticks if tick["axis"] == titles[0])]
        half = LETTER / 2 * max(len(line) for text in first for line in text.split("\n"))
        right = max(longest, LETTER / 2 * max(map(len, titles[-1].split("\n"))))
        places_of |= {"padding": 0, "range": [half, {"expr": f"max(width / 2, width - {right:g})"}]}
    axis = {"field": "axis", "type": "nominal", "sort": None, "scale": places_of, "axis": head}
    at = {"field": "at", "type": "quantitative", "axis": None,
          "scale": {"domain": [-0.03, 1.03] if down else [-0.07, 1.07]}}  # fmt: skip
    x, y = (at, axis) if down else (axis, at)
    scale = palette.shades(highest=highest)
    colour = {"field": "value", "type": "quantitative", "scale": scale, "legend": None}
    tip = [{"field": key, "title": key} for key in ("variant", "axis", "said")]
    along = {"x": x, "y": y, "detail": {"field": "line"}, "order": {"field": "order"}, "tooltip": tip}
    stops = [low + (high - low) * step / STOPS for step in range(STOPS + 1)] if low < high else []
    bar = [at for at in positions(stops, linear=coloured not in logs) if at is not None]
    bar_of = [{**last, "at": at, "to": to, "value": value}
             for value, (at, to) in zip(stops, itertools.pairwise(bar), strict=False)]  # fmt: skip
    lost = [row for row in rows if row["value"] is None]
    known = [row for row in rows if row["value"] is not None]
    others = [of] if (of := [end for end in ends if not end["marked"]]) else []
    return layers(
        [
            mark("rule", [{"axis": title, "at": 0, "to": 1} for title in titles],
                 {"x": x, "y": y, "x2" if down else "y2": {"field": "to"}}, color=palette.grey,
                 strokeWidth=2),
            mark("rule", bar_of, {"x": x, "y": y, "x2" if down else "y2": {"field": "to"}, "color": colour},
                 strokeWidth=8),
            mark("line", [row for row in known if row["line"] not in (*wide, best)], {**along, "color": colour},
                 strokeWidth=1.6),
            None if best is None else mark("line", [row for row in known if row["line"] == best], along,
                                           color=tone[best], strokeWidth=5.5),
            *(
                mark("line", [row for row in known if row["line"] in wide], along, color=ink, strokeWidth=thick)
                for ink, thick in ((palette.ground, 6.5), (palette.ink, 3.5))  # with a rim, as others are dark, too
            ),
            mark("line", lost, along, color=palette.grey, strokeDash=[3, 3]) if lost else None,
            *(
                mark("text", [tick for tick in ticks if _beside(tick, down=down) == place],
                     {"x": x, "y": y, "text": {"field": "text"},
                      **({} if halo else {"color": {"field": "tone", "type": "nominal", "scale": None}})},
                     **dict(place), fontSize=11, **halo)
                for halo in palette.halos
                for place in dict.fromkeys(_beside(tick, down=down) for tick in ticks)
            ),
            *(
                mark("text", of, {"x": x, "y": y, "text": {"field": "text"}}, fontSize=11,
                     **({"align": _align(of[0]["at"]), "dy": 12 + 13 * row} if down
                        else {"align": "left", "dx": 8, "dy": -LINE * of[0]["text"].count("\n")}),
                     **({"fontWeight": "bold", "color": tone.get(of[0]["line"], palette.ink)} if of[0]["marked"]
                        else {}))
                for row, of in enumerate([*others, *([end] for end in ends if end["marked"])])
            ),
        ],
        STEP_DOWN * len(titles) if down else 360 if width >= WIDTH else 300,
    )  # fmt: skip


def _beside(tick: Mapping[str, Any], *, down: bool) -> tuple[tuple[str, Any], ...]:
    """Where a label stands beside its place on an axis: beyond the ends of one that goes up, else on its right."""
    above = -8 - LINE * tick["text"].count("\n")
    weight = "normal" if tick["line"] is None else "bold"
    if down:
        align = _align(tick["at"])
        look = {"align": align, "dx": {"left": 4, "center": 0, "right": -4}[align], "dy": above}
    elif 0 < tick["at"] < 1:
        look = {"align": "left", "dx": 7, "dy": 4 + above // 2}
    else:
        look = {"align": "center", "dy": above if tick["at"] else 16}
    return (*look.items(), ("fontWeight", weight))


def _line_ends(
    drawn: Column,
    column: Column,
    variants: Sequence[str],
    marked: Sequence[int],
    width: float,
    best_as: str,
    *,
    down: bool,
) -> list[dict[str, Any]]:
    """The value of each line and its name, moved apart along its axis.

    Where there are many, and on a narrow page, of the marked ones alone: the best one and `baseline`.
    """
    narrow, places = width < WIDTH, positions(drawn)
    few = len(variants) <= MOST_NAMED and not narrow
    lines = [line for line in range(len(variants)) if (few or line in marked) and places[line] is not None]
    values = with_equal_decimals(_numbers([column[line] for line in lines]))
    short = {line: best_as if at == 0 and len(marked) > 1 else "baseline" for at, line in enumerate(marked)}
    room, gap = int(width / 2 / LETTER) - 8, "\n" if narrow and not down else " "
    names = [variants[line] if few else short[line] for line in lines]
    names = [name if len(name) <= room else f"{name[: room - 1]}…" for name in names]
    moved = spread([places[line] or 0.0 for line in lines], 0.1 if gap == "\n" else 0.04)
    return [
        {"at": at, "line": line, "marked": line in marked, "text": f"{value}{gap}{name}"}
        for at, line, value, name in zip(moved, lines, values, names, strict=True)
    ]


def _ends(drawn: Column, column: Column) -> list[tuple[float, str, None]]:
    """What is written at the ends of an axis, beyond which values may lie."""
    (low, high), known = (min(_numbers(drawn)), max(_numbers(drawn))), _numbers(column)
    ends = f"{'≤ ' * (min(known) < low)}{low:.4g}", f"{'≥ ' * (max(known) > high)}{high:.4g}"
    return [(at, said, None) for at, said in zip((0.0, 1.0), ends, strict=low < high)]


def near_range(column: Column) -> tuple[float, float, bool]:
    """Both ends of what is not far off, and whether values lie beyond: an outlier would make all others alike.

    Outliers are more than three interquartile ranges beyond the quartiles (Tukey 1977).
    """
    values = _numbers(column) or [0.0]
    low, _, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    reach = 3 * (high - low) or math.inf
    ends = max(min(values), low - reach), min(max(values), high + reach)
    return *ends, ends != (min(values), max(values))


def _align(height: float) -> str:
    """Where a label stands at a place of an axis from left to right: within its ends."""
    return "right" if height > 0.9 else "left" if height < 0.1 else "center"


def _numbers(column: Column) -> list[float]:
    return [float(value) for value in column if isinstance(value, int | float) and value == value]


def _words(column: Column) -> list[str]:
    return list(dict.fromkeys(str(value) for value in column if isinstance(value, str)))


def _is_logarithmic(column: Column) -> bool:
    numbers = tuple(sorted(set(_numbers(column))))
    return bool(numbers) and not _words(column) and is_logarithmic(numbers)


def positions(column: Column, *, linear: bool | None = None) -> list[float | None]:
    """The place of each value between 0 and 1; None for a missing value.

    Args:
        linear: Whether not by logarithms; None: where numbers are not better seen so.
    """
    if words := _words(column):
        room = max(1, len(words) - 1)
        return [words.index(value) / room if isinstance(value, str) else None for value in column]
    logarithmic = _is_logarithmic(column) if linear is None else not linear
    scaled = [math.log10(value) for value in _numbers(column)] if logarithmic else _numbers(column)
    low, high = min(scaled, default=0.0), max(scaled, default=1.0)
    width, places = (high - low) or 1.0, iter(scaled)
    return [(next(places) - low) / width if isinstance(v, int | float) and v == v else None for v in column]


def _round_values(low: float, high: float, *, linear: bool) -> list[float]:
    """Round numbers between two others: powers of ten before 2 and 5 times these, or multiples of one step."""
    if not linear:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        rounded = [times * 10.0**power for times in (1, 2, 5) for power in powers]
    else:
        unit = 10.0 ** math.floor(math.log10((high - low) / 4))
        step = next(times * unit for times in (1, 2, 5, 10) if times * unit * 4 >= high - low)
        rounded = [step * place for place in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return [value for value in rounded if low < value < high]


def _ticks(
    column: Column, room: int, apart: float, stand_out: Sequence[int], *, linear: bool
) -> list[tuple[float, str, int | None]]:
    """What is written beside an axis: every word, in lines of `room` letters, or values that are so far `apart`.

    Args:
        stand_out: The places of variants whose values are written before those of others, after both ends.

    Returns:
        Places along the axis, texts, and which variant's value it is if it is that of one that stands out.
    """
    if words := _words(column):
        shown = [wrapped(word.replace("_", " "), room) for word in words]
        return [(place / max(1, len(words) - 1), word, None) for place, word in enumerate(shown)]
    places = positions(column, linear=linear)
    of_lines = {line: (place, value) for line, (place, value) in enumerate(zip(places, column, strict=True))
                if place is not None and isinstance(value, int | float)}  # fmt: skip
    known = sorted(set(of_lines.values()))
    ticks: dict[float, tuple[float, int | None]] = {}
    marked = [(*of_lines[line], line) for line in stand_out if line in of_lines]
    others = [(*of, None) for of in (known[0], known[-1], *(known if len(known) <= FEW else []))] if known else []
    if len(known) > FEW:
        low, high = known[0][1], known[-1][1]
        rounded = _round_values(low, high, linear=linear)
        at = positions([low, high, *rounded], linear=linear)[2:]
        others += [(place, value, None) for place, value in zip(at, rounded, strict=True) if place is not None]
    for place, value, line in (*others[:2], *marked, *others[2:]):
        if all(abs(place - other) > apart for other in ticks):
            ticks[place] = value, line
    return [
        (at, count(round(value)) if value >= 10_000 else f"{value:.3g}", line)
        for at, (value, line) in sorted(ticks.items())
    ]


FIGURES = {
    "scaling": lambda findings, palette, width: draw_scaling(findings.report, palette, width),
    "slices": lambda findings, palette, width: slice_panels(findings.slices, {}, palette, width),
    "insides": lambda findings, palette, width: slice_panels(
        findings.depths, palette.variants(findings.report.record), palette, width
    ),
}


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
    if axis == COMPUTE:
        return f"{scaled(at)}FLOP"
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


def insides_section(findings: Findings, pictures: Mapping[str, Picture]) -> Section | None:
    """What the models' insides are over their depth."""
    return Section("Insides over depth", (pictures["insides"],)) if "insides" in pictures else None


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
        if axis_slice.trained is not None:
            said += f" Every variant was trained at {axis_slice.trained:g}."
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
