"""Pictures of blocks. They need torch, which the dashboard does not load; a separate process draws them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from select import select
from threading import Lock
from typing import Any
from weakref import finalize

import streamlit as st

from shared.charts import picture, widened, width_of
from shared.frame import link
from shared.store import options
from shared.text import escape

Model = Mapping[str, Any]
ROOM = 1300
"""Maximum total width of pictures in one row, in pixels; wider ones are shown two in a row."""
PATIENCE = 60.0
"""Seconds that an answer may take: checking a draft from an address may take hours."""


class Painter:
    """The process that runs `drafter.py`; started when needed, and restarted if it has died."""

    def __init__(self, plugins: list[str], patience: float | None = PATIENCE) -> None:
        self._command = [sys.executable, "-P", str(Path(__file__).parents[1] / "drafter.py"), *plugins]
        self._patience = patience
        self._lock = Lock()
        self._process: subprocess.Popen[str] | None = None

    def draw(self, request: str) -> str:
        """The answer to a line of JSON; empty if the process fails or takes longer than `patience` seconds."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
                )
                finalize(self, _end, self._process)
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            try:
                self._process.stdin.write(f"{request}\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                return ""
            if not select([self._process.stdout], [], [], self._patience)[0]:
                _end(self._process)
                return ""
            answer = self._process.stdout.readline()
        return str(json.loads(answer)) if answer else ""


def _end(process: subprocess.Popen[str]) -> None:
    """End a process that no session uses any longer."""
    process.kill()
    with suppress(BrokenPipeError), process:
        pass


@st.cache_resource(show_spinner=False)
def _painter() -> Painter:
    return Painter([str(plugin) for plugin in options()["plugins"]])


@st.cache_data(show_spinner=False, max_entries=1000)
def _svg(request: str) -> str:
    answer = _painter().draw(request)
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
