"""The figures of a report, drawn with matplotlib for print: Okabe-Ito colours, and shapes that say the same.

Each takes what was found and gives a figure; `pictures` says which of them a study has something to show on.
"""

from __future__ import annotations

import io
import logging
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ablate.report.deciding import deciding_bounds, worst_margin
from ablate.report.document import Picture
from ablate.report.findings import Findings
from ablate.report.runs import VariantRuns
from ablate.report.study import StudyReport, VariantRow
from ablate.report.table import groups
from ablate.store.records import CurvePoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLACK, GREY, ORANGE, BLUE, GREEN, VERMILLION, PURPLE = (
    "#000000", "#767676", "#E69F00", "#0072B2", "#009E73", "#D55E00", "#CC79A7",
)  # fmt: skip
LOOKS = {"needed": (VERMILLION, "s"), "not needed": (GREEN, "o"), "undecided": (ORANGE, "D"), "diverged": (PURPLE, "X")}
"""Verdict to its colour and its marker."""

STYLE: dict[Any, Any] = {
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "savefig.dpi": 200,
    "svg.hashsalt": "ablate",
    "pdf.fonttype": 42,
    "axes.formatter.useoffset": False,
    "text.parse_math": False,  # a `$` in a name is a dollar
}
WIDTH = 7.0
"""Inches: the text width of a page."""
MOST_PANELS = 40
"""Curves of more variants than this are not drawn."""
COLUMNS = 4
LONG_NAME = 24
"""Characters beyond which the title of a panel is broken after the equals sign."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """What a learning curve is drawn against."""

    of: Callable[[CurvePoint], float]
    label: str
    words: str


AXES = {
    "loss_steps": _Axis(lambda point: point.step, "steps", "optimiser steps"),
    "loss_seconds": _Axis(lambda point: point.seconds, "seconds of training", "seconds of training"),
    "loss_flops": _Axis(lambda point: point.flops, "FLOP", "training FLOP"),
}


def pictures(findings: Findings) -> tuple[Picture, ...]:
    """The figures that a study has something to show on, with their captions."""
    found = []
    if any(_compared(row) for row in findings.report.variants):
        found.append(Picture("forest", _forest_caption(findings.report)))
    shown, hidden = _panels(findings)
    rest = f" {hidden} further variants are left out." if hidden else ""
    if lost := [row.name for row in findings.report.variants if row.diverged and not row.finished]:
        rest += f" No seed finished, and so there is no curve, of {', '.join(lost)}."
    for name, axis in AXES.items():
        if shown and max(x for row in shown for x, *_ in _mean_curve(findings.runs[row.name], axis)) > 0:
            found.append(
                Picture(
                    name,
                    f"Validation loss against {axis.words}: the mean over the finished seeds, in a band from the "
                    f"lowest to the highest; the baseline in grey, dashed.{rest}",
                )
            )
    return tuple(found)


def draw(name: str, findings: Findings) -> Figure:
    """The figure of this name, one of those that `pictures` gives."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # that it builds a cache of fonts is no news to a user
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        return _forest(findings.report) if name == "forest" else _curves(findings, AXES[name])


def save(figure: Figure, kind: str) -> bytes:
    """A figure as a file of this kind (`svg`, `png`, `pdf`); the same figure gives the same bytes."""
    import matplotlib as mpl

    written = io.BytesIO()
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        # A name in a script that the font lacks is drawn with boxes; that is no reason to fail or to warn.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(written, format=kind, metadata=undated.get(kind))
    return written.getvalue()


def _forest_caption(report: StudyReport) -> str:
    worse = "right" if report.direction == "minimize" else "left"
    return (
        f"Difference of {report.metric} from the baseline, paired by seed; further {worse} is worse, and shaded is "
        f"worse by more than the margin {report.margin:g}. Thin: 95 % interval; thick: the one-sided 95 % bounds that "
        "the verdict rests on; small dots: single seeds. What diverged stands at the worse edge."
    )


