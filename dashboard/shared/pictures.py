"""Pictures of blocks and checks of drafts, by processes that run `drafter.py`, which imports torch."""

from __future__ import annotations

import base64
import json
import subprocess
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from select import select
from threading import Lock
from typing import Any
from weakref import finalize

import streamlit as st
from pydantic_core import from_json

from ablate.analysis.answer import verdicts_on_parts
from ablate.analysis.report import StudyReport
from ablate.processes import child_environment, python_command
from ablate.spec.paths import WORDS
from dashboard.shared.exports import dark, on_page, picture, widened, width_of
from dashboard.shared.frame import link
from dashboard.shared.schema import to_yaml
from dashboard.shared.store import options
from dashboard.shared.text import escape

_PATIENCE, _START = 60.0, 300.0
"""Seconds that a quick answer may take, since checking a draft from an address may take hours; seconds to start."""


class Drafter:
    """A process that runs `drafter.py`; started when needed, and restarted if it has died.

    Args:
        plugins: Paths of plugin files that it imports.
        patience: Seconds that an answer may take; None for no limit.
    """

    def __init__(self, plugins: list[str], patience: float | None) -> None:
        self._command = python_command(str(Path(__file__).parents[1] / "drafter.py"), *plugins)
        self._patience = patience
        self._lock = Lock()
        self._process: subprocess.Popen[str] | None = None

    def answer(self, request: str) -> str:
        """The answer to a line of JSON; empty if the process fails or takes longer than `patience` seconds."""
        with self._lock:
            process = self._process
            if process is None or process.poll() is not None:
                process = self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    encoding="utf-8",
                    env=child_environment(),
                )
                finalize(self, _end, process)
                # On a busy machine importing torch takes longer than an answer may: ended then, it would never start.
                if not _line(process, _START):
                    return ""
            assert process.stdin is not None
            try:
                process.stdin.write(f"{request}\n")
                process.stdin.flush()
            except BrokenPipeError:
                return ""
            answer = _line(process, self._patience)
        return str(json.loads(answer)) if answer else ""


def _line(process: subprocess.Popen[str], patience: float | None) -> str:
    """The next line of a process's output; empty if it fails, or has none after `patience` seconds and is ended."""
    assert process.stdout is not None
    if select([process.stdout], [], [], patience)[0]:
        return process.stdout.readline()
    _end(process)
    return ""


def _end(process: subprocess.Popen[str]) -> None:
    """End a process that no session uses any longer."""
    process.kill()
    with suppress(BrokenPipeError), process:
        pass


@st.cache_resource(show_spinner=False)
def drafter(*, slow: bool = False) -> Drafter:
    """One process for quick requests and one for slow ones, so that a click does not wait for an earlier estimate."""
    return Drafter([str(plugin) for plugin in options()["plugins"]], None if slow else _PATIENCE)


Draft = dict[str, Any]
ORDER = ("name", "question", "source", "task", "model", "training", "switches", "variants", "design", "objective")
"""Keys of a space in the order in which they are written; others follow."""
PARTS = ("task", "model", "training", "switches", "design", "objective")
"""The required parts of a draft, each a mapping."""
LONGEST = 1_000_000
"""Maximum number of characters of an unpacked draft."""


@st.cache_data(show_spinner=False, max_entries=500)
def _ask(request: str, *, slow: bool) -> Any:
    """The answer to a request; a failure is raised, because what is returned is cached."""
    said = drafter(slow=slow).answer(request)
    if not said:
        raise EOFError
    return json.loads(said)


def ask(name: str, *arguments: Any) -> Any:
    """The answer of a function of `drafter.py`; None if its process failed."""
    with suppress(EOFError):
        return _ask(json.dumps([name, *arguments], default=str), slow=name == "plan")
    return None


def text_of(draft: Mapping[str, Any]) -> str:
    """A draft as the text of a space file."""
    first = {key: draft[key] for key in ORDER if key in draft}
    return to_yaml(first | {key: value for key, value in draft.items() if key not in first})


