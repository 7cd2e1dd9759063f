"""The path of `simplify` as a waterfall: what each step costs in loss, and what it saves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ablate.analysis.findings import Findings
from ablate.analysis.path import Removal, RemovalPath, VariantSummary
from ablate.render.blocks import Picture
from ablate.render.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILLION, WIDTH, verbatim
from ablate.stats.verdict import removal_word

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OTHERS = {
    "better": (BLUE, "^", "white"),
    "not needed": (GREEN, "o", "white"),
    "undecided": (ORANGE, "x", ORANGE),
    "needed": (VERMILLION, "+", VERMILLION),
    "diverged": (PURPLE, "X", PURPLE),
}
"""Verdict on a removal that is no step of the path, to its colour, its marker and the colour within."""
WORDS = {"not needed": "could go too", "better": "better without too"}


def pictures(findings: Findings) -> tuple[Picture, ...]:
    """The figure of a `simplify` study, once a round is complete."""
    path = findings.path
    if path is None or not path.rounds:
        return ()
    worse = "up" if path.direction == "minimize" else "down"
    caption = (
        f"The path of removals. Top: {path.metric} against the baseline at each step, paired by seed with 95 % "
        f"intervals ({worse} is worse; dashed: the margin {path.margin:g}). The smaller marks beside each step are the "
        "other removals of that round, by verdict. Bottom: parameters, "
        "training FLOP and speed, in per cent of the baseline's."
    )
    return (Picture("path", caption),)


def path(findings: Findings) -> Figure:
    """The differences above, the costs below, a column for each round."""
    from matplotlib.figure import Figure

    removal_path = findings.path
    assert removal_path is not None
    figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
    loss, costs = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    _losses(loss, removal_path)
    _costs(costs, removal_path)
    labels = ["baseline", *(f"- {verbatim(step.switch)}\n= {verbatim(step.setting)}" for step in removal_path.steps)]
    more = "nothing\ncheaper" if any(one.kept for one in removal_path.rounds[-1]) else "nothing\nmore"
    labels += [more] * (len(removal_path.rounds) - len(removal_path.steps))
    costs.set_xticks(range(len(labels)), labels, rotation=0 if len(labels) < 7 else 30)
    costs.set_xlim(-0.5, len(labels) - 0.5)
    return figure


def _losses(axes: Axes, path: RemovalPath) -> None:
    sign = 1.0 if path.direction == "minimize" else -1.0
    axes.axhline(0, color=BLACK, linewidth=0.8, zorder=0)
    axes.axhline(sign * path.margin, color=BLACK, linewidth=0.8, linestyle=(0, (4, 2)), zorder=0)
    axes.annotate(
        f"margin {path.margin:g}",
        (0.0, sign * path.margin),
        xycoords=("axes fraction", "data"),
        xytext=(3, 2),
        textcoords="offset points",
        fontsize=7,
    )
    axes.plot(0, 0, color=BLUE, marker="s", markersize=5, linestyle="none")
    steps = {step.standing.variant for step in path.steps}
    for number, tried in enumerate(path.rounds, 1):
        others = [one for one in tried if one.standing.variant not in steps]
        for place, one in enumerate(others):
            _other(axes, number + 0.12 + 0.3 * (place + 1) / (len(others) + 1), one)
    for number, step in enumerate(path.steps, 1):
        paired = step.standing.difference
        if paired is not None and paired.difference is not None:
            if paired.low is not None and paired.high is not None:
                axes.plot([number, number], [paired.low, paired.high], color=BLUE, linewidth=1.4)
            axes.plot(number, paired.difference, color=BLUE, marker="s", markersize=6, markeredgecolor="white")
    axes.set_ylabel(verbatim(f"difference of {path.metric}"))
    _explain(axes, path)


def _other(axes: Axes, where: float, one: Removal) -> None:
    paired = one.standing.difference
    if one.verdict.word == "diverged":
        colour, marker, _ = OTHERS["diverged"]
        axes.plot(where, 0.96, color=colour, marker=marker, markersize=5, transform=axes.get_xaxis_transform())
    elif paired is not None and paired.difference is not None:
        colour, marker, face = OTHERS[removal_word(one.verdict.word)]
        axes.plot(
            where,
            paired.difference,
            color=colour,
            marker=marker,
            markerfacecolor=face,
            markersize=4.5,
            linestyle="none",
        )


def _explain(axes: Axes, path: RemovalPath) -> None:
    from matplotlib.lines import Line2D

    words = {removal_word(one.verdict.word) for tried in path.rounds for one in tried if not one.on_path}
    marks = [("step of the path", BLUE, "s", BLUE)] if path.steps else []
    marks += [(WORDS.get(word, word), *look) for word, look in OTHERS.items() if word in words]
    handles = [
        Line2D([], [], color=colour, marker=marker, markerfacecolor=face, linestyle="none", markersize=5, label=word)
        for word, colour, marker, face in marks
    ]
    axes.legend(handles=handles, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(handles), borderaxespad=0)


def _costs(axes: Axes, path: RemovalPath) -> None:
    along = [path.baseline, *(step.standing for step in path.steps)]
    quantities: tuple[tuple[str, Callable[[VariantSummary], float | None], str, str], ...] = (
        ("parameters", lambda one: one.parameters, BLUE, ""),
        ("FLOP", lambda one: one.flops, ORANGE, "///"),
        ("tokens a second", lambda one: one.tokens_per_second.mean, "white", "..."),
    )
    known = [quantity for quantity in quantities if quantity[1](path.baseline) is not None]
    for place, (label, of, colour, hatch) in enumerate(known):
        first, shift = of(path.baseline), 0.25 * (place - (len(known) - 1) / 2)
        values = [of(one) for one in along]
        heights = [100 * value / first if value is not None and first else 0.0 for value in values]
        places = [number + shift for number in range(len(along))]
        bars = axes.bar(places, heights, 0.23, color=colour, edgecolor=BLACK, linewidth=0.5, hatch=hatch, label=label)
        axes.bar_label(bars, [f"{height:.0f}" if height else "" for height in heights], fontsize=6, padding=1)
    axes.axhline(100, color=GREY, linewidth=0.6, zorder=0)
    axes.margins(y=0.15)
    axes.set_ylabel("% of the baseline")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0)


FIGURES: Mapping[str, Callable[[Findings], Figure]] = {"path": path}
