"""Chosen curves with their bands in one panel, for print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ablate.analysis.curves import Band, heights
from ablate.render.figures.style import STYLE, WIDTH

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DASHES = ("-", "--", ":", "-.")


def draw_bands(
    bands: Mapping[str, Band], colours: Mapping[str, str], against: str, loss: str, *, whole: bool = False
) -> Figure:
    """Draw bands, distinguished by colour and dash.

    Args:
        bands: By name.
        colours: Of each name, as #rrggbb.
        against: What the horizontal axis counts.
        loss: What the vertical axis shows.
        whole: Whether the vertical axis begins at zero and shows all; else the fall from an initial loss is cut off.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
        axes = figure.add_subplot()
        for number, (name, band) in enumerate(bands.items()):
            colour, dash = colours[name], _DASHES[number % len(_DASHES)]
            axes.fill_between(band.x, band.low, band.high, color=colour, alpha=0.2, linewidth=0)
            axes.plot(band.x, band.mean, linewidth=1.2, label=name, color=colour, linestyle=dash)
        if whole:
            axes.set_ylim(bottom=0.0)
        elif limits := heights(bands.values()):
            axes.set_ylim(*limits)
        axes.set_xlabel(against)
        axes.set_ylabel(loss)
        figure.legend(loc="outside right upper")
    return figure