def packed(draft: Mapping[str, Any]) -> str:
    """A draft as a parameter of an address."""
    text = json.dumps(draft, separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


def unpacked(parameter: str) -> Draft | None:
    """The draft in a parameter of an address; None if it holds none."""
    try:
        squeezed = base64.urlsafe_b64decode(parameter + "=" * (-len(parameter) % 4))
        opened = zlib.decompressobj()
        draft = from_json(opened.decompress(squeezed, LONGEST)) if squeezed else None  # no halves of characters
    except (ValueError, zlib.error):
        return None
    return draft if _is_draft(draft) else None


def _is_draft(draft: Any) -> bool:
    """Whether all parts exist and have the right type; their contents are validated later."""
    if not isinstance(draft, dict) or not all(isinstance(draft.get(part), dict) for part in PARTS):
        return False
    variants = draft.get("variants", {})
    settings = [one for one in draft["switches"].values() if isinstance(one, dict)]
    return (
        isinstance(draft["model"].get("block"), dict)
        and len(settings) == len(draft["switches"])
        and all(
            isinstance(paths, str if key in WORDS else dict) for setting in settings for key, paths in setting.items()
        )
        and isinstance(variants, dict)
        and all(isinstance(variant, dict) for variant in variants.values())
    )


_PICKING = """
export default function({ data, parentElement, setTriggerValue }) {
    const box = parentElement.querySelector('.block')
    box.innerHTML = data.svg
    for (const part of box.querySelectorAll('[data-part]')) {
        const pick = () => setTriggerValue('part', part.dataset.part)
        part.classList.toggle('picked', part.dataset.part === data.part)
        if (part.querySelector('rect')) {
            part.tabIndex = 0
            part.setAttribute('role', 'button')
            part.setAttribute('aria-label', part.dataset.part)
        }
        part.onclick = pick
        part.onkeydown = event => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); pick() } }
    }
}
"""
_PICKED = """
svg { max-width: 100%; height: auto; }
[data-part] { cursor: pointer; }
[data-part] .line { pointer-events: stroke; }
[data-part]:is(:hover, :focus-visible, .picked) > :is(rect, .line) { stroke: var(--st-primary-color); stroke-width: 3; }
[data-part]:is(:hover, .picked) > text { fill: var(--st-primary-color); }
"""


def pick_part(svg: str, part: str) -> str:
    """Show a picture of `pickable_svg` whose parts can be clicked; the part that was clicked now, or nothing.

    Args:
        svg: The document. It is part of the page, not an image, so it must not hold text that a user wrote.
        part: The slot that is marked.
    """
    block = st.components.v2.component("block", html='<div class="block"></div>', js=_PICKING, css=_PICKED)
    answer = block(key="block", data={"svg": on_page(svg, dark()), "part": part}, on_part_change=lambda: None)
    return str(answer.part or "")


Model = Mapping[str, Any]
ROOM = 1300
"""Maximum total width of pictures in one row, in pixels; wider ones are shown two in a row."""


def block_svg(name: str, model: Model, versus: tuple[str, Model] | None = None, *, titled: bool = True) -> str:
    """The drawing of a block as an SVG document; empty if its kind of mixer is unknown to this dashboard.

    Args:
        model: `model` of a variant's plain spec; empty if the user's trainer built it.
        versus: Name and model to compare it with: removed parts are pale and dashed, added ones coloured.
        titled: Whether the name is written above it.
    """
    return _drawn("picture", name, model, versus, titled)


def judged_svg(study_report: StudyReport) -> str:
    """The block of a study's baseline with the verdicts on its parts as an SVG document; empty if none is judged."""
    verdicts = verdicts_on_parts(study_report)
    if not verdicts:
        return ""
    record = study_report.record
    model = next(variant.spec["model"] for variant in record.variants if variant.name == record.baseline)
    return _drawn("judged", record.baseline, model, verdicts)


def _drawn(name: str, *arguments: Any) -> str:
    answer = ask(name, *arguments)
    return str(answer["svg"]) if answer else ""


def block_files(
    file: str, name: str, model: Model, versus: tuple[str, Model] | None = None
) -> dict[str, Callable[[], str]]:
    """The drawing of a block as an SVG file, with the arguments of `block_svg`; none without a model."""
    if not model:
        return {}
    return {f"{file}.svg": lambda: block_svg(name, model, versus)}


@dataclass(frozen=True, slots=True)
class BlockPicture:
    """A block to be drawn.

    Attributes:
        model: `model` of a variant's plain spec.
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
    if not all(one.model for one in blocks):
        st.caption("This study runs a trainer of your own: ablate does not know its model, and draws no block.")
        return
    with st.spinner("Drawing"):
        drawn = [block_svg(block.name, block.model, block.versus, titled=False) for block in blocks]
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
