"""Runs the page again when it turns dark or light: figures and captions take their colours where the page is made."""

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
    """Run the page again once the browser shows it in another light than that in which it was made.

    Streamlit itself draws the page anew without asking for it: by day's end, or by the menu of settings.
    """
    watch = st.components.v2.component("light", js=_WATCH)
    watch(key="light", data={"dark": dark()}, on_turned_change=lambda: None, height=1)
