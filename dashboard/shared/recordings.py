"""Figures of a trial's model: norms of its blocks over training, and mixing maps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pandas as pd
import streamlit as st

from ablate.analysis.curves import QUANTITIES, WHOLE, BlockRecordings, MixingMap, Quantity, band, block_recordings
from ablate.render.figures.curves import draw_bands
from ablate.render.figures.style import WIDTH, Palette, Spec, layers, mark
from dashboard.shared.exports import chart, export, figure_files, table_files
from dashboard.shared.store import store
from dashboard.shared.text import escape

SAID: dict[Quantity, str] = {"gradients": "gradients", "weights": "weights", "spread": "spread of mixing"}
PARTS = {WHOLE: "whole block", "mlp": "MLP", "rest": "norms and gains", "cross": "cross-attention"}
ABREAST = 3
"""Number of maps in a row."""
DECADES = 3
"""Powers of ten that the colours of a map span."""


def show_inside(key: str, name: str) -> None:
    """Draw the recordings of a trial, if it has any."""
    inside = block_recordings(store().recordings(key))
    if inside is None:
        return
    st.header("Inside the blocks", anchor=False)
    _norms(inside, key, name)
    if inside.maps:
        _maps(inside.maps, key, name)


def _norms(inside: BlockRecordings, key: str, name: str) -> None:
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
    bands = {block: band([one]) for block, one in lines.items()}

    def draw(palette: Palette) -> Spec:
        looks = {block: palette.look(number) for number, block in enumerate(bands)}
        return draw_bands(bands, looks, palette, ("steps", QUANTITIES[quantity]), height=300, whole=True)

    chart(draw, "inside-curve", f"{QUANTITIES[quantity]} by block: {ends}"[:1000])
    rows = [
        {"step": recording.step, "quantity": of, "part": where, "value": value}
        for recording in inside.recordings
        for of in SAID
        for where, value in recording.values.get(of, {}).items()
    ]
    files = table_files(f"trial_{key[:12]}_blocks", pd.DataFrame(rows))
    export(files | figure_files(f"trial_{key[:12]}_{quantity}", draw), "inside")


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
            alt = f"Mixing map of {one.part} of {name}: {told(one)}"
            chart(partial(draw_map, one), f"map-{one.part}".replace(" ", "-"), alt)
            st.caption(escape(told(one)))
    rows = [
        {"mixer": one.part, "output token": i, "input token": j, "value": value}
        for one in maps
        for i, row in enumerate(one.rows, 1)
        for j, value in enumerate(row, 1)
    ]
    files = table_files(f"trial_{key[:12]}_maps", pd.DataFrame(rows))
    export(files | figure_files(f"trial_{key[:12]}_maps", partial(draw_maps, maps)), "maps")


def told(one: MixingMap) -> str:
    """A map in words."""
    if one.own is None or one.reach is None:
        return f"{len(one.rows)} output by {len(one.rows[0])} input tokens"
    return f"{100 * one.own:.0f} % from the token itself; {one.reach:.1f} tokens away on average"


def draw_map(one: MixingMap, palette: Palette) -> Spec:
    """A map on its own logarithmic scale: three powers of ten up to its largest entry."""
    top = one.highest or 1.0
    cells = [
        {"output": i, "input": j, "value": value}
        for i, row in enumerate(one.rows, 1)
        for j, value in enumerate(row, 1)
        if value is not None and value >= top / 10**DECADES
    ]
    scheme = {"type": "log", "domain": [top / 10**DECADES, top], "scheme": "cividis"}
    colour = {"field": "value", "type": "quantitative", "scale": scheme, "legend": None}
    tokens = {
        axis: {"field": axis, "type": "ordinal", "scale": {"domain": [*range(1, size + 1)]}, "title": f"{axis} token",
               "axis": {"labelAngle": 0, "labelOverlap": True, "grid": False}}
        for axis, size in (("input", len(one.rows[0])), ("output", len(one.rows)))
    }  # fmt: skip
    tip = [{"field": field, "title": field} for field in ("output", "input", "value")]
    channels = {"x": tokens["input"], "y": tokens["output"], "color": colour, "tooltip": tip}
    return layers([mark("rect", cells, channels)], 280)


def draw_maps(maps: Sequence[MixingMap], palette: Palette) -> Spec:
    """All maps on one sheet, with their largest entries in their titles."""
    size = {"width": WIDTH / ABREAST - 60, "height": WIDTH / ABREAST - 60}
    sheets = [
        {key: part for key, part in draw_map(one, palette).items() if key != "autosize"}
        | {**size, "title": f"{one.part}, to {one.highest:.3g}"}
        for one in maps
    ]
    return {"concat": sheets, "columns": ABREAST, "resolve": {"scale": {"color": "independent"}}}
