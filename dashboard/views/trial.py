"""Trial: one training run."""

from __future__ import annotations

import streamlit as st


def show() -> None:
    """Draw the page."""
    st.header("Trial")
