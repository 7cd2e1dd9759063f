"""Reruns a page when its colour scheme changes: figures and captions get their colours when the script runs."""

from __future__ import annotations

import streamlit as st

from shared.colours import dark

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
    """Rerun the page when the browser switches between light and dark.

    Streamlit restyles its own elements without a rerun when the system's scheme or the chosen theme changes.
    """
    watch = st.components.v2.component("light", js=_WATCH)
    watch(key="light", data={"dark": dark()}, on_turned_change=lambda: None, height=1)
