"""Figures along axes: differences along budgets or a sweep, slices of the objective, and all axes in parallel."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from ablate.analysis.factors import is_logarithmic
from ablate.analysis.findings import Findings
from ablate.analysis.judging import worst_margin
from ablate.analysis.numbers import count
from ablate.analysis.slices import Slice, SliceLine
from ablate.analysis.text import plural
from ablate.render.blocks import Picture
from ablate.render.figures.style import (
    PANEL_NAME,
    WIDTH,
    Look,
    Palette,
    Spec,
    alike,
    by_look,
    layers,
    margin_marks,
    mark,
    number,
    panels,
    wrapped,
)
from ablate.spec.fairness import BUDGET

MOST_PANELS = 24
"""Variants beyond this number are not drawn along budgets or a sweep."""
MOST_LINES = 12
"""Lines of a slice; further ones are in the table only."""
SCATTERED = "variants"
Column = Sequence[str | float | None]
"""What the variants have on an axis: words, or numbers."""
APART = 0.08
"""Least distance of two values that are written beside a numeric axis among parallel ones, of the whole axis."""


def pictures(findings: Findings) -> Iterator[Picture]:
    """The figures of a study with budgets, a sweep or another numeric axis."""
    scalings, metric = findings.report.scaling, findings.report.metric
    if scalings is not None:
        hidden = len(scalings.of) - MOST_PANELS
        rest = f" Left out: {plural(hidden, 'further variant')}." if hidden > 0 else ""
        yield Picture(
            "scaling",
            f"Difference of {metric} from the baseline at each {scalings.axis}, paired by seed, with its 95 % "
            f"interval; a mark is the verdict there, dashed the margin {findings.report.margin:g}.{rest}",
        )
    if findings.slices:
        along = " and ".join(axis_slice.axis for axis_slice in findings.slices)
        hidden = sum(max(0, len(one.lines) - MOST_LINES) for one in findings.slices if not one.scattered)
        rest = f" {hidden} further lines are left out." if hidden > 0 else ""
        yield Picture("slices", f"{metric} along {along}: means with 95 % intervals over seeds.{rest}")


def scaling(findings: Findings, palette: Palette) -> Spec:
    """A panel for each variant, all with the same axes."""
    report, scalings = findings.report, findings.report.scaling
    assert scalings is not None
    shown = [(one, point) for one in scalings.of[:MOST_PANELS] for point in one.points]
    labels = alike(point.verdict.word for _, point in shown)
    rows = [
        {"panel": wrapped(one.variant, PANEL_NAME), "at": point.at, "difference": point.difference.difference,
         "low": point.difference.low, "high": point.difference.high, "word": labels[point.verdict.word]}
        for one, point in shown if point.difference.difference is not None
    ]  # fmt: skip
    along = "budget: steps over those of the space" if scalings.axis == BUDGET else scalings.axis
    x = number("at", along, log=True, base=2, axis={"values": [*scalings.places], "format": "~g"})
    y = number("difference", f"difference of {report.metric}")
    looks = palette.verdicts(labels)
    return panels(
        [
            *margin_marks(worst_margin(report.margin, report.direction), "y")[:2],
            mark("line", None, {"x": x, "y": y}, color=palette.grey, strokeWidth=1),
            mark("rule", None, {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"},
                                **by_look("word", looks, "color")}, strokeWidth=1.3),
            mark("point", None, {"x": x, "y": y, **by_look("word", looks, "color", "shape")}, size=45),
        ],
        rows,
    )  # fmt: skip


def slices(findings: Findings, palette: Palette) -> Spec:
    """A panel for each axis."""
    drawn = [draw_slice(one, {}, palette) for one in findings.slices]
    if len(drawn) == 1:
        return drawn[0]
    half = {"width": (WIDTH - 130) / 2, "height": 200}
    return {
        "concat": [{key: part for key, part in one.items() if key != "autosize"} | half for one in drawn],
        "columns": 2,
        "resolve": {"scale": {"color": "independent", "shape": "independent", "strokeDash": "independent"}},
    }


def draw_slice(axis_slice: Slice, looks: Mapping[str, Look], palette: Palette) -> Spec:
    """The objective with its intervals along an axis, with a line for each group of variants that differ only in it.

    Args:
        axis_slice: The slice.
        looks: By name of a line, where it is that of a variant.
        palette: Of the figure.
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
    x = number("at", axis_slice.axis, log=axis_slice.logarithmic, axis=ticks,
               **({"base": 2} if axis_slice.logarithmic and doubles else {}))  # fmt: skip
    better = "lower" if axis_slice.direction == "minimize" else "higher"
    y = number("mean", f"{axis_slice.metric} ({better} is better)")
    tip = [{"field": key, "title": key} for key in ("variant", "at", "mean", "low", "high", "diverged")]
    lost = [row for row in rows if row["diverged"]]
    many = len(drawn) > 1
    return layers(
        [
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


def draw_parallel(columns: Mapping[str, Column], coloured: str, palette: Palette, variants: Sequence[str] = ()) -> Spec:
    """Parallel coordinates: an axis for each switch and quantity, a line through them for each variant.

    Args:
        columns: Name of an axis to a value for each variant; words are in order of first occurrence.
        coloured: The axis, of numbers, whose values colour the lines; a line that has none is dashed, in grey, and
            does not reach this axis.
        palette: Of the figure.
        variants: Their names, shown where the pointer is.
    """
    titles = [wrapped(name, 14) for name in columns]
    places = {title: _places(column) for title, column in zip(titles, columns.values(), strict=True)}
    rows = [
        {"line": line, "axis": title, "at": at, "value": columns[coloured][line],
         "variant": variants[line] if variants else "", "said": str(column[line])}
        for (title, heights), column in zip(places.items(), columns.values(), strict=True)
        for line, at in enumerate(heights) if at is not None
    ]  # fmt: skip
    ticks = [
        {"axis": title, "at": height, "text": text}
        for title, column in zip(titles, columns.values(), strict=True)
        for height, text in _ticks(column)
    ]
    head = {"grid": False, "title": None, "domain": False, "ticks": False, "labelAngle": 0, "orient": "top"}
    x = {"field": "axis", "type": "nominal", "sort": None, "scale": {"domain": titles, "padding": 0.2}, "axis": head}
    y = {"field": "at", "type": "quantitative", "axis": None, "scale": {"domain": [-0.03, 1.03]}}
    scheme = {"scheme": {"name": "cividis", "extent": [0.35, 1] if palette.dark else [0, 0.8]}}
    colour = {"field": "value", "type": "quantitative", "scale": scheme, "legend": {"title": coloured}}
    tip = [{"field": key, "title": key} for key in ("variant", "axis", "said")]
    known, lost = ([row for row in rows if (row["value"] is not None) == wanted] for wanted in (True, False))
    return layers(
        [
            mark("rule", [{"axis": title} for title in titles], {"x": x}, color=palette.grey),
            mark("line", known, {"x": x, "y": y, "detail": {"field": "line"}, "color": colour, "tooltip": tip},
                 opacity=0.8, strokeWidth=1.4),
            mark("line", lost, {"x": x, "y": y, "detail": {"field": "line"}, "tooltip": tip}, color=palette.grey,
                 strokeDash=[3, 3], opacity=0.8) if lost else None,
            mark("text", ticks, {"x": x, "y": y, "text": {"field": "text"}}, align="left", dx=5, fontSize=10),
        ],
        360,
    )  # fmt: skip


def _numbers(column: Column) -> list[float]:
    return [float(value) for value in column if isinstance(value, int | float) and value == value]


def _words(column: Column) -> list[str]:
    return list(dict.fromkeys(str(value) for value in column if isinstance(value, str)))


def _scale(column: Column) -> list[float]:
    """Its numbers, or their logarithms where they are better seen so."""
    numbers = _numbers(column)
    return [math.log10(value) for value in numbers] if is_logarithmic(tuple(sorted(set(numbers)))) else numbers


def _places(column: Column) -> list[float | None]:
    """The place of each value between 0 and 1; None for a missing value."""
    if words := _words(column):
        room = max(1, len(words) - 1)
        return [words.index(value) / room if isinstance(value, str) else None for value in column]
    scaled = iter(_scale(column))
    low, high = min(_scale(column), default=0.0), max(_scale(column), default=1.0)
    width = (high - low) or 1.0
    return [(next(scaled) - low) / width if isinstance(v, int | float) and v == v else None for v in column]


def _ticks(column: Column) -> list[tuple[float, str]]:
    """What is written beside an axis: every word, or some of the values."""
    if words := _words(column):
        return [(place / max(1, len(words) - 1), wrapped(word, 16)) for place, word in enumerate(words)]
    values = zip(column, _places(column), strict=True)
    known = sorted((value, place) for value, place in values if isinstance(value, int | float) and place is not None)
    ticks: list[tuple[float, str]] = []
    for value, place in known:
        if not ticks or place - ticks[-1][0] > APART:
            ticks.append((place, count(round(value)) if value >= 10_000 else f"{value:.4g}"))
    return ticks


FIGURES = {"scaling": scaling, "slices": slices}
