"""The navigation, the study that all pages look at, and links between pages that keep it."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Sequence
from importlib import import_module

import streamlit as st
from streamlit.navigation.page import Page

from ablate.errors import NotFoundError
from shared.store import options, record, studies
from shared.text import escape
from views import PAGES, Entry

_ADDRESSED = "study in the address"
_ADMITTED = "the token was given"
_PAGES: dict[str, Page] = {}
STUDY = "study"
"""The parameter of the address that names the study."""
_UNKNOWN = "study in the address that the store does not have"
LONGEST_TITLE = 200
"""Characters of a question in the heading of a page."""
SIDEBAR = 232
"""Width of the navigation in pixels."""
STYLE = """<style>
[data-testid="stMainBlockContainer"] { padding-left: 2.5rem; padding-right: 2.5rem; }
@media (max-width: 640px) {
    [data-testid="stMainBlockContainer"] { padding-left: 1rem; padding-right: 1rem; }
}
</style>"""
"""Gives tables and figures the width that Streamlit leaves empty on both sides of a page."""


def navigation() -> Page:
    """Make the navigation; the page that the address names."""
    for entries in PAGES.values():
        for entry in entries:
            _PAGES[entry.name] = _page(entry)
    groups = {heading: [_PAGES[entry.name] for entry in entries] for heading, entries in PAGES.items()}
    return st.navigation(groups, expanded=True)


def admit() -> None:
    """Ask for the token of this dashboard, if it has one; the page ends until it is given."""
    token = str(options()["token"])
    if not token or st.session_state.get(_ADMITTED):
        return
    given = st.text_input("Token", type="password", key="token", help="`ablate dashboard` has printed it.")
    if given and hmac.compare_digest(given.encode(), token.encode()):
        st.session_state[_ADMITTED] = True
        st.rerun()
    if given:
        time.sleep(1.0)
        st.error("This is not the token of this dashboard.")
    st.stop()


def choose_study() -> None:
    """The picker of the study; the address names it, and the latest is chosen where it names none."""
    try:
        names = [study.name for study in studies()]
    except NotFoundError:
        return
    if not names:
        return
    asked = st.query_params.get(STUDY)
    if asked and asked != st.session_state.get(_ADDRESSED):  # a link, a bookmark, or the browser's way back
        st.session_state[STUDY] = asked if asked in names else None
        st.session_state[_UNKNOWN] = None if asked in names else asked
        st.session_state[_ADDRESSED] = asked
    elif st.session_state.get(STUDY) not in names and not st.session_state.get(_UNKNOWN):
        st.session_state[STUDY] = names[0]
    chosen = st.selectbox("Study", names, key=STUDY, help="What all pages look at.", placeholder="Choose a study")
    if chosen is None:
        return
    # Not by the box's own binding to the address: that keeps its value against the one that a link names.
    st.query_params[STUDY] = st.session_state[_ADDRESSED] = chosen
    st.session_state[_UNKNOWN] = None


def unknown_study() -> None:
    """Say that the address names a study that the store does not have, if it does."""
    asked = st.session_state.get(_UNKNOWN)
    if asked:
        st.error(f"There is no study {escape(asked, 80)} in this store. Choose one of {len(studies())} at the side.",
                 icon=":material/help:")  # fmt: skip


def chosen_study() -> str:
    """The chosen study; without one, the page says how to choose or to create one, and stops."""
    if st.session_state.get(_UNKNOWN):
        st.header("No such study", anchor=False)
        unknown_study()
        st.stop()
    name = st.session_state.get(STUDY)
    if name is None:
        no_study_yet()
        st.stop()
    return str(name)


def begin_page(title: str) -> str:
    """Begin a page about the chosen study: its question as the heading, below it the page and the study's name.

    Args:
        title: Of the page.

    Returns:
        The name of the study. Without one the page says how to choose or to create one, and stops.
    """
    study = chosen_study()
    st.header(escape(record(study).question or study, LONGEST_TITLE), anchor=False)
    st.caption(f"{escape(title)} of the study **{escape(study, 80)}**")
    return study


def warn_of_unknown(parameter: str, known: Sequence[str]) -> None:
    """Say which values of a parameter of the address this study does not have; its box shows another one then.

    To be called before the box that is bound to the parameter is made: that removes what it does not know.
    """
    missing = [value for value in st.query_params.get_all(parameter) if value and value not in known]
    if missing:
        names = ", ".join(escape(value, 80) for value in missing)
        st.warning(f"The address asks for {parameter} {names}, which this study does not have.",
                   icon=":material/help:")  # fmt: skip


def no_study_yet() -> None:
    """How to make the first study."""
    st.subheader("No study yet")
    st.markdown("A study answers which parts of a Transformer block are needed. Make the first one in a terminal:")
    st.code("ablate study simplify_block", language="bash")
    st.markdown("or write a question of your own, and run that:")
    st.code("ablate new my_question\nablate study my_question.yaml", language="bash")
    st.markdown("This page fills as soon as the first trial is planned.")


def link(page: str, label: str, **parameters: str | list[str]) -> None:
    """A link to a page of this dashboard; the study stays what it is unless `parameters` names another."""
    study = st.session_state.get(STUDY)
    kept = {STUDY: str(study)} if study is not None else {}
    entry = next(entry for entries in PAGES.values() for entry in entries if entry.name == page)
    st.page_link(_PAGES[page], label=escape(label), icon=entry.icon, query_params={**kept, **parameters})


def _page(entry: Entry) -> Page:
    def show() -> None:
        module: Callable[[], None] = import_module(f"views.{entry.name}").show
        module()

    return st.Page(show, title=entry.title, icon=entry.icon, url_path=entry.name, default=entry.name == "studies")