def _compared(row: VariantRow) -> bool:
    return row.difference is not None and (row.difference.difference is not None or bool(row.diverged))


def _forest(report: StudyReport) -> Figure:
    from matplotlib.figure import Figure

    grouped = [[row for row in group if _compared(row)] for group in groups(report)]
    figure = Figure(figsize=(WIDTH, 1.1 + 0.27 * sum(map(len, grouped)) + 0.12 * len(grouped)), layout="constrained")
    axes = figure.add_subplot()
    heights, labels, height = [], [], 0.0
    for group in grouped:
        for row in group:
            _compare(axes, row, report, height)
            heights.append(height)
            labels.append(_verbatim(row.name))
            height += 1.0
        height += 0.4 if group else 0.0
    axes.set_yticks(heights, labels)
    axes.set_ylim(heights[-1] + 0.7, -0.7)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    _draw_margin(axes, report)
    better = "lower" if report.direction == "minimize" else "higher"
    axes.set_xlabel(_verbatim(f"difference of {report.metric} from the baseline ({better} is better)"))
    _explain(figure, report)
    return figure


def _compare(axes: Axes, row: VariantRow, report: StudyReport, height: float) -> None:
    assert row.difference is not None
    assert row.verdict is not None
    colour, marker = LOOKS[row.verdict.word]
    paired = row.difference
    if row.diverged or paired.difference is None:  # the mean of the seeds that survived would flatter the variant
        edge, inwards = (0.985, -8) if report.direction == "minimize" else (0.015, 8)
        across = axes.get_yaxis_transform()
        axes.plot(edge, height, transform=across, marker=marker, color=colour, markersize=6, linestyle="none")
        axes.annotate(
            _verbatim(row.verdict.sentence),
            (edge, height),
            xycoords=across,
            xytext=(inwards, 0),
            textcoords="offset points",
            ha="right" if inwards < 0 else "left",
            va="center",
            fontsize=7,
        )
        return
    if paired.low is not None and paired.high is not None:
        axes.plot([paired.low, paired.high], [height, height], color=colour, linewidth=1.0, solid_capstyle="butt")
    if bound := deciding_bounds(paired, report):
        axes.plot([bound.low, bound.high], [height, height], color=colour, linewidth=3.2, solid_capstyle="butt")
    seeds = [height + 0.28] * paired.n
    axes.plot(paired.values, seeds, marker=".", color=GREY, markersize=3.5, markeredgewidth=0, linestyle="none")
    axes.plot(
        paired.difference, height, marker=marker, color=colour, markersize=6, markeredgecolor="white", linestyle="none"
    )


