"""Curves: loss against steps, tokens, seconds or FLOPs, with bands over seeds."""

from __future__ import annotations

import streamlit as st


def show() -> None:
    """Draw the page."""
    st.header("Curves")
