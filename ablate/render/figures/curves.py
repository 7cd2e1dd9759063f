"""Curves: bands over seeds against the cost of training, chosen ones in one panel or each variant in its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from statistics import quantiles
from typing import Any

from ablate.analysis.answer_rows import GroupKey
from ablate.analysis.columns import groups
from ablate.analysis.course import course_cell, course_limits
from ablate.analysis.curves import Axis, Band, band, band_at, heights, line
from ablate.analysis.findings import Findings
from ablate.analysis.judging import worst_margin
from ablate.analysis.numbers import measured, plural
from ablate.analysis.report import StudyReport
from ablate.analysis.rows import VariantRow
from ablate.analysis.times import seconds_at
from ablate.render.blocks import Picture
from ablate.render.figures.style import (
    DRAWN_AS,
    FONT,
    PANEL_NAME,
    WIDTH,
    Look,
    Palette,
    Spec,
    alike,
    by_look,
    character,
    far_off,
    layers,
    margin_marks,
    mark,
    number,
    omission,
    panels,
    spread,
    themed,
    with_equal_decimals,
    wrapped,
)

LEAST_BANDS = 4
"""Bands from which on an outlier can be told."""
MOST_ENDS = 12
"""Lines of one panel up to which their ends are labelled."""
MOST_PANELS = 40
"""Variants beyond this number are not drawn."""
LATE, LEAST_LATE = 0.4, 4
"""Share of the training after which panels of one variant begin, and points that must be left."""
PANEL_HEIGHT = 190
OTHER_AXIS = "own axis"
"""What a panel says whose vertical axis is not that of the others."""
GAP = 0.03
"""Share of the height of a panel between the parts of a broken axis."""
NAME = 34
"""Characters of a name on one line of a legend."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """What a learning curve is drawn against."""

    of: Axis
    label: str
    words: str
    timed: bool = False
    large: bool = False


LARGE: Spec = {"format": "~s", "labelExpr": "datum.value ? datum.label : '0'"}
"""The ticks of an axis of large numbers, such as 250G."""
AXES = {
    "loss_steps": _Axis("steps", "steps", "optimizer steps"),
    "loss_seconds": _Axis("tokens", "seconds of training", "seconds of training, as timed side by side", timed=True),
    "loss_flops": _Axis("flops", "FLOP", "training FLOP", large=True),
}


def pictures(findings: Findings) -> tuple[Picture, ...]:
    """The course of the comparisons, and the curves of a study whose baseline has one."""
    return (*_course_picture(findings), *_curve_pictures(findings))


def _curve_pictures(findings: Findings) -> Iterable[Picture]:
    shown, hidden = _panels(findings)
    rest = f" Left out: {plural(hidden, 'further variant')}." if hidden else ""
    titles = findings.report.titles
    if lost := [titles[row.name] for row in findings.report.variants if row.diverged and not row.finished]:
        rest += f" No seed finished, and so there is no curve, of {', '.join(lost)}."
    drawn = [findings.report.baseline, *shown]
    for name, axis in AXES.items():
        if axis.timed and not all(measured(row.relative_speed) for row in drawn):
            continue
        if shown and max(x for row in shown for x in _mean_curve(findings, row.name, axis).x) > 0:
            yield Picture(
                name,
                f"Validation loss against {axis.words}: the mean over the finished seeds, in a band from the "
                f"lowest to the highest; the baseline dashed.{rest}",
            )


def _panels(findings: Findings) -> tuple[list[VariantRow], int]:
    """The variants whose curves are drawn, and how many more there are; none unless the baseline has a curve."""
    steps = AXES["loss_steps"]
    rows = [row for group in groups(findings.report) for row in group if _mean_curve(findings, row.name, steps).x]
    if findings.report.baseline not in rows:
        return [], 0
    variants = [row for row in rows if row is not findings.report.baseline] or [findings.report.baseline]
    return variants[:MOST_PANELS], max(0, len(variants) - MOST_PANELS)


def _mean_curve(findings: Findings, variant: str, axis: _Axis) -> Band:
    """The curves of a variant in one band; over seconds by its timed rate, as the clocks of trials say nothing."""
    runs = findings.runs[variant]
    lines = [line(findings.curves.get(trial.key, ()), axis.of) for trial in runs.finished.values()]
    return band([replace(one, x=seconds_at(one.x, runs.rates)) for one in lines] if axis.timed else lines)


def loss_panels(findings: Findings, palette: Palette, width: float, axis: _Axis) -> Spec:
    """A panel for each variant with its band and, dashed, that of the baseline; all with the same axes."""
    shown, _ = _panels(findings)
    baseline = _mean_curve(findings, findings.report.baseline.name, axis)
    bands = [_mean_curve(findings, row.name, axis) for row in shown]
    looks = {"baseline": palette.baseline(4), "variant": palette.look(0)}
    domain = 0, max((x for one in [baseline, *bands] for x in one.x), default=1.0)
    x = number("x", axis.label, domain=domain, axis={"tickCount": 4, **(LARGE if axis.large else {})})
    y = number("mean", "validation loss", domain=heights([baseline, *bands]) or (0, 1))
    rows, titles = list[Spec](), findings.report.titles
    for row, one in zip(shown, bands, strict=True):
        diverged = f"\n{len(row.diverged)} of {plural(len(row.planned), 'seed')} diverged" if row.diverged else ""
        panel = titles[row.name] + diverged
        rows += [*_points("baseline", baseline, {"panel": panel}), *_points("variant", one, {"panel": panel})]
    return panels(_band_marks(None, {"x": x, "y": y}, looks, legend=False), rows, width=width)


def beside_baseline(findings: Findings, variant: str, palette: Palette) -> Spec | None:
    """The curves of the baseline and of one variant in one small panel; None where one of them has none."""
    names, titles = (findings.report.baseline.name, variant), findings.report.titles
    bands = {titles[name]: _mean_curve(findings, name, AXES["loss_steps"]) for name in names}
    if len(bands) < len(names) or not all(one.mean for one in bands.values()):
        return None
    looks = dict(zip(bands, (palette.baseline(), palette.look(0)), strict=True))
    return themed(draw_bands(bands, looks, palette, ("steps", "validation loss"), height=215) | {"width": 420}, palette)


def late(bands: Mapping[str, Band]) -> dict[str, Band]:
    """The later part of each curve, in which variants differ by more than a line's width; short ones are whole."""
    begin = LATE * max((band.x[-1] for band in bands.values() if band.x), default=0.0)

    def cut(band: Band) -> Band:
        at = next((place for place, x in enumerate(band.x) if x >= begin), 0)
        return Band(band.x[at:], band.mean[at:], band.low[at:], band.high[at:], band.n)

    found = {name: cut(band) for name, band in bands.items()}
    return found if all(len(band.x) >= LEAST_LATE for band in found.values()) else dict(bands)


