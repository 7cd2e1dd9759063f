"""A band with its mean in a figure of Plotly, as the pages of curves and of comparisons draw it."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
from streamlit.delta_generator import DeltaGenerator

from ablate.analysis.curves import Axis, Band, Loss
from shared.colours import Look, pale
from shared.text import for_plotly, in_lines

AXES: dict[Axis, str] = {"steps": "steps", "tokens": "tokens", "flops": "FLOP"}
LOSSES: dict[Loss, str] = {"val_loss": "validation", "train_loss": "training"}


def choose_axis_and_loss(row: DeltaGenerator) -> tuple[Axis, Loss]:
    """Controls in a row for the horizontal axis and the loss of a band; the address stores both."""
    axis = row.segmented_control(
        "Against", list(AXES), default="steps", format_func=AXES.__getitem__, key="axis", bind="query-params",
        required=True, wrap=True,
    )  # fmt: skip
    loss = row.segmented_control(
        "Loss", list(LOSSES), default="val_loss", format_func=LOSSES.__getitem__, key="loss", bind="query-params",
        required=True, wrap=True,
    )  # fmt: skip
    return axis, loss


def draw_band(made: go.Figure, label: str, band: Band, drawn: Look, picked: list[Any] | None = None) -> None:
    """Add a band to a figure; nothing if it is empty.

    Args:
        made: The figure.
        label: Its name, as users wrote it.
        band: The band.
        drawn: Its look.
        picked: The custom data of each of its points.
    """
    if not band.mean:
        return
    if band.n > 1:
        made.add_scatter(
            x=[*band.x, *reversed(band.x)], y=[*band.high, *reversed(band.low)], fill="toself", mode="lines",
            fillcolor=pale(drawn.colour), line={"width": 0}, legendgroup=label, showlegend=False, hoverinfo="skip",
        )  # fmt: skip
    made.add_scatter(
        x=band.x, y=band.mean, mode="lines+markers", name=in_lines(label), legendgroup=label,
        line={"color": drawn.colour, "dash": drawn.dash, "width": 2.2},
        marker={"color": drawn.colour, "symbol": drawn.mark, "size": 5, "maxdisplayed": 12},
        customdata=[picked] * len(band.x),
        hovertemplate=f"{for_plotly(label, 160)}, mean of {band.n}<br>%{{x:,.6~g}}<br>%{{y:.4f}}<extra></extra>",
    )  # fmt: skip
