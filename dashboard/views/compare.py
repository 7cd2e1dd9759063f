"""Compare: two to six variants or trials side by side."""

from __future__ import annotations

import streamlit as st


def show() -> None:
    """Draw the page."""
    st.header("Compare")
