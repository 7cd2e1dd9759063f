"""Pictures of blocks, which a separate process draws."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from dashboard.shared.charts import picture, widened, width_of
from dashboard.shared.drafters import drafter
from dashboard.shared.frame import link
from dashboard.shared.text import escape

Model = Mapping[str, Any]
ROOM = 1300
"""Maximum total width of pictures in one row, in pixels; wider ones are shown two in a row."""


@st.cache_data(show_spinner=False, max_entries=1000)
def _svg(request: str) -> str:
    answer = drafter().answer(request)
    return str(json.loads(answer)["svg"]) if answer else ""


def block_svg(name: str, model: Model, versus: tuple[str, Model] | None = None, *, titled: bool = True) -> str:
    """The drawing of a block as an SVG document; empty if its kind of mixer is unknown to this dashboard.

    Args:
        name: Name of the block.
        model: `model` of a variant's plain spec.
        versus: Name and model to compare it with: removed parts are pale and dashed, added ones coloured.
        titled: Whether the name is written above it.
    """
    return _svg(json.dumps(["picture", name, model, versus, titled]))


def block_files(
    file: str, name: str, model: Model, versus: tuple[str, Model] | None = None
) -> dict[str, Callable[[], str]]:
    """The drawing of a block as an SVG file, with the arguments of `block_svg`."""
    return {f"{file}.svg": lambda: block_svg(name, model, versus)}


@dataclass(frozen=True, slots=True)
class BlockPicture:
    """A block to be drawn.

    Attributes:
        name: Its name.
        model: `model` of a variant's plain spec.
        caption: Text above it.
        versus: Name and model to compare it with.
        variant: The variant to whose trials a link above it leads; none if empty.
    """

    name: str
    model: Model
    caption: str = ""
    versus: tuple[str, Model] | None = None
    variant: str = ""


@st.fragment(parallel=True)
def block_pictures(blocks: Sequence[BlockPicture], abreast: int = 2) -> None:
    """Show drawings of blocks in rows, at one scale, without delaying the rest of the page."""
    with st.spinner("Drawing"):
        drawn = [block_svg(one.name, one.model, one.versus, titled=False) for one in blocks]
    if abreast * max(map(width_of, drawn)) > ROOM:
        abreast = min(2, abreast)
    for number, (one, svg) in enumerate(zip(blocks, widened(drawn), strict=True)):
        if number % abreast == 0:
            columns = st.columns(abreast)
        with columns[number % abreast]:
            st.caption(escape(one.caption or one.name))
            if one.variant:
                link("trial", f"Trials of {one.name}", variant=one.variant)
            if svg:
                picture(
                    svg, f"Block diagram of {one.name}" + (f", compared with {one.versus[0]}" if one.versus else "")
                )
            else:
                st.caption(
                    f"{escape(one.name)} has a mixer of a kind that is unknown here: start with `--plugin FILE.py`."
                )