def what_is_cut(bands: Iterable[Band]) -> str:
    """That the fall of these curves reaches beyond the `heights` of their figure, in a sentence; empty if none does."""
    drawn = [band for band in bands if band.mean]
    limits = heights(drawn)
    if limits is None or all(max(band.high) <= limits[1] for band in drawn):
        return ""
    return "The steep first fall is cut off."


def where_panels_begin(bands: Mapping[str, Band]) -> str:
    """What `band_panels` leaves out of these curves, in a sentence; empty if it shows all."""
    shown = late(bands)
    begin = min((band.x[0] for band in shown.values() if band.x), default=0.0)
    if all(band.x[0] >= begin for band in bands.values() if band.x):
        return what_is_cut(bands.values())
    end = max(band.x[-1] for band in shown.values())
    return f"Panels begin at {begin:,.4g} of {end:,.4g}: the steep start would flatten what differs later."


def band_panels(
    bands: Mapping[str, Band],
    baselines: Mapping[str, str],
    palette: Palette,
    titles: tuple[str, str],
    *,
    verdicts: Mapping[str, GroupKey],
    bounds: Mapping[str, str],
    margin: float | None = None,
    width: float = WIDTH,
) -> Spec:
    """A panel for the later part of each band beside that of its baseline, which is dashed.

    The title of a panel tells the verdict on the model that it draws (`worse`, where it lacks a part that must stay),
    whose colour the line has, where the line ends, and the bound behind the verdict. All have the same axes but
    outliers (`outliers`), which would squeeze the others; their panels say so.

    Args:
        bands: By name, those of baselines among them.
        baselines: Name of a band to that of the band that it is shown beside.
        titles: What the horizontal and the vertical axis show.
        verdicts: Name of a band to the group of an answer that it is in, as far as there is one.
        bounds: Name of a band to its difference from the baseline or the bound on that, likewise.
        margin: The difference of a variant that is worse by the margin, dashed beside the baseline; None: not drawn.
        width: Of the figure in pixels.
    """
    bands = late(bands)
    shown = {name: band for name, band in bands.items() if name not in baselines.values()} or dict(bands)
    cut = outliers(bands)
    common = heights(band for name, band in bands.items() if name not in cut) or (0, 1)
    across = min(band.x[0] for band in shown.values()), max(band.x[-1] for band in shown.values())
    narrow = width < WIDTH
    columns = min(2 if narrow else 3, len(shown)) or 1
    heads = {name: wrapped(name, PANEL_NAME if narrow else 2 * PANEL_NAME).split("\n") for name in shown}
    lines = max(map(len, heads.values()))
    ends = with_equal_decimals([own.mean[-1] for own in shown.values()])
    parts = []
    for place, (name, own) in enumerate(shown.items()):
        word, bound, beside = verdicts.get(name), bounds.get(name), bands.get(baselines.get(name, ""))
        look = palette.verdict(DRAWN_AS[word]) if word else palette.look(0)
        limits = common if name not in cut else heights([own, *([] if beside is None else [beside])]) or (0, 1)
        rows = [] if beside is None else _points("baseline", beside, {})
        rows += _points("variant", own, {})
        dotted = [] if beside is None or margin is None else [
            {"x": x, "mean": mean + margin} for x, mean in zip(beside.x, beside.mean, strict=True)
        ]  # fmt: skip
        told = " · ".join(filter(None, (word, OTHER_AXIS * (name in cut))))
        said = " · ".join(filter(None, (ends[place], f"Δ {bound}" if bound else "")))
        below = [*filter(None, [told, said])] if narrow else [" · ".join(filter(None, [told, said]))]
        first, last = place % columns == 0, place + columns >= len(shown)
        x = number("x", titles[0] if last else None, domain=across, axis={"tickCount": 4})
        y = number("mean", titles[1] if first else None, domain=limits, axis={"tickCount": 4})
        looks = {"baseline": palette.baseline(4), "variant": look}
        found = {of: one for of, one in looks.items() if any(row["name"] == of for row in rows)}
        title = {"text": [*[""] * (lines - len(heads[name])), *heads[name]], "subtitle": below, "anchor": "start",
                 "frame": "group", "font": FONT, "subtitleFont": FONT, "subtitleColor": look.colour,
                 "subtitleFontWeight": "bold", "subtitleFontSize": 11}  # fmt: skip
        parts.append(
            {"title": title, "data": {"values": rows}, "width": width / columns - (40 if narrow else 32),
             "height": (0.8 if narrow else 1) * PANEL_HEIGHT,
             "layer": [*_band_marks(None, {"x": x, "y": y}, found, legend=False),
                       *([mark("line", dotted, {"x": x, "y": y}, strokeDash=[4, 3], strokeWidth=1.6,
                               color=palette.grey, clip=True)] if dotted else []),
                       *(mark("text", [row | {"said": f"margin {abs(margin or 0):g}"} for row in dotted[-1:]],
                              {"x": x, "y": y, "text": {"field": "said"}}, align="right", baseline="top", dy=5, **halo)
                         for halo in palette.halos if not place)]}
        )  # fmt: skip
    apart = {"color": "independent", "strokeDash": "independent"}
    return {"concat": parts, "columns": columns, "resolve": {"scale": apart}}


