"""The side bar, the study that all pages show, links between pages that keep it, and saved views.

Saved views are addresses of pages by name, in a file beside the store, listed in the sidebar.
"""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlencode

import streamlit as st
from pydantic_core import from_json
from streamlit.navigation.page import Page

from ablate.errors import NotFoundError
from ablate.render.figures.style import Palette
from ablate.render.formats.html import ANSWER_STYLE
from dashboard.shared.exports import code, dark, is_narrow
from dashboard.shared.store import (
    STORE,
    location,
    looking_at,
    options,
    read_only,
    record,
    store,
    stores,
    studies,
    summary,
)
from dashboard.shared.text import escape, one_line
from dashboard.views import PAGES, Entry

_ADDRESSED = " in the address"
_ADMITTED, _OPENED = "the token was given", "the dashboard was opened"
_PAGES: dict[str, Page] = {}
STUDY = "study"
"""The parameter of the address that names the study."""
_UNKNOWN = " in the address that is not there"
FIRST = "studies"
"""The page that the bare address of the dashboard shows."""
LONGEST_TITLE = 200
"""Characters of a question in the heading of a page."""
SIDEBAR = 232
"""Width of the navigation in pixels."""


_LAYOUT = """
[data-testid="stMainBlockContainer"] { padding-left: 2.5rem; padding-right: 2.5rem; }
@media (max-width: 640px) {
    [data-testid="stMainBlockContainer"] { padding: 3.5rem 1rem 2rem; }
    [data-testid="stMain"] h1 { font-size: 1.35rem; }
    [data-testid="stMultiSelect"] [role="group"] { max-height: none; }
}
[data-testid="stCaptionContainer"], [data-testid="stCaptionContainer"] * { opacity: 1; }
[data-testid="stSidebarUserContent"] [data-testid="stVerticalBlock"] { gap: 0.25rem; }
[data-testid="stSidebarUserContent"] [data-testid="stSelectbox"] { margin-bottom: 0.5rem; }
[data-testid="stMain"] h1 { padding: 0 0 0.6rem; }
[data-testid="stSidebarHeader"] { height: 2.5rem; }
[data-testid="stSidebar"] :is(a, button):focus-visible { outline: 2px solid currentColor; outline-offset: -2px; }
pre.code { margin: 0; padding: 0.5rem 0.75rem; max-height: 30rem; overflow: auto; white-space: pre-wrap;
    overflow-wrap: anywhere; user-select: all; font-size: 0.85rem; border-radius: 0.5rem;
    background: rgba(128, 140, 155, 0.12); }
[data-testid="stExpander"] summary { opacity: 1; }
[data-testid="stCheckbox"] label > div:first-of-type { box-shadow: inset 0 0 0 1px rgb(128, 140, 155); }
.scrolled { overflow-x: auto; }
ul.cards { list-style: none; margin: 0; padding: 0; }
ul.cards :is(a, div) { display: block; padding: 0.55rem 0; border-top: 1px solid rgba(128, 140, 155, 0.35);
    color: inherit; text-decoration: none; }
ul.cards a b { color: var(--link); text-decoration: underline; }
ul.cards :is(a, div) + * { border: 0; padding-top: 0; }
ul.cards a + a { color: var(--link); text-decoration: underline; }
ul.cards span { display: block; font-size: 0.875rem; overflow-wrap: anywhere; }
ul.cards strong { font-weight: 500; }
ul.cards img { float: right; max-width: 45%; height: 1.5rem; }
.scrolled td:first-child { min-width: 7rem; }
table.trials tr.of td { padding-top: 0.5rem; font-weight: 600; }
table.trials tr:not(.of) td { height: 1.75rem; }
table.trials tr:not(.of) td:first-child { padding-left: 1.5rem; }
@media (max-width: 640px) { .scrolled table.answer { font-size: 0.8rem; } .scrolled td:first-child { min-width: 5rem; }
    table.trials tr:not(.of) small { display: inline !important; }
    .judged table.answer tr.group { display: none; }
    .judged table.answer .verdict span { display: inline; } }
.variants { font-size: 0.9rem; font-variant-numeric: tabular-nums; }
.variants :is(.head, .of, .trial) { display: grid; gap: 0.75rem; align-items: center; min-height: 2rem;
    padding: 0.1rem 0; grid-template-columns: minmax(0, 1fr) 244px 7.5rem 5rem 8rem 3.5rem 5rem;
    border-bottom: 1px solid rgba(128, 140, 155, 0.3); }
.variants .head { font-size: 0.8rem; }
.variants summary { cursor: pointer; }
.variants summary .change::before { content: "▸ "; font-size: 1.1rem; }
.variants [open] summary .change::before { content: "▾ "; }
.variants div.of .change { padding-left: 0.9rem; }
.variants .trial .change { padding-left: 2rem; }
.variants .of :is(.number, a) { font-weight: 600; }
.variants .number { text-align: right; white-space: nowrap; }
.variants a { color: var(--link); }
.variants img { display: block; width: 244px; }
.variants .below { display: none; font-size: 0.8rem; }
.variants .head .number { white-space: normal; }
@media (max-width: 900px) {
    .variants :is(.head, .of, .trial) { grid-template-columns: minmax(0, 1fr) 7rem 4.5rem; gap: 0.1rem 0.3rem; }
    .variants :is(.wide, .strip:empty) { display: none; }
    .variants .of .change { grid-column: 1 / -1; }
    .variants .strip { grid-column: 1 / -1; order: 1; }
    .variants img, .variants .axis { width: 100%; }
    .variants .below:not(:empty) { display: block; }
}
ul.claims { list-style: none; margin: 0; padding: 0; }
ul.claims li { padding: 0.45rem 0; margin: 0; border-top: 1px solid rgba(128, 140, 155, 0.35); }
ul.claims summary { cursor: pointer; margin-left: 1rem; list-style-position: outside; }
ul.claims b { font-weight: 600; font-size: 0.8rem; padding: 0.1rem 0.4rem; margin-right: 0.25rem; border-radius: 0.3rem;
    border: 1px solid; }
ul.claims a { color: var(--link); }
ul.claims summary small { opacity: 0.8; }
ul.claims span { display: block; margin: 0.2rem 0 0 1rem; font-size: 0.875rem; overflow-wrap: anywhere; }
[data-testid="stMain"] [data-testid="stPageLink-NavLink"] :is(p, [data-testid="stIconMaterial"]) {
    color: var(--link); }
[data-testid="stMain"] [data-testid="stPageLink-NavLink"] p { text-decoration: underline; }
[class*="st-key-panels"] { overflow-x: auto; }
[class*="st-key-other-view"] [data-testid="stPageLink-NavLink"]:not(:hover, :focus-visible) { background: none; }
[class*="st-key-other-view"] [data-testid="stPageLink-NavLink"] * { font-weight: inherit; }
"""
_WORDS = {
    False: """
[data-testid="stCaptionContainer"] :is(p, li, strong), ul.claims span { color: #4d5664; }
""",
    True: """
[data-testid="stCaptionContainer"] :is(p, li, strong), ul.claims span { color: #b3bcc8; }
:is([role="radio"], [role="tab"])[data-selected="true"] p, [data-testid="stSliderThumbValue"] p { color: #7cc4f0; }
""",
}
_CLAIMED = {"supported": "not needed", "refuted": "needed", "undecided": "undecided"}
"""Verdicts on claims to those on variants whose colours they have."""
LINK = {False: "#005a91", True: "#7cc4f0"}
"""The colours of links, by whether the page is dark: `linkColor` of the themes."""
_OPEN = """
export default function({ data, parentElement }) {
    if (parentElement.opened) return
    parentElement.opened = true
    history.pushState(null, '', data)
    dispatchEvent(new PopStateEvent('popstate', { state: 'followed' }))
}
"""


