"""The frame of the dashboard, run by Streamlit: navigation, choice of a study, saved views, and error messages."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from ablate.errors import AblateError
from dashboard.shared.exports import dark
from dashboard.shared.frame import SIDEBAR, admit, choose_study, navigation, saved_views, style
from dashboard.shared.text import prose

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
