"""A band with its mean in a figure of Plotly, as the pages of curves and of comparisons draw it."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from ablate.analysis.curves import Band
from shared.colours import Look, pale
from shared.text import for_plotly


def draw_band(made: go.Figure, label: str, band: Band, drawn: Look, picked: list[Any] | None = None) -> None:
    """Add a band to a figure; nothing if it is empty.

    Args:
        made: The figure.
        label: Its name, as users wrote it.
        band: The band.
        drawn: Its look.
        picked: What is known of a point of it that is picked.
    """
    if not band.mean:
        return
    name = for_plotly(label)
    if band.n > 1:
        made.add_scatter(
            x=[*band.x, *reversed(band.x)], y=[*band.high, *reversed(band.low)], fill="toself", mode="lines",
            fillcolor=pale(drawn.colour), line={"width": 0}, legendgroup=name, showlegend=False, hoverinfo="skip",
        )  # fmt: skip
    made.add_scatter(
        x=band.x, y=band.mean, mode="lines+markers", name=name, legendgroup=name,
        line={"color": drawn.colour, "dash": drawn.dash, "width": 2.2},
        marker={"color": drawn.colour, "symbol": drawn.mark, "size": 5, "maxdisplayed": 12},
        customdata=[picked] * len(band.x),
        hovertemplate=f"{name}, mean of {band.n}<br>%{{x:,.6~g}}<br>%{{y:.4f}}<extra></extra>",
    )  # fmt: skip