def style() -> str:
    """CSS: narrower margins beside a page, and text colours with a contrast of at least 4.5:1."""
    palette, link = Palette(dark()), f":root {{ --link: {LINK[dark()]}; }}"
    claims = " ".join(
        f"ul.claims .{word} {{ color: {palette.verdict(looked).colour}; }}" for word, looked in _CLAIMED.items()
    )
    return f"<style>{link}{_LAYOUT}{ANSWER_STYLE}{_WORDS[dark()]}{claims}</style>"


def navigation() -> Page:
    """Register the pages, and return the one that the address names; the name of the first page leads to it, too."""
    for entries in PAGES.values():
        for entry in entries:
            _PAGES[entry.name] = _page(entry)
    named = st.Page(lambda: None, title=FIRST, url_path=FIRST)
    page = st.navigation([*_PAGES.values(), named], position="hidden")
    if page is named:
        st.switch_page(_PAGES[FIRST], query_params={name: st.query_params.get_all(name) for name in st.query_params})
    return page


def open_what_runs(page: Page) -> None:
    """Open the page Now running if a visitor opens the bare address of the dashboard while a study runs."""
    if _OPENED in st.session_state:
        return
    st.session_state[_OPENED] = True
    if page.url_path or st.query_params:
        return
    for name in stores():
        with looking_at(name), suppress(NotFoundError):
            for driver in store().activity().drivers:
                if driver.alive:
                    open_page("cluster", **choice(name, driver.study))