def outliers(bands: Mapping[str, Band]) -> list[str]:
    """The bands that end far from the others and beyond what these need of the vertical axis.

    Far is more than three interquartile ranges beyond the quartiles of all ends (Tukey 1977).
    """
    ends = {name: band.mean[-1] for name, band in bands.items() if band.mean}
    if len(ends) < LEAST_BANDS:
        return []
    low, _, high = quantiles(ends.values(), n=4, method="inclusive")
    reach = 3 * (high - low)
    far = [name for name, end in ends.items() if not low - reach <= end <= high + reach]
    bottom, top = heights(band for name, band in bands.items() if name not in far) or (-math.inf, math.inf)
    return [name for name in far if not bottom <= ends[name] <= top]


def draw_bands(
    bands: Mapping[str, Band],
    looks: Mapping[str, Look],
    palette: Palette,
    titles: tuple[str, str],
    *,
    height: float = 380,
    whole: bool = False,
    stepped: bool = False,
    logs: tuple[bool, bool] = (False, False),
    named: bool = False,
    at: float | None = None,
    far: Collection[str] = (),
    singles: Sequence[Mapping[str, Any]] = (),
    picks: Mapping[str, Mapping[str, Any]] | None = None,
) -> Spec:
    """Chosen bands in one panel, told apart by colour, dash and mark.

    Args:
        bands: By name.
        titles: What the horizontal and the vertical axis show.
        height: Of the panel in pixels.
        whole: Whether the vertical axis begins at zero and shows all; else the fall from an initial loss is cut off.
        stepped: Whether a line keeps its height until its next point, as a count does.
        logs: Whether the two axes are logarithmic.
        named: Whether lines end in their names, if they are few, instead of a legend.
        at: The last place that all lines reach, the values at which are written there; None: those at the ends.
        far: Bands that end far from the others: the vertical axis leaves out what lies between.
        singles: Points of single trials: `name`, `trial` (one line through those of a trial, `wide` or not), `x`,
            `mean`, `state` and whatever a click is to give.
        picks: By name of a band, what a click on a point of it is to give; None: a click does nothing.
    """
    limits: tuple[float, float] | None = None
    axis = list[tuple[float, float]]()
    if whole:
        limits = (0.0, 1.05 * max((high for band in bands.values() for high in band.high), default=1.0) or 1.0)
    elif not logs[1]:
        limits = heights(one for name, one in bands.items() if name not in far)
        axis = _broken(limits, [bands[name].mean[-1] for name in far])
        limits = (limits if axis else heights(bands.values())) or heights(_bands_of(singles))
    lines = {name: wrapped(name, NAME) for name in (*bands, *(str(row["name"]) for row in singles))}
    highest = sorted(lines, key=lambda name: -bands[name].mean[-1] if name in bands else math.inf)
    shown = {lines[name]: looks[name] for name in highest}
    begins = (
        {} if limits is None or logs[0] or singles else {"domain": _across(bands.values(), (axis or [limits])[-1][1])}
    )
    x, y = number("x", titles[0], log=logs[0], **begins), number("mean", titles[1], log=logs[1], domain=limits)
    rows = [
        row for name, one in bands.items() for row in _points(lines[name], one, (picks or {}).get(name, {}), n=one.n)
    ]
    alone = [{**row, "name": lines[str(row["name"])]} for row in singles]
    named = named and limits is not None and len(bands) <= MOST_ENDS
    parts = [*_band_marks(rows, {"x": x, "y": y}, shown, legend=not named, symbolStrokeWidth=0)]  # of dashes
    if stepped:
        parts = [mark("line", rows, parts[1]["encoding"], strokeWidth=1.8, interpolate="step-after")]
    target = len(parts) - 1
    if limits is not None and len(bands) <= MOST_ENDS:
        gap = 14 * sum(to - begin for begin, to in axis or [limits]) / height
        if at is not None:
            parts += _values_at(bands, at, x, y, gap, palette)
        if at is None or named:
            ends_of = _ends(bands, x, y, gap, looks, valued=at is None, named=named)
            parts[1:1] = ends_of
            target += len(ends_of)
    if alone:
        tone = by_look("name", shown, "color")
        tip = [{"field": key, "title": key} for key in ("trial", "x", "mean")]
        ends = {"condition": {"test": "datum.end", "value": 70}, "value": 9}
        width = {"condition": {"test": "datum.wide", "value": 3}, "value": 1.5}
        parts.append(mark("line", alone, {"x": x, "y": y, "detail": {"field": "trial"}, "strokeWidth": width, **tone},
                          clip=True))  # fmt: skip
        cross = palette.verdict("diverged").mark
        shape = {"condition": {"test": "datum.end", "value": cross}, "value": "circle"}
        parts.append(
            mark("point", alone, {"x": x, "y": y, **tone, "size": ends, "shape": shape, "tooltip": tip}, clip=True)
        )
        target = len(parts) - 1
    if picks is not None:
        fields = sorted({field for pick in (*picks.values(), *singles) for field in pick} & {"variant", "seed", "key"})
        parts[target]["params"] = [{"name": "picked", "select": {"type": "point", "fields": fields}}]
        zoom = {"type": "interval", "zoom": "wheel![event.shiftKey]"}
        parts[0]["params"] = [{"name": "zoom", "select": zoom, "bind": "scales"}]
    return layers([*parts, *(_break(y, axis, height, palette) if axis else [])], height)


