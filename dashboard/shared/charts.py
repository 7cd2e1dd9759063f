"""Figures and pictures on a page, each with a text for screen readers, and the choice of a figure's axes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ablate.analysis.curves import Axis, Loss
from ablate.render.figures.style import Palette, Spec, themed

Draw = Callable[[Palette], Spec]
"""Draws a figure in the colours of a page or of paper."""
AXES: dict[Axis, str] = {"steps": "steps", "tokens": "tokens", "flops": "FLOP"}
LOSSES: dict[Loss, str] = {"val_loss": "validation", "train_loss": "training"}
_SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)" width="[\d.]+"')


def dark() -> bool:
    """Whether the page is dark."""
    return bool(st.context.theme.type == "dark")


def chart(draw: Draw, key: str, alt: str, *, picks: bool = False) -> list[dict[str, Any]]:
    """Show a figure in the colours of the page.

    Args:
        draw: Draws it.
        key: Unique on its page.
        alt: What it shows, for screen readers.
        picks: Whether its points can be picked, which runs the page again.

    Returns:
        What the picked points are, if `picks`.
    """
    palette = Palette(dark())
    spec = themed(draw(palette), palette)
    if not picks:
        st.vega_lite_chart(spec=spec, key=key, alt=alt, theme=None)
        return []
    event = st.vega_lite_chart(spec=spec, key=key, alt=alt, theme=None, on_select="rerun", selection_mode="picked")
    return list(event["selection"].get("picked", []))


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


def picture(svg: str, alt: str) -> None:
    """Show an SVG document on the background and in the colours of the page; as an image, so that no script runs."""
    st.image(on_page(svg, dark()), alt=alt)


def on_page(svg: str, is_dark: bool) -> str:
    """The document without a background, light or dark as the page is, whatever the system's preference."""
    clear = svg.replace('<rect class="paper" ', '<rect class="paper" style="fill: none" ', 1)
    return clear.replace("(prefers-color-scheme: dark)", "all" if is_dark else "not all")


def width_of(svg: str) -> float:
    """The width of a picture in pixels; 0 if there is none."""
    size = _SIZE.search(svg)
    return float(size[1]) if size else 0.0


def widened(svgs: Sequence[str]) -> list[str]:
    """The same pictures padded to equal width, so that columns of equal width show them at one scale."""
    widest = max(map(width_of, svgs), default=0.0)

    def wide(size: re.Match[str]) -> str:
        left = (float(size[1]) - widest) / 2
        return f'viewBox="{left:g} 0 {widest:g} {size[2]}" width="{widest:g}"'

    return [_SIZE.sub(wide, svg, count=1) for svg in svgs]