def side_bar(page: Page) -> None:
    """The choice of a study above the pages that apply to it, and the pages about all studies."""
    choose_study()
    study = st.session_state.get(STUDY)
    known = record(study) if study is not None and summary(study) is not None else None
    for heading, entries in PAGES.items():
        offered = [entry for entry in entries if entry.is_for(known)]
        if offered:
            st.caption(f"**{heading}**")
        for entry in offered:
            link(entry.name, entry.title)
    title = page.title if study is None else f"{page.title} · {one_line(study, LONGEST)}"
    st.set_page_config(page_title=f"{title} · ablate")
    saved_views(page)


def admit() -> None:
    """Ask for the token of this dashboard, if it has one; without it the page shows nothing else."""
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
    """The select boxes of the store, if there are several, and of the study.

    The address names both. If it names none, the first store and the latest study are chosen.
    """
    known = list(stores())
    if len(known) > 1 and _choose("Store", STORE, known, "Where the studies are kept.") is None:
        return
    try:
        names = [study.name for study in studies()]
    except NotFoundError:
        return
    if names:
        _choose("Study", STUDY, names, "The study that all pages show.")


def choice(store: str, study: str) -> dict[str, str]:
    """The parameters of the address that name a study and, if the dashboard shows several stores, its store."""
    return {STUDY: study, **({STORE: store} if len(stores()) > 1 else {})}


def look_at(store: str, study: str) -> None:
    """Make this study of this store the one that all pages show, from the next run of the page on.

    Call this only where that run follows: a later one may come from a fragment, with an address from before.
    """
    st.session_state.update(choice(store, study))


def _choose(label: str, parameter: str, names: list[str], said: str) -> str | None:
    """A select box bound to a parameter of the address.

    Streamlit's own binding is not used, because it keeps the value of the box when a link names another one.
    """
    addressed, unknown = f"{parameter}{_ADDRESSED}", f"{parameter}{_UNKNOWN}"
    asked = st.query_params.get(parameter)
    # A link, a bookmark, the browser's way back, a page opened by `open_page`, or a study that was started just now.
    new = asked != st.session_state.get(addressed) or parameter not in st.session_state
    if asked and (new or st.session_state.get(unknown) in names):
        st.session_state[parameter] = asked if asked in names else None
        st.session_state[unknown] = None if asked in names else asked
        st.session_state[addressed] = asked
    elif st.session_state.get(parameter) not in names and not st.session_state.get(unknown):
        st.session_state[parameter] = names[0]
    chosen: str | None = st.selectbox(label, names, key=parameter, help=said, placeholder=f"Choose a {label.lower()}")
    if chosen is not None:
        st.query_params[parameter] = st.session_state[addressed] = chosen
        st.session_state[unknown] = None
    return chosen


def unknown_study() -> bool:
    """Show an error if the address names a store or a study that does not exist; whether it does."""
    for parameter, known, where in ((STORE, len(stores()), "on this dashboard"), (STUDY, None, "in this store")):
        asked = st.session_state.get(f"{parameter}{_UNKNOWN}")
        if asked:
            count = len(studies()) if known is None else known
            st.error(f"There is no {parameter} {escape(asked, 80)} {where}. Choose one of {count} at the side.",
                     icon=":material/help:")  # fmt: skip
            return True
    return False


