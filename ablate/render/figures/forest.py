"""The forest plot: differences from the baseline with their intervals, and the margin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ablate.analysis.columns import groups
from ablate.analysis.deciding import deciding_bounds, worst_margin
from ablate.analysis.findings import Findings
from ablate.analysis.rows import SELECTED, VariantRow
from ablate.analysis.study import StudyReport
from ablate.render.blocks import Picture
from ablate.render.figures.style import BLACK, GREY, WIDTH, legend_of, look_of, verbatim, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = 40
"""Characters of a name on one line."""


def pictures(findings: Findings) -> tuple[Picture, ...]:
    """The figure, if any variant was compared with the baseline."""
    if not any(_compared(row) for row in findings.report.variants):
        return ()
    return (Picture("forest", _forest_caption(findings.report)),)


def _forest_caption(report: StudyReport) -> str:
    worse = "right" if report.direction == "minimize" else "left"
    return (
        f"Difference of {report.metric} from the baseline, paired by {report.unit}; further {worse} is worse, and "
        f"shaded is worse by more than the margin {report.margin:g}. Thin: 95 % interval; thick: the one-sided 95 % "
        f"bounds that the verdict rests on; small dots: single {report.unit}s. Diverged variants are at the worse edge."
    )


def _compared(row: VariantRow) -> bool:
    return row.difference is not None and (row.difference.difference is not None or bool(row.diverged))


def _word(row: VariantRow) -> str:
    return row.verdict.word if row.verdict is not None else SELECTED


def forest(findings: Findings) -> Figure:
    """A row for each variant that was compared."""
    from matplotlib.figure import Figure

    report = findings.report
    grouped = [[row for row in group if _compared(row)] for group in groups(report)]
    names = {row.name: wrapped(row.name, NAME) for group in grouped for row in group}
    rows = sum(0.27 + 0.11 * name.count("\n") for name in names.values())
    figure = Figure(figsize=(WIDTH, 1.1 + rows + 0.12 * len(grouped)), layout="constrained")
    axes = figure.add_subplot()
    heights, labels, height = [], [], 0.0
    for group in grouped:
        for row in group:
            _compare(axes, row, report, height)
            heights.append(height)
            labels.append(names[row.name])
            height += 1.0
        height += 0.4 if group else 0.0
    axes.set_yticks(heights, labels)
    axes.set_ylim(heights[-1] + 0.7, -0.7)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    _draw_margin(axes, report)
    better = "lower" if report.direction == "minimize" else "higher"
    axes.set_xlabel(verbatim(f"difference of {report.metric} from the baseline ({better} is better)"))
    _explain(figure, report)
    return figure


def _compare(axes: Axes, row: VariantRow, report: StudyReport, height: float) -> None:
    assert row.difference is not None
    colour, marker = look_of(_word(row))
    paired = row.difference
    if row.diverged or paired.difference is None:  # the mean of the seeds that finished is biased
        edge, inwards = (0.985, -8) if report.direction == "minimize" else (0.015, 8)
        across = axes.get_yaxis_transform()
        axes.plot(edge, height, transform=across, marker=marker, color=colour, markersize=6, linestyle="none")
        axes.annotate(
            verbatim(row.verdict_sentence or ""),
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
    if bound := deciding_bounds(row.verdict, report.direction):
        axes.plot([bound.low, bound.high], [height, height], color=colour, linewidth=3.2, solid_capstyle="butt")
    seeds = [height + 0.28] * paired.n
    axes.plot(paired.values, seeds, marker=".", color=GREY, markersize=3.5, markeredgewidth=0, linestyle="none")
    axes.plot(
        paired.difference, height, marker=marker, color=colour, markersize=6, markeredgecolor="white", linestyle="none"
    )


def _draw_margin(axes: Axes, report: StudyReport) -> None:
    margin = worst_margin(report.margin, report.direction)
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

    present = {_word(row) for row in report.variants if _compared(row)}
    marks = [
        Line2D([], [], color=colour, marker=marker, markersize=6, linewidth=2, label=word)
        for word, colour, marker in legend_of(present)
    ]
    figure.legend(handles=marks, loc="outside upper right", ncols=len(marks))


FIGURES: Mapping[str, Callable[[Findings], Figure]] = {"forest": forest}
