"""Pictures of blocks. They need torch, which the dashboard does not load: a process of their own draws them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from select import select
from threading import Lock
from typing import Any
from weakref import finalize

import streamlit as st

from shared.charts import picture
from shared.store import options
from shared.text import escape

Model = Mapping[str, Any]
PATIENCE = 60.0
"""Seconds that an answer may take: an address may hold a draft that takes hours to look at."""


class Painter:
    """The process that runs `drafter.py`; started when needed, again if it has died."""

    def __init__(self, plugins: list[str], patience: float | None = PATIENCE) -> None:
        self._command = [sys.executable, "-P", str(Path(__file__).parents[1] / "drafter.py"), *plugins]
        self._patience = patience
        self._lock = Lock()
        self._process: subprocess.Popen[str] | None = None

    def draw(self, request: str) -> str:
        """The answer to a line of JSON; empty if the process fails, or needs longer than `patience` seconds."""
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
    """End a process that no session uses."""
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


def block_svg(name: str, model: Model, versus: tuple[str, Model] | None = None) -> str:
    """The picture of a block as an SVG document; empty if its kind of mixer is not known here.

    Args:
        name: What to call it.
        model: `model` of a variant's plain spec.
        versus: Name and model to compare it with: pale and dashed what went, in colour what came.
    """
    return _svg(json.dumps(["picture", name, model, versus]))


def block_files(
    file: str, name: str, model: Model, versus: tuple[str, Model] | None = None
) -> dict[str, Callable[[], str]]:
    """The picture of a block as an SVG file; see `block_svg`."""
    return {f"{file}.svg": lambda: block_svg(name, model, versus)}


@st.fragment(parallel=True)
def block_picture(name: str, model: Model, versus: tuple[str, Model] | None = None) -> None:
    """Show the picture of a block; the rest of the page does not wait for it."""
    with st.spinner("Drawing"):
        svg = block_svg(name, model, versus)
    if svg:
        beside = f", compared with {versus[0]}" if versus else ""
        picture(svg, f"Block diagram of {name}{beside}")
    else:
        st.caption(f"{escape(name)} has a mixer of a kind that is not known here: start with `--plugin FILE.py`.")
