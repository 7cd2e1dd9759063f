"""Importances as bars with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ablate.analysis.findings import Findings
from ablate.render.blocks import Picture
from ablate.render.figures.style import BLACK, BLUE, GREY, WIDTH, verbatim

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def pictures(findings: Findings) -> tuple[Picture, ...]:
    """The figure of a study that crosses what varies."""
    if findings.importances is None:
        return ()
    caption = (
        f"Share of the variance of {findings.report.metric} that each switch or axis explains by itself (fANOVA), with "
        "the interval of the share without noise; hatched: what they do together, and noise."
    )
    return (Picture("importances", caption),)


def importances(findings: Findings) -> Figure:
    """A bar for each factor, the most important on top, and one for the rest."""
    from matplotlib.figure import Figure

    study_importances = findings.importances
    assert study_importances is not None
    names = [verbatim(one.factor) for one in study_importances.factors]
    figure = Figure(figsize=(WIDTH, 0.7 + 0.26 * (len(names) + 1)), layout="constrained")
    axes = figure.add_subplot()
    for height, one in enumerate(study_importances.factors):
        axes.barh(height, 100 * one.share, color=BLUE, height=0.6)
        if one.low is not None and one.high is not None:
            axes.plot([100 * one.low, 100 * one.high], [height, height], color=BLACK, linewidth=1.2, marker="|")
    axes.barh(len(names), 100 * study_importances.rest, color="white", edgecolor=GREY, hatch="////", height=0.6)
    axes.set_yticks(range(len(names) + 1), [*names, "interactions and noise"])
    axes.set_ylim(len(names) + 0.6, -0.6)
    axes.set_xlim(left=0)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(verbatim(f"share of the variance of {findings.report.metric} (%)"))
    return figure


FIGURES: Mapping[str, Callable[[Findings], Figure]] = {"importances": importances}
