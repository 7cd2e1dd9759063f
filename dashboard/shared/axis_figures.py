"""Figures along axes: a slice of a study along a numeric axis, and all axes at once in parallel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd
import plotly.graph_objects as go

from ablate.analysis.factors import is_logarithmic, place
from ablate.analysis.numbers import count
from ablate.analysis.runs import VariantRuns
from ablate.analysis.slices import Slice, SliceLine
from ablate.store import StudyRecord
from shared.charts import figure, ink, scale
from shared.colours import dark, look, variant_looks
from shared.text import for_plotly
from shared.trials import MEMBERSHIP

MOST_LINES = 12
"""Lines of a slice; further ones are in the table only."""
SCATTERED = "variants"
MOST_TICKS = 8
"""Values that are written beside a numeric axis of the parallel coordinates."""


def draw_slice(axis_slice: Slice, record: StudyRecord) -> go.Figure:
    """The objective with its intervals along an axis, with a line for each group of variants that differ only in it."""
    made = figure(460)
    looks = variant_looks(record)
    lines = axis_slice.lines[:MOST_LINES]
    if axis_slice.scattered:
        points = sorted((point for line in axis_slice.lines for point in line.points), key=lambda point: point.at)
        lines = (SliceLine(SCATTERED, tuple(points)),)
    for index, line in enumerate(lines):
        drawn = looks.get(line.name) or look(index)
        means = [point.objective.mean for point in line.points]
        made.add_scatter(
            x=[point.at for point in line.points], y=means, name=for_plotly(line.name),
            mode="markers" if axis_slice.scattered else "lines+markers",
            line={"color": drawn.colour, "dash": drawn.dash}, marker={"symbol": drawn.mark, "size": 8,
                                                                     "color": drawn.colour},
            error_y={
                "type": "data", "symmetric": False, "thickness": 1.2, "width": 3,
                "array": [_above(point.objective.high, mean) for point, mean in zip(line.points, means, strict=True)],
                "arrayminus": [
                    _above(mean, point.objective.low) for point, mean in zip(line.points, means, strict=True)
                ],
            },
            customdata=[for_plotly(point.variant) for point in line.points],
            hovertemplate=f"%{{customdata}}<br>{for_plotly(axis_slice.axis)} %{{x}}<br>%{{y:.4f}}<extra></extra>",
        )  # fmt: skip
        lost = [point for point in line.points if point.diverged]
        if lost:
            made.add_scatter(
                x=[point.at for point in lost], y=[point.objective.mean for point in lost], mode="markers",
                name="with diverged seeds", marker={"symbol": "x-open", "size": 15, "color": ink()}, hoverinfo="skip",
            )  # fmt: skip
    values = sorted({point.at for line in lines for point in line.points})
    ticks = {"tickvals": values, "ticktext": [f"{value:.4g}" for value in values]} if len(values) <= 12 else {}
    made.update_xaxes(title=for_plotly(axis_slice.axis), type="log" if axis_slice.logarithmic else "linear", **ticks)
    made.update_yaxes(title=for_plotly(axis_slice.metric))
    return made


def _switches(record: StudyRecord) -> list[str]:
    """What the settings of variants name, but for the place of a member in its population, which is no axis."""
    names = dict.fromkeys(name for variant in record.variants for name in variant.settings)
    return [name for name in names if name != MEMBERSHIP]


def variant_table(record: StudyRecord, runs: Mapping[str, VariantRuns]) -> pd.DataFrame:
    """A row for each variant with an ended trial: settings, parameters, and mean objective unless a seed diverged."""
    metric = record.objective["metric"]
    switches = _switches(record)
    rows = [
        {
            "variant": variant.name,
            **dict.fromkeys(switches),
            **{axis: place(variant, axis) for axis in switches if axis not in variant.settings},
            **{name: setting for name, setting in variant.settings.items() if name != MEMBERSHIP},
            "parameters": variant.parameters,
            metric: None if runs[variant.name].diverged else _mean(runs[variant.name].values(metric)),
            "diverged": len(runs[variant.name].diverged),
        }
        for variant in record.variants
        if runs[variant.name].finished or runs[variant.name].diverged
    ]
    return pd.DataFrame(rows)


def draw_parallel(table: pd.DataFrame, record: StudyRecord) -> go.Figure:
    """A line for each variant through its settings, parameters and objective; a range on an axis selects lines."""
    metric, small = record.objective["metric"], record.objective["direction"] == "minimize"
    switches = _switches(record)
    axes = [_axis(switch, list(table[switch])) for switch in switches]
    axes.append({"label": "parameters", "values": list(table["parameters"]), "tickformat": "~s"})
    worst = table[metric].max() if small else table[metric].min()
    values = list(table[metric].fillna(worst).fillna(0.0))
    axes.append({"label": for_plotly(metric, 24), "values": values, "tickformat": ".4~g"})
    if table["diverged"].any():
        ended = [float(lost > 0) for lost in table["diverged"]]
        axes.append({"label": "outcome", "values": ended, "tickvals": [0, 1], "ticktext": ["finished", "diverged"]})
    made = figure(480)
    made.add_parcoords(
        dimensions=axes, labelangle=-18, labelside="top", labelfont={"color": ink(), "size": 12},
        tickfont={"color": ink(), "size": 11}, rangefont={"color": "rgba(0,0,0,0)", "size": 1},
        line={"color": values, "colorscale": scale(9, dark()), "reversescale": small, "showscale": True,
              "colorbar": {"title": for_plotly(metric, 24), "thickness": 12}},
    )  # fmt: skip
    made.update_layout(margin={"l": 60, "r": 30, "t": 110, "b": 24})
    return made


def axes_told(table: pd.DataFrame) -> str:
    """What the parallel axes show, in words."""
    sizes, lost = table["parameters"], int((table["diverged"] > 0).sum())
    said = f"{len(table)} variants, {count(int(sizes.min()))} to {count(int(sizes.max()))} parameters."
    return said + (f" Diverged: {lost}, drawn at the worst finished value." if lost else "")


def _mean(values: Mapping[int, float]) -> float | None:
    return math.fsum(values.values()) / len(values) if values else None


def _above(high: float | None, low: float | None) -> float:
    return 0.0 if high is None or low is None else max(0.0, high - low)


def _axis(switch: str, given: list[object]) -> dict[str, object]:
    settings = ["-" if setting is None or setting != setting else str(setting) for setting in given]
    numbers = [_number(setting) for setting in settings]
    label = for_plotly(switch.rpartition(".")[2], 24)
    known = sorted({number for number in numbers if number is not None})
    missing = any(number is None for number in numbers)
    if known and all(number is not None or setting == "-" for number, setting in zip(numbers, settings, strict=True)):
        logarithmic = is_logarithmic(tuple(known))
        at = {number: math.log10(number) if logarithmic else number for number in known}
        low, high = at[known[0]], at[known[-1]]
        below = low - 0.12 * ((high - low) or 1.0)  # missing values are separate, below the axis
        ticks = [(below, "-")] * missing + [(at[number], f"{number:.3g}") for number in _thinned(known)]
        return {
            "label": label,
            "values": [below if number is None else at[number] for number in numbers],
            "tickvals": [height for height, _ in ticks],
            "ticktext": [text for _, text in ticks],
        }
    names = list(dict.fromkeys(settings))
    return {
        "label": label,
        "values": [names.index(setting) for setting in settings],
        "tickvals": list(range(len(names))),
        "ticktext": [for_plotly(name, 20) for name in names],
    }


def _thinned(values: Sequence[float]) -> Sequence[float]:
    """At most `MOST_TICKS` of these ascending values, including both ends."""
    if len(values) <= MOST_TICKS:
        return values
    step = (len(values) - 1) / (MOST_TICKS - 1)
    return [values[round(number * step)] for number in range(MOST_TICKS)]


def _number(setting: str) -> float | None:
    try:
        number = float(setting)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
