"""The frame of the dashboard, run by Streamlit: navigation, choice of a study, saved views, and error messages.

Saved views are addresses of pages by name, in a file beside the store, listed in the sidebar.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import streamlit as st
from streamlit.navigation.page import Page

from ablate.errors import AblateError
from dashboard.shared.exports import dark
from dashboard.shared.frame import SIDEBAR, admit, choose_study, navigation, page_of, style
from dashboard.shared.store import location, read_only
from dashboard.shared.text import escape, one_line, prose

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
        plain = json.loads(file.read_text(encoding="utf-8"))
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


_WATCH = """
export default function({ data, setTriggerValue }) {
    const app = document.querySelector('[data-testid=stApp]')
    const compare = () => {
        if ((getComputedStyle(app).colorScheme === 'dark') !== data.dark) setTriggerValue('turned', true)
    }
    const observer = new MutationObserver(compare)
    observer.observe(app, { attributes: true, attributeFilter: ['class'] })
    compare()
    return () => observer.disconnect()
}
"""


def follow_light() -> None:
    """Rerun the page when the browser switches between light and dark: figures get their colours when it runs.

    Streamlit restyles its own elements without a rerun when the system's scheme or the chosen theme changes.
    """
    watch = st.components.v2.component("light", js=_WATCH)
    watch(key="light", data={"dark": dark()}, on_turned_change=lambda: None, height=1)


st.set_page_config(page_title="ablate", page_icon=str(Path(__file__).with_name("icon.svg")), layout="wide",
                   initial_sidebar_state=SIDEBAR)  # fmt: skip
st.html(style())

admit()
page = navigation()
with st.sidebar:
    choose_study()
    saved_views(page)
    follow_light()
try:
    page.run()
except AblateError as error:
    st.error(prose(str(error)))
