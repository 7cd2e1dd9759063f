"""Plotly figures in the style of the dashboard, and pictures, each with a text for screen readers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
import streamlit as st
from plotly.colors import sample_colorscale

from shared.colours import dark


def figure(height: int = 420, **layout: Any) -> go.Figure:
    """An empty figure of this height in pixels; `layout` is Plotly's."""
    made = go.Figure()
    made.update_layout(
        height=height,
        margin={"l": 8, "r": 8, "t": 28, "b": 72},
        legend={
            "orientation": "h",
            "xref": "container",
            "x": 0,
            "yref": "container",
            "y": 0,
            "yanchor": "bottom",
            "itemsizing": "constant",
        },
        hoverlabel={"namelength": -1, "align": "left"},
        **layout,
    )
    return made


def ink() -> str:
    """The colour of text and lines."""
    return "#d5dce5" if dark() else "#33404f"


def grey() -> str:
    """The colour of less important marks."""
    return "#8b97a8" if dark() else "#667180"


def faint() -> str:
    """The colour of background marks."""
    return "rgba(200,210,225,0.16)" if dark() else "rgba(60,75,95,0.13)"


def scale(count: int, on_dark: bool) -> list[str]:
    """Colours along one scale, the first darkest, as far as they contrast with the page; as #rrggbb."""
    low, high = (0.45, 1.0) if on_dark else (0.0, 0.8)
    places = [low + (high - low) * number / max(1, count - 1) for number in range(count)]
    rgb = sample_colorscale("Cividis", places, colortype="tuple")
    return ["#" + "".join(f"{round(255 * channel):02x}" for channel in colour) for colour in rgb]


def chart(made: go.Figure, key: str, alt: str, picks: bool = False) -> Any:
    """Show a figure.

    Args:
        made: The figure.
        key: Unique on its page.
        alt: What it shows, for screen readers.
        picks: Whether its points can be selected; a selection runs the page again.

    Returns:
        The selected points, if `picks`.
    """
    _write_in_ink(made)
    config = {"displaylogo": False, "toImageButtonOptions": {"format": "svg", "filename": key}}
    if picks:
        return st.plotly_chart(made, key=key, alt=alt, config=config, on_select="rerun", selection_mode="points")
    return st.plotly_chart(made, key=key, alt=alt, config=config)


def _write_in_ink(made: go.Figure) -> None:
    """Give all text of a figure the colour of text; Streamlit's colour is too pale."""
    made.update_layout(font_color=ink(), legend_font_color=ink())
    made.update_xaxes(tickfont_color=ink(), title_font_color=ink())
    made.update_yaxes(tickfont_color=ink(), title_font_color=ink())
    made.update_annotations(font_color=ink())


def picture(svg: str, alt: str) -> None:
    """Show an SVG document on the background and in the colours of the page; as an image, so that no script runs."""
    st.image(on_page(svg, dark()), alt=alt)


def on_page(svg: str, is_dark: bool) -> str:
    """The document without a background, light or dark as the page is, whatever the system's preference."""
    clear = svg.replace('<rect class="paper" ', '<rect class="paper" style="fill: none" ', 1)
    return clear.replace("(prefers-color-scheme: dark)", "all" if is_dark else "not all")


_SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)" width="[\d.]+"')


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