def chosen_study() -> str:
    """The chosen study; if none is chosen, the page shows how to choose or create one, and stops."""
    if any(st.session_state.get(f"{parameter}{_UNKNOWN}") for parameter in (STORE, STUDY)):
        st.title("No such study", anchor=False)
        unknown_study()
        st.stop()
    name = st.session_state.get(STUDY)
    if name is None:
        no_study_yet()
        st.stop()
    return str(name)


def begin_page(title: str) -> str:
    """Begin a page about the chosen study: the study's name and question, and the title of the page as the heading.

    Args:
        title: Title of the page; empty for one that writes its own heading.

    Returns:
        The name of the study. If none is chosen, the page shows how to choose or create one, and stops.
    """
    study = chosen_study()
    at = st.session_state.get(STORE)
    within = f" in the store **{escape(str(at), 80)}**" if at is not None else ""
    st.caption(f"**{escape(study, 80)}**{within}: {escape(record(study).question or 'no question', LONGEST_TITLE)}")
    if title:
        st.title(escape(title), anchor=False)
    return study


def warn_of_unknown(parameter: str, known: Sequence[str]) -> None:
    """Warn of values of a parameter of the address that this study does not have.

    Call this before the box that is bound to the parameter is created, which removes unknown values.
    """
    missing = [value for value in st.query_params.get_all(parameter) if value and value not in known]
    if missing:
        names = ", ".join(escape(value, 80) for value in missing)
        st.warning(f"The address asks for {parameter} {names}, which this study does not have.",
                   icon=":material/help:")  # fmt: skip


def choose_in_words(
    box: Callable[..., Any],
    label: str,
    parameter: str,
    names: Sequence[str],
    first: list[str] | str,
    titles: Mapping[str, str],
) -> Any:
    """The names that a box has chosen, which it shows by their titles; the address holds the names.

    Streamlit's own binding would hold the titles, which links do not know.

    Args:
        box: `selectbox` or `multiselect` of a place on the page.
        first: What is chosen before a visitor chooses; a list for a box that takes several.
    """
    several, addressed, asked = isinstance(first, list), f"{parameter}{_ADDRESSED}", st.query_params.get_all(parameter)
    # Streamlit may stop a run when the window changes its width; a box that this run had set would then stay empty.
    now, new = st.session_state.get(parameter), (asked, is_narrow()) != st.session_state.get(addressed)
    if new:
        warn_of_unknown(parameter, names)
    if new or now is None or not {*(now if several else [now])} <= {*names}:  # the last: of another study
        found = [name for name in asked if name in names] or [*([first] if isinstance(first, str) else first)]
        st.session_state[parameter] = found if several else found[0]
    chosen = box(label, names, key=parameter, format_func=lambda name: titles.get(name, name))
    wanted = [] if chosen == first else chosen if several else [chosen]
    st.session_state[addressed] = (wanted, is_narrow())
    if wanted != asked:
        st.query_params[parameter] = wanted
    return chosen


def no_study_yet() -> None:
    """Show how to create the first study."""
    st.header("No study yet", anchor=False)
    st.markdown("A study answers which parts of a Transformer block are needed. Make the first one in a terminal:")
    code("ablate study simplify_block")
    st.markdown("or write a question of your own, and run that:")
    code("ablate new my_question\nablate study my_question.yaml")
    st.markdown("This page fills as soon as the first trial is planned.")


def page_of(path: str) -> Page | None:
    """The page at a path of the address, which is empty for the first page; None if there is none."""
    return next((page for page in _PAGES.values() if page.url_path == path), None)


def link(page: str, label: str, **parameters: str | list[str]) -> None:
    """A link to a page of this dashboard; it keeps store and study unless `parameters` names others."""
    entry = next(entry for entries in PAGES.values() for entry in entries if entry.name == page)
    st.page_link(_PAGES[page], label=escape(label), icon=entry.icon, query_params=_kept() | parameters)


def open_page(page: str, **parameters: str) -> NoReturn:
    """Open a page as a click on its `link` does.

    The browser opens it. After `st.switch_page` a fragment with `run_every` may still ask for its next run until the
    browser knows of the new page; Streamlit answers with a run of the old page, at which the browser empties the new.
    """
    st.components.v2.component("open", js=_OPEN)(key=f"open {page}", data=address(page, **parameters))
    st.stop()


