"""The dashboard over a store of 100,000 trials, timed in the browser: first views and later clicks, beside targets.

A first view is timed from the address to the finished page, in a fresh tab; a click from the click to the finished
page. The server is warm: it has shown another study before.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ablate.store.migrations import SCHEMA_VERSION
from benchmarks.big_store import make_big_store

PORT = 8599
FIRST, LATER = 2.0, 0.5
REPEATS = 3
IDLE = """
() => document.querySelector('[data-testid="stApp"][data-test-script-state="notRunning"]')
    && document.querySelector('[data-testid="stMain"] [data-testid="stHeading"]')
    && !document.querySelector('[data-testid="stSpinner"], [data-testid="stSkeleton"], [data-stale="true"]')
"""
STUDIES = ("usual", "wide")
"""20 variants x 5 seeds, and 1,000 x 10; both in a store of 182 studies."""
PAGES = ("studies", "answer", "curves", "compare", "trial")


def main() -> None:
    """Print seconds, the best and the median of a few, beside the target."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        print("No Chromium is installed, so the dashboard was not timed.")
        return
    big = Path(tempfile.gettempdir()) / f"ablate_big_store_{SCHEMA_VERSION}.db"
    if not big.exists():
        make_big_store(big)
    from playwright.sync_api import sync_playwright

    print(f"{'page':10} {'study':6} {'what':12} {'target s':>9} {'best':>6} {'median':>7}")
    with _serving(big) as base, sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        _first(started, f"{base}/?study=study 0")  # the server's imports
        for study in STUDIES:
            for page in PAGES:
                address = f"{base}/{'' if page == 'studies' else page}?study={study}"
                _print(page, study, "first view", FIRST, [_first(started, address) for _ in range(REPEATS)])
                _print(page, study, "click", LATER, _clicks(started, address, page))
        started.close()


def _print(page: str, study: str, what: str, target: float, seconds: list[float]) -> None:
    best, median = min(seconds), statistics.median(seconds)
    missed = "" if median <= target else "  missed"
    print(f"{page:10} {study:6} {what:12} {target:9.1f} {best:6.2f} {median:7.2f}{missed}", flush=True)


def _first(browser: Any, address: str) -> float:
    with browser.new_context(viewport={"width": 1440, "height": 1000}) as context:
        tab = context.new_page()
        began = time.perf_counter()
        tab.goto(address)
        tab.wait_for_function(IDLE)
        return time.perf_counter() - began


def _clicks(browser: Any, address: str, page: str) -> list[float]:
    """Seconds of some clicks in one tab, after its first view; in a high window, since scrolling closes a list."""
    with browser.new_context(viewport={"width": 1440, "height": 4500}) as context:
        tab = context.new_page()
        tab.goto(address)
        tab.wait_for_function(IDLE)
        taken = []
        for click in _ACTIONS[page]:
            began = time.perf_counter()
            click(tab)
            tab.wait_for_timeout(20)  # until the page has noticed
            tab.wait_for_function(IDLE)
            taken.append(time.perf_counter() - began - 0.02)
        return taken


def _choose(label: str, number: int) -> Callable[[Any], None]:
    def act(tab: Any) -> None:
        tab.get_by_role("combobox", name=label).last.click()
        tab.get_by_role("option").nth(number).click()

    return act


def _press(role: str, name: str) -> Callable[[Any], None]:
    return lambda tab: tab.get_by_role(role, name=name).first.click()


def _tick(text: str) -> Callable[[Any], None]:
    return lambda tab: tab.get_by_test_id("stMain").get_by_text(text, exact=True).first.click()


_ACTIONS: dict[str, tuple[Callable[[Any], None], ...]] = {
    "studies": (_press("radio", "complete"), _tick("Starred"), _tick("Starred"), _press("radio", "all")),
    "answer": (_choose("Variant", 2), _choose("Variant", 3), _choose("Variant", 2)),
    "curves": (_press("radio", "seconds"), _press("radio", "training"), _tick("Single seeds"), _tick("Log x")),
    "compare": (_choose("Sides", 0), _choose("Sides", 0)),
    "trial": (_choose("Variant", 2), _choose("Seed", 1), _choose("Seed", 0)),
}


@contextmanager
def _serving(store: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "ablate.cli", "dashboard", "--store", str(store), "--port", str(PORT)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{PORT}/_stcore/health", timeout=5).close()
                break
            except OSError:
                if process.poll() is not None:
                    raise RuntimeError("the dashboard does not start") from None
                time.sleep(0.1)
        yield f"http://127.0.0.1:{PORT}"
    finally:
        process.terminate()
        process.wait()
