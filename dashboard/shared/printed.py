"""Figures for print, as files: drawn by `ablate.render.figures` when they are requested."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd

from ablate.analysis.curves import Band
from ablate.analysis.pareto import Front
from ablate.render.figures import draw
from ablate.render.figures.bands import draw_bands
from ablate.render.figures.front import draw_front
from ablate.render.figures.parallel import draw_parallel
from shared.exports import Maker, figure_files
from shared.store import findings

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def printed(study: str, name: str) -> dict[str, Maker]:
    """A figure of the report of a study."""
    return figure_files(f"{study}_{name}", lambda: draw(name, findings(study)))


def printed_front(study: str, front: Front) -> dict[str, Maker]:
    """A Pareto front."""
    return figure_files(f"{study}_front", lambda: draw_front(front))


def printed_bands(
    name: str, bands: Mapping[str, Band], colours: Mapping[str, str], against: str, loss: str, *, whole: bool = False
) -> dict[str, Maker]:
    """Curves with their bands; with `whole`, over their full range."""
    return figure_files(name, lambda: draw_bands(bands, colours, against, loss, whole=whole))


def printed_parallel(study: str, table: pd.DataFrame, metric: str) -> dict[str, Maker]:
    """Parallel coordinates through the columns of a table, except names and numbers of diverged seeds."""

    def draw() -> Figure:
        told = table.drop(columns=["variant", "diverged"])
        columns = {name: told[name].astype(object).where(told[name].notna(), None).tolist() for name in told}
        return draw_parallel(columns, metric)

    return figure_files(f"{study}_parallel", draw)
