"""The Pareto front: the first quantity against each of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ablate.analysis.findings import Findings
from ablate.analysis.pareto import Front, FrontPoint
from ablate.analysis.quantities import UNITS, words_for
from ablate.render.blocks import Picture
from ablate.render.figures.style import BLUE, GREY, STYLE, VERMILLION, WIDTH, verbatim
from ablate.stats import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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


def front(findings: Findings) -> Figure:
    """The front that a report shows."""
    assert findings.front is not None
    return draw_front(findings.front)


def draw_front(study_front: Front) -> Figure:
    """A panel for each quantity but the first."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        return _panels(Figure(figsize=(WIDTH, 3.4), layout="constrained"), study_front)


def _panels(figure: Figure, study_front: Front) -> Figure:
    across = study_front.quantities[1:]
    panels: Any = figure.subplots(1, len(across), sharey=True, squeeze=False)
    for panel, quantity in zip(panels.flat, across, strict=True):
        _panel(panel, study_front, quantity)
    better = "lower" if study_front.directions[0] == "minimize" else "higher"
    panels[0, 0].set_ylabel(verbatim(f"{study_front.quantities[0]} ({better} is better)"))
    _explain(figure, study_front)
    return figure


def _panel(axes: Axes, front: Front, quantity: str) -> None:
    number = 0
    for point in front.points:
        x, y = point.values[quantity], point.values[front.quantities[0]]
        colour, marker, size = _look(point)
        axes.errorbar(
            [x.mean or 0.0],
            [y.mean or 0.0],
            xerr=_half(x),
            yerr=_half(y),
            color=colour,
            marker=marker,
            markersize=size,
            markerfacecolor=colour if point.on_front else "white",
            linewidth=0.7,
            alpha=1.0 if point.on_front else 0.75,
            zorder=3 if point.on_front else 2,
        )
        if point.on_front:
            number += 1
            axes.annotate(
                str(number), (x.mean or 0.0, y.mean or 0.0), xytext=(5, 4), textcoords="offset points", fontsize=8,
                fontweight="bold", color=BLUE, zorder=4,
            )  # fmt: skip
    if len(front.quantities) == 2:
        _staircase(axes, front, quantity)
    unit = f" ({UNITS[quantity]})" if quantity in UNITS else ""
    axes.set_xlabel(verbatim(words_for(quantity) + unit))
    axes.margins(0.08)


def _staircase(axes: Axes, front: Front, quantity: str) -> None:
    """The boundary of the dominated region: beyond the line some variant is at least as good in both quantities."""
    on_front = [point for point in front.points if point.on_front]
    corners = sorted(
        (point.values[quantity].mean or 0.0, point.values[front.quantities[0]].mean or 0.0) for point in on_front
    )
    small = front.directions[front.quantities.index(quantity)] == "minimize"
    where, heights = zip(*corners, strict=True)
    axes.step(where, heights, where="post" if small else "pre", color=BLUE, linewidth=0.8, alpha=0.6, zorder=1)


def _look(point: FrontPoint) -> tuple[str, str, float]:
    if point.on_front:
        return BLUE, "s", 5.5
    return (VERMILLION, "x", 4.5) if point.significant else (GREY, "o", 4.5)


def _half(interval: Interval) -> Sequence[float] | None:
    if interval.low is None or interval.high is None or interval.low == interval.high:
        return None
    return [(interval.high - interval.low) / 2]


def _explain(figure: Figure, front: Front) -> None:
    from matplotlib.lines import Line2D

    looks = {}
    for point in front.points:
        dominated = "dominated (95 %)" if point.significant else "dominated in the means"
        word = "Pareto front" if point.on_front else dominated
        looks[word] = _look(point)
    handles = [
        Line2D([], [], color=colour, marker=marker, markersize=size, linestyle="none", label=word,
               markerfacecolor=colour if word == "Pareto front" else "white")
        for word, (colour, marker, size) in sorted(looks.items())
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside upper right", ncols=len(handles))


FIGURES: Mapping[str, Callable[[Findings], Figure]] = {"front": front}
