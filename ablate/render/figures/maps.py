"""Mixing maps as a sheet for print: a picture for each mixer, dark where an output token answers to an input token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ablate.analysis.inside import MixingMap
from ablate.render.figures.style import STYLE, WIDTH

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 4


def draw_maps(maps: Sequence[MixingMap]) -> Figure:
    """Draw maps, each on its own logarithmic scale: three powers of ten up to the number in its title."""
    import matplotlib as mpl
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        rows = -(-len(maps) // COLUMNS)
        figure = Figure(figsize=(WIDTH, 2.1 * rows + 0.3), layout="constrained")
        grid = figure.subplots(rows, COLUMNS, squeeze=False)
        for place, axes in enumerate(grid.flat):
            if place >= len(maps):
                axes.remove()
                continue
            one = maps[place]
            shown = [[math.nan if value is None else value for value in row] for row in one.rows]
            scale = LogNorm((one.highest or 1.0) / 1000, one.highest or 1.0)
            axes.imshow(shown, cmap="Greys", norm=scale, interpolation="nearest")
            axes.set_title(f"{one.part}, to {one.highest:.3g}")
            axes.set_xticks([0, len(one.rows[0]) - 1], ["1", str(len(one.rows[0]))])
            axes.set_yticks([0, len(one.rows) - 1], ["1", str(len(one.rows))])
        figure.supxlabel("input token", fontsize=8)
        figure.supylabel("output token", fontsize=8)
    return figure