def _across(bands: Iterable[Band], top: float) -> tuple[float, float]:
    """Where the horizontal axis begins and ends: without what lies wholly above the vertical one, and with whole marks.

    Args:
        top: Of the vertical axis.
    """
    drawn = [one for one in bands if one.x]
    cut = (max((x for x, low in zip(one.x, one.low, strict=True) if low > top), default=0.0) for one in drawn)
    begin, end = min(cut, default=0.0), max((one.x[-1] for one in drawn), default=1.0)
    return begin, end + 0.012 * (end - begin)


def _broken(limits: tuple[float, float] | None, ends: Sequence[float]) -> list[tuple[float, float]]:
    """The two parts of an axis that leaves out what lies between its limits and ends far beyond; empty without any."""
    if limits is None or not ends:
        return []
    room = 0.15 * (limits[1] - limits[0])
    parts = sorted([limits, (min(ends) - room, max(ends) + room)])
    return parts if parts[0][1] < parts[1][0] else []


def _break(y: Spec, axis: Sequence[tuple[float, float]], height: float, palette: Palette) -> list[Spec]:
    """Make the channel leave out what lies between the two parts of an axis, and draw where it does."""
    spans = [high - low for low, high in axis]
    edge = 1 - (1 - GAP) * spans[0] / sum(spans)
    y["scale"] |= {"domain": [*chain(*axis)], "range": [height * at for at in (1, edge, edge - GAP, 0)]}
    y["axis"]["values"] = [*chain.from_iterable(_ticks(*part, max(spans)) for part in axis)]
    return [mark("rule", [{}], {"y": {"datum": at}}, strokeDash=[2, 4], color=palette.grey)
            for at in (axis[0][1], axis[1][0])]  # fmt: skip


