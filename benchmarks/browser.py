"""The browser in which the dashboard is timed, photographed and tested: the system's Chromium."""

from __future__ import annotations

import os
import shutil
from typing import Any

_COMMANDS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chromium-headless-shell")

IDLE = """
() => document.querySelector('[data-testid="stApp"][data-test-script-state="notRunning"]')
    && document.querySelector('[data-testid="stMain"] [data-testid="stHeading"]')
    && !document.querySelector('[data-testid="stSpinner"], [data-testid="stSkeleton"], [data-stale="true"]')
"""
"""Whether a page of Streamlit is drawn and nothing runs."""


def find_browser() -> str | None:
    """The path of the browser; None if none is installed."""
    return next(filter(None, map(shutil.which, _COMMANDS)), None)


def launch(playwright: Any, browser: str) -> Any:
    """Start a browser with Playwright; its sandbox does not work for root."""
    return playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"] if os.geteuid() == 0 else [])