def address(page: str = "", **parameters: str) -> str:
    """The address of a page about the chosen study, or of this page with further parameters, for a link in a text."""
    kept = _kept() if page else {name: st.query_params.get_all(name) for name in st.query_params}
    return f"{page}?{urlencode(kept | parameters, doseq=True)}"


def _kept() -> dict[str, str | list[str]]:
    return {name: str(value) for name in (STORE, STUDY) if (value := st.session_state.get(name)) is not None}


def _page(entry: Entry) -> Page:
    def show() -> None:
        module: Callable[[], None] = import_module(f"dashboard.views.{entry.name}").show
        module()

    first = entry.name == FIRST
    return st.Page(show, title=entry.title, icon=entry.icon, url_path="" if first else entry.name, default=first)


LONGEST, MOST = 60, 100
"""Maximum number of characters of a name, and of views of a store."""
Views = dict[str, dict[str, list[str]]]
"""Name to the parameters of the address; the empty parameter is the page."""
PAGE = ""
THIS_VIEW, OTHER_VIEW = "this-view", "other-view"
"""Prefixes of the keys of links: of the current view, and of others."""


def views_file(store: str) -> Path:
    """The file with the views of a store; for a database on a server, in `studies` in the working folder."""
    if "://" in store:
        return Path("studies/server.views.json").absolute()
    return Path(store).expanduser().absolute().with_suffix(".views.json")


def read_views(file: Path) -> Views:
    """The views in a file, by name; none if there is no file, or if it holds something else."""
    try:
        plain = from_json(file.read_bytes())
    except (OSError, ValueError):
        return {}
    views: Views = {}
    for name, view in plain.items() if isinstance(plain, dict) else ():
        if isinstance(view, dict) and PAGE in view and all(isinstance(values, list) for values in view.values()):
            views[one_line(name, LONGEST)] = {key: [str(value) for value in values] for key, values in view.items()}
    return views


def write_views(file: Path, views: Mapping[str, Mapping[str, list[str]]]) -> None:
    """Write the views, all at once."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_suffix(".new")
    beside.write_text(json.dumps(views, indent=1), encoding="utf-8")
    beside.replace(file)


def saved_views(page: Page) -> None:
    """The saved views as links and, unless the store is read-only, controls that save the page and remove views."""
    file = views_file(location())
    views = read_views(file)
    seen = _seen(page.url_path)
    for number, (name, view) in enumerate(views.items()):
        target = page_of(view[PAGE][0] if view[PAGE] else "")
        if target is not None:
            # Streamlit marks every link to the page as the current one; the style of the keys marks only one view.
            with st.container(key=f"{THIS_VIEW if view == seen else OTHER_VIEW}-{number}"):
                st.page_link(target, label=escape(name), icon=":material/bookmark:",
                             query_params={key: values for key, values in view.items() if key != PAGE})  # fmt: skip
    if read_only():
        return
    with st.popover("Save view", icon=":material/bookmark_add:"):
        st.text_input(
            "Name", key="view-name", max_chars=LONGEST,
            help="Saves the page, its study and the state of its controls. A view of this name is replaced.",
        )  # fmt: skip
        st.button("Save", key="save-view", on_click=_save, args=(file, page.url_path), type="primary",
                  disabled=len(views) >= MOST)  # fmt: skip
        if views:
            gone = st.selectbox("Or remove", list(views), index=None, key="view-gone")
            st.button("Remove", key="remove-view", on_click=_remove, args=(file, gone), disabled=gone is None)


def _save(file: Path, page: str) -> None:
    """Save the view before the page is drawn again, so that its links include it and the address is unchanged."""
    name = one_line(str(st.session_state.get("view-name") or ""), LONGEST).strip()
    if name:
        _write(file, read_views(file) | {name: _seen(page)})
        st.session_state["view-name"] = ""


def _seen(page: str) -> dict[str, list[str]]:
    """The view that the address names."""
    return {PAGE: [page]} | {key: st.query_params.get_all(key) for key in st.query_params}


def _remove(file: Path, name: str | None) -> None:
    _write(file, {one: view for one, view in read_views(file).items() if one != name})


def _write(file: Path, views: Views) -> None:
    try:
        write_views(file, views)
    except OSError as error:
        st.toast(escape(f"{file} cannot be written: {error.strerror}"), icon=":material/error:")
