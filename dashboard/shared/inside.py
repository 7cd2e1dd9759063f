"""Figures of a trial's model: norms of its blocks over training, and mixing maps."""

from __future__ import annotations

import math

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from ablate.analysis.curves import Line, band
from ablate.analysis.inside import QUANTITIES, WHOLE, Inside, MixingMap, Quantity, read_inside
from ablate.render.figures.maps import draw_maps
from shared.charts import chart, figure, scale
from shared.colours import dark
from shared.exports import export, figure_files, table_files
from shared.printed import printed_bands
from shared.store import store
from shared.text import escape

SAID: dict[Quantity, str] = {"gradients": "gradients", "weights": "weights", "spread": "spread of mixing"}
PARTS = {WHOLE: "whole block", "mlp": "MLP", "rest": "norms and gains", "cross": "cross-attention"}
ABREAST = 3
"""Number of maps in a row."""
DECADES = 3
"""Powers of ten that the colours of a map span."""
_DASHES = ("solid", "dash", "dot", "dashdot")
_MARKS = ("circle", "square", "diamond", "triangle-up", "x", "star")


def show_inside(key: str, name: str) -> None:
    """Draw the recordings of a trial, or show how to record them.

    Args:
        key: Key of the trial.
        name: Its name in texts.
    """
    inside = read_inside(store(), key)
    st.subheader("Inside the blocks", anchor=False)
    if inside is None:
        st.caption(
            "Nothing was recorded for this trial. With `record_blocks: true` under `training` of a space, every "
            "evaluation of trials that are trained from then on is recorded."
        )
        return
    _norms(inside, key, name)
    if inside.maps:
        _maps(inside.maps, key, name)


def _norms(inside: Inside, key: str, name: str) -> None:
    row = st.container(horizontal=True, vertical_alignment="bottom")
    quantity = row.segmented_control(
        "Over training", list(SAID), default="gradients", format_func=SAID.__getitem__, key="inside",
        bind="query-params", required=True, wrap=True,
    )  # fmt: skip
    parts = inside.parts_with(quantity)
    part = parts[0]
    if len(parts) > 1:
        part = row.selectbox("Of the", parts, format_func=lambda one: PARTS.get(one, one), key=f"part-{quantity}",
                             width=220)  # fmt: skip
    lines = inside.lines(quantity, part)
    if not lines:
        st.caption("No evaluation recorded this of the trial.")
        return
    ends = "; ".join(f"{block} from {one.y[0]:.3g} to {one.y[-1]:.3g}" for block, one in lines.items())
    chart(_over_training(lines, quantity), "inside-curve", f"{QUANTITIES[quantity]} by block: {ends}"[:1000])
    rows = [
        {"step": one.step, "quantity": of, "part": where, "value": value}
        for one in inside.recordings
        for of in SAID
        for where, value in one.values.get(of, {}).items()
    ]
    colours = dict(zip(lines, scale(len(lines), False), strict=True))
    files = table_files(f"trial_{key[:12]}_blocks", pd.DataFrame(rows))
    bands = {block: band([one]) for block, one in lines.items()}
    files |= printed_bands(f"trial_{key[:12]}_{quantity}", bands, colours, "steps", QUANTITIES[quantity], whole=True)
    export(files, "inside")


def _over_training(lines: dict[str, Line], quantity: Quantity) -> go.Figure:
    made = figure(400)
    for number, ((block, one), colour) in enumerate(zip(lines.items(), scale(len(lines), dark()), strict=True)):
        made.add_scatter(
            x=one.x, y=one.y, mode="lines+markers", name=block,
            line={"color": colour, "dash": _DASHES[number % len(_DASHES)], "width": 1.8},
            marker={"symbol": _MARKS[number % len(_MARKS)], "size": 6},
            hovertemplate=f"{block}<br>step %{{x:,}}<br>%{{y:.4g}}<extra></extra>",
        )  # fmt: skip
    made.update_xaxes(title="steps")
    made.update_yaxes(title=QUANTITIES[quantity], rangemode="tozero")
    return made


def _maps(maps: tuple[MixingMap, ...], key: str, name: str) -> None:
    st.markdown("**How the mixers mix**")
    st.caption(
        "The first tokens of the validation data, at the end of training: how strongly a mixer's output at one token "
        "(row) answers to its input at another (column), as a root mean square. Colours are logarithmic, from a "
        "thousandth of each map's largest entry; less is left blank."
    )
    for number, one in enumerate(maps):
        if number % ABREAST == 0:
            columns = st.columns(min(ABREAST, len(maps)))
        with columns[number % ABREAST]:
            st.caption(escape(f"{one.part}, up to {one.highest:.3g}"))
            chart(_map(one), f"map-{one.part}".replace(" ", "-"), f"Mixing map of {one.part} of {name}: {told(one)}")
            st.caption(escape(told(one)))
    rows = [
        {"mixer": one.part, "output token": i, "input token": j, "value": value}
        for one in maps
        for i, row in enumerate(one.rows, 1)
        for j, value in enumerate(row, 1)
    ]
    files = table_files(f"trial_{key[:12]}_maps", pd.DataFrame(rows))
    export(files | figure_files(f"trial_{key[:12]}_maps", lambda: draw_maps(maps)), "maps")


def told(one: MixingMap) -> str:
    """A map in words."""
    if one.own is None or one.reach is None:
        return f"{len(one.rows)} output by {len(one.rows[0])} input tokens"
    return f"{100 * one.own:.0f} % from the token itself; {one.reach:.1f} tokens away on average"


def _map(one: MixingMap) -> go.Figure:
    made = figure(380)
    top = math.log10(one.highest or 1.0)
    powers = [
        [math.log10(value) if value and math.log10(value) >= top - DECADES else None for value in row]
        for row in one.rows
    ]
    made.add_heatmap(
        z=powers, x0=1, y0=1, zmin=top - DECADES, zmax=top, colorscale="Cividis", showscale=False, customdata=one.rows,
        hovertemplate="output %{y} from input %{x}<br>%{customdata:.3g}<extra></extra>",
    )  # fmt: skip
    made.update_yaxes(autorange="reversed", scaleanchor="x", constrain="domain", showgrid=False, title="output token")
    made.update_xaxes(constrain="domain", showgrid=False, title="input token")
    made.update_layout(margin={"l": 8, "r": 8, "t": 8, "b": 36})
    return made
