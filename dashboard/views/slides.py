"""Slides: the slides that `ablate report --format slides` writes, to be shown and printed."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

import streamlit as st

from ablate.analysis.changes import variant_titles
from ablate.errors import printable
from ablate.render.figures.style import Palette
from ablate.render.formats.html import colours
from ablate.render.formats.slides import shown_variant
from dashboard.shared.exports import dark, export, image
from dashboard.shared.frame import begin_page, choose_in_words
from dashboard.shared.pictures import drafter
from dashboard.shared.results import any_ended
from dashboard.shared.store import location, report, stamp
from dashboard.shared.text import prose
from dashboard.views import Entry

ENTRY = Entry("Slides", ":material/slideshow:", "This study", 100, variants=2)

_WITHIN = """
:scope { container-type: inline-size; --rem: 1rem; }
section { min-height: 0 !important; border: 1px solid var(--rule); border-radius: 0.5rem; margin-bottom: 1rem; }
@media (min-width: 701px) { section { --rem: max(0.7rem, 1.25cqw); aspect-ratio: 16 / 9; font-size: var(--rem); } }
.text :is(p:not(.source), ul, li) { font-size: inherit !important; }
:is(dl, dt, dd) { padding: 0 !important; }
"""
"""The slides one below the other, each as wide as the page and of 16:9, on a phone as tall as what it says."""
_SIZE = re.compile(r"(?<=[ (:])([\d.]+)rem")
_SCHEME = "(prefers-color-scheme: dark)"


def show() -> None:
    """Draw the page."""
    study = begin_page("Slides")
    study_report = report(study)
    if not any_ended(study):
        return
    names = [variant.name for variant in study_report.record.variants if variant.name != study_report.record.baseline]
    first = shown_variant(study_report)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        box = partial(st.selectbox, help="The variant whose block stands beside the baseline's", width=360)
        titles = variant_titles(study_report.record)
        after = choose_in_words(box, "Block after", "after", names, first if first in names else names[0], titles)
        place = st.container()
    with st.spinner("Drawing the blocks and the comparisons"):
        made = _talk(location(), study, after, stamp(study))
    if not made.get("html"):
        st.error(prose(str(made.get("problem") or "The process that draws them failed; the terminal shows the error.")))
        return
    page = printable(str(made["html"]))
    with place:
        export({f"{study}_slides.html": lambda: page}, "slides")
    scheme = "(min-width: 1px)" if dark() else "not all"
    shown = page.replace(f"screen and {_SCHEME}", f"screen and {scheme}" if dark() else scheme)
    _show(shown)
    st.caption("The file under Export opens offline, fills a screen with each slide, and prints each as a page.")


def _show(page: str) -> None:
    """Show the slides as a part of the page, which scrolls as one; `st.html` lets no script run.

    It takes out SVG elements, so these become images, in which there are no variables of the page.
    """
    style, body = (page.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0] for tag in ("style", "body"))
    palette = Palette(dark())
    for variable, colour in re.findall(r"(--[\w-]+): (#\w+);", colours(dark=dark())):
        body = body.replace(f"var({variable})", colour)
    body = re.sub(r"<svg.*?</svg>", lambda svg: image(svg[0].replace("currentColor", palette.ink)), body)
    style = re.sub(":root|body(?= {)", ":scope", style).replace("table.answer svg", "table.answer :is(svg, img)")
    style = _SIZE.sub(r"calc(\1 * var(--rem))", style) + _WITHIN
    body = re.sub(r'(?<=style="width: )([\d.]+)rem', r"calc(\1 * var(--rem))", body)
    st.html(f"<style>@scope (.slides) {{{style}}}</style>")
    st.html(f'<div class="slides">{body}</div>')


@st.cache_data(show_spinner=False, max_entries=16)
def _talk(location: str, study: str, after: str | None, at: tuple[Any, ...]) -> dict[str, Any]:
    said = drafter().answer(json.dumps(["talk", study, location, after]))
    answer: dict[str, Any] = json.loads(said) if said else {}
    return answer