def _draw_margin(axes: Axes, report: StudyReport) -> None:
    margin = worst_margin(report)
    low, high = axes.get_xlim()
    low, high = min(low, 1.5 * margin, 0.0), max(high, 1.5 * margin, 0.0)
    axes.set_xlim(low, high)
    axes.axvline(0, color=BLACK, linewidth=0.8, zorder=0)
    axes.axvline(margin, color=BLACK, linewidth=0.8, linestyle=(0, (4, 2)), zorder=0)
    axes.axvspan(margin, high if margin > 0 else low, color=GREY, alpha=0.13, linewidth=0, zorder=-1)
    axes.annotate(
        f"margin {report.margin:g}",
        (margin, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(2 if margin > 0 else -2, 1),
        textcoords="offset points",
        ha="left" if margin > 0 else "right",
        va="bottom",
        fontsize=7,
    )


def _explain(figure: Figure, report: StudyReport) -> None:
    from matplotlib.lines import Line2D

    present = {row.verdict.word for row in report.variants if row.verdict}
    marks = [
        Line2D([], [], color=colour, marker=marker, markersize=6, linewidth=2, label=word)
        for word, (colour, marker) in LOOKS.items()
        if word in present
    ]
    figure.legend(handles=marks, loc="outside upper right", ncols=len(marks))


def _panels(findings: Findings) -> tuple[list[VariantRow], int]:
    """The variants whose curves are drawn, and how many more there are; none unless the baseline has a curve."""
    steps = AXES["loss_steps"]
    rows = [row for group in groups(findings.report) for row in group if _mean_curve(findings.runs[row.name], steps)]
    if findings.report.baseline not in rows:
        return [], 0
    variants = [row for row in rows if row is not findings.report.baseline] or [findings.report.baseline]
    return variants[:MOST_PANELS], max(0, len(variants) - MOST_PANELS)


Band = list[tuple[float, float, float, float]]


def _mean_curve(runs: VariantRuns, axis: _Axis) -> Band:
    """Position, mean, lowest and highest validation loss at each step that all finished seeds evaluated."""
    by_seed = [_evaluated(runs, seed) for seed in runs.finished]
    band = []
    for step in sorted(set.intersection(*map(set, by_seed))) if by_seed else []:
        points = [curve[step] for curve in by_seed]
        losses = [loss for _, loss in points]
        where = math.fsum(axis.of(point) for point, _ in points) / len(points)
        band.append((where, math.fsum(losses) / len(losses), min(losses), max(losses)))
    return band


def _evaluated(runs: VariantRuns, seed: int) -> dict[int, tuple[CurvePoint, float]]:
    return {
        point.step: (point, point.val_loss)
        for point in runs.curves[seed]
        if point.val_loss is not None and math.isfinite(point.val_loss)
    }


def _curves(findings: Findings, axis: _Axis) -> Figure:
    from matplotlib.figure import Figure

    shown, _ = _panels(findings)
    baseline = _mean_curve(findings.runs[findings.report.baseline.name], axis)
    columns = min(COLUMNS, len(shown))
    lines = math.ceil(len(shown) / columns)
    figure = Figure(figsize=(WIDTH, 0.5 + 1.55 * lines), layout="constrained")
    panels: Any = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    bands = [_mean_curve(findings.runs[row.name], axis) for row in shown]
    for panel, row, band in zip(panels.flat, shown, bands, strict=False):
        _band(panel, baseline, GREY, "--")
        _band(panel, band, BLUE, "-")
        diverged = f"\n{len(row.diverged)} of {len(row.planned)} seeds diverged" if row.diverged else ""
        name = _verbatim(row.name)
        panel.set_title((name.replace("=", "=\n", 1) if len(name) > LONG_NAME else name) + diverged)
    for panel in panels.flat[len(shown) :]:
        panel.set_visible(False)
    for panel in panels.flat[max(0, len(shown) - columns) : len(shown)]:
        panel.xaxis.set_tick_params(labelbottom=True)  # also above a place that is left empty
    panels[0, 0].set_ylim(*_heights([baseline, *bands]))
    panels[0, 0].set_xlim(left=0)
    figure.supxlabel(axis.label, fontsize=8)
    figure.supylabel("validation loss", fontsize=8)
    return figure


def _band(panel: Axes, band: Band, colour: str, line: str) -> None:
    where, mean, low, high = zip(*band, strict=True)
    panel.fill_between(where, low, high, color=colour, alpha=0.25, linewidth=0)
    panel.plot(where, mean, color=colour, linestyle=line, linewidth=1.2)


def _heights(bands: list[Band]) -> tuple[float, float]:
    """Limits of loss that show where curves differ: the fall from the initial loss is cut off at the top."""
    bottom = min(low for band in bands for _, _, low, _ in band)
    top = max([bands[0][min(1, len(bands[0]) - 1)][3], *(band[-1][3] for band in bands)])
    room = 0.06 * (top - bottom) or 0.05 * abs(top) or 1.0
    return bottom - room, top + room


def _verbatim(text: str) -> str:
    """Text of a user's on one line, without control codes."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in " ".join(text.split()))