def _ticks(low: float, high: float, span: float) -> list[float]:
    """The places of ticks in a part of an axis, of which a span has about eight."""
    rough = 10 ** math.floor(math.log10(span / 8))
    step = next(times * rough for times in (1, 2, 5, 10) if times * rough >= span / 8)
    return [round(place * step, 12) for place in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _bands_of(singles: Sequence[Mapping[str, Any]]) -> list[Band]:
    """The line of each single trial as a band."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in singles:
        lines.setdefault(row["trial"], []).append((row["x"], row["mean"]))
    drawn = [tuple(zip(*points, strict=True)) for points in lines.values()]
    return [Band(x, mean, mean, mean, 1) for x, mean in drawn]


def _ends(
    bands: Mapping[str, Band], x: Spec, y: Spec, gap: float, looks: Mapping[str, Look], *, valued: bool, named: bool
) -> list[Spec]:
    """What stands beside the end of each line in its colour: its mark, its value and its name, as far as wanted."""
    drawn = {name: one for name, one in bands.items() if one.mean}
    places = spread([one.mean[-1] for one in drawn.values()], gap)
    values = with_equal_decimals([one.mean[-1] for one in drawn.values()])
    return [
        mark("text", [{"x": one.x[-1], "mean": place, "end": " ".join(told)}],
             {"x": x, "y": y, "text": {"field": "end"}}, align="left", dx=7, color=looks[name].colour)
        for (name, one), place, value in zip(drawn.items(), places, values, strict=True)
        for told in [[character(looks[name]), *[value] * valued, *[name] * named]]
    ]  # fmt: skip


def _values_at(bands: Mapping[str, Band], at: float, x: Spec, y: Spec, gap: float, palette: Palette) -> Iterable[Spec]:
    """A dashed line where the curves are compared, and the value of each there."""
    there = [found[0] for one in bands.values() if (found := band_at(one, at)) is not None]
    rows = [
        {"x": at, "mean": place, "end": value}
        for place, value in zip(spread(there, gap), with_equal_decimals(there), strict=True)
    ]
    yield mark("rule", [{}], {"x": {"datum": at}}, strokeDash=[4, 3])
    for halo in palette.halos:
        yield mark("text", rows, {"x": x, "y": y, "text": {"field": "end"}}, align="right", dx=-7, **halo)


def _points(name: str, one: Band, more: Mapping[str, Any], n: int | None = None) -> list[Spec]:
    said = {} if n is None else {"trials": n}
    values = zip(one.x, one.mean, one.low, one.high, strict=True)
    return [
        {"name": name, "x": x, "mean": mean, "low": low, "high": high, **said, **more} for x, mean, low, high in values
    ]


def _band_marks(
    rows: list[Spec] | None, channels: Spec, looks: Mapping[str, Look], legend: bool = True, **more: Any
) -> list[Spec]:
    """Layers that draw the rows of `_points`; of None, the data of the panel that they are in.

    Args:
        more: Of the legend.
    """
    tone = by_look("name", looks, "color", legend=legend, **more)
    dashed = by_look("name", looks, "color", "strokeDash", legend=legend, **more)
    marked = by_look("name", looks, "color", "shape", "strokeDash", legend=legend, **more)
    x, y = channels["x"], channels["y"]
    tip = [{"field": key, "title": key} for key in ("name", "x", "mean", "trials")]
    parts = [
        mark(
            "area", rows, {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, **tone}, opacity=0.2, clip=True
        ),
        mark("line", rows, {"x": x, "y": y, **dashed}, strokeWidth=1.8, clip=True),
    ]
    if rows is not None:
        thin = max(1, len(rows) // (24 * len(looks) or 1))
        parts.append(mark("point", rows[::thin], {"x": x, "y": y, **marked, "tooltip": tip}, size=34, clip=True))
    return parts


def rows_with_course(report: StudyReport) -> list[VariantRow]:
    """The variants whose comparison has a course, in the order of the table."""
    return [row for group in groups(report) for row in group if row.course is not None]


def _far(rows: Sequence[VariantRow], margin: float) -> list[str]:
    """The variants whose course ends far off those of the others."""
    return far_off({row.name: [row.course.points[-1].difference] for row in rows if row.course is not None}, margin)


def _course_picture(findings: Findings) -> tuple[Picture, ...]:
    report, rows = findings.report, rows_with_course(findings.report)
    if not rows:
        return ()
    far = _far(rows, report.margin)
    worse = "up" if report.direction == "minimize" else "down"
    rest = omission([report.titles[name] for name in far], len(rows) - len(far) - MOST_PANELS)
    decayed = any(row.course is not None and row.course.comparable is False for row in rows)
    decay = " The learning rate decays, so earlier points do not stand for shorter training runs." if decayed else ""
    return (
        Picture(
            "course",
            f"Difference of {report.metric} from the baseline at each evaluation, paired by seed, with its 95 % "
            f"interval ({worse} is worse; dashed: the margin {report.margin:g}). A mark is the verdict that the study "
            f"would have had there; shaded is the last third, whose movement the title names.{decay}{rest}",
        ),
    )


def course_panels(report: StudyReport, palette: Palette, width: float = WIDTH) -> Spec:
    """A panel for each variant with the verdicts that it would have had, all with the same axes."""
    rows_of_all = rows_with_course(report)
    far = _far(rows_of_all, report.margin)
    shown = [row for row in rows_of_all if row.name not in far][:MOST_PANELS]
    margin = worst_margin(report.margin, report.direction)
    courses = [row.course for row in shown if row.course is not None]
    labels = alike(point.word for course in courses for point in course.points)
    rows, titles = list[Spec](), report.titles
    for row, course in zip(shown, courses, strict=True):
        end = course.points[-1].step
        for point in course.points:
            rows.append(
                {
                    "panel": f"{titles[row.name]}\n{course_cell(course)}",
                    "step": point.step, "difference": point.difference, "word": labels[point.word],
                    "low": point.difference if point.low is None else point.low,
                    "high": point.difference if point.high is None else point.high,
                    "third": end * 2 / 3 if point.step == end else None,
                }
            )  # fmt: skip
    x = number("step", "steps", domain=(0, max((row["step"] for row in rows), default=1)), axis={"tickCount": 4})
    y = number("difference", f"difference of {report.metric}", domain=course_limits(courses, margin))
    blue, looks = palette.look(0).colour, by_look("word", palette.verdicts(labels), "color", "shape")
    last = mark("rect", None, {"x": {**x, "field": "third"}, "x2": {"field": "step"}}, color=palette.faint)
    return panels(
        [
            last | {"transform": [{"filter": "datum.third != null"}]},
            *margin_marks(margin, "y")[:2],
            mark("area", None, {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}}, color=blue, opacity=0.25,
                 clip=True),
            mark("line", None, {"x": x, "y": y}, color=blue, strokeWidth=1.6, clip=True),
            mark("point", None, {"x": x, "y": y, **looks}, size=34, clip=True),
        ],
        rows, width=width,
    )  # fmt: skip


FIGURES: dict[str, Callable[[Findings, Palette, float], Spec]] = {
    "course": lambda findings, palette, width: course_panels(findings.report, palette, width),
    **{name: partial(loss_panels, axis=axis) for name, axis in AXES.items()},
}
