"""Times the dashboard with a store of 100,000 trials in a browser: first views and clicks, compared with targets.

A first view is timed from loading the address to the finished page, in a new tab with an empty cache; a click from the
click to the finished page. The server is warm: it has shown another study before. Besides wall time, the table shows
the processor time of server and browser, which is more reliable on a loaded machine, and the time of a Streamlit page
with only a heading as a lower bound.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.big_store import big_store
from benchmarks.browser import IDLE, find_browser, launch
from dashboard.views.curves import MORE

PORT = 8599
FIRST, LATER = 2.0, 0.5
REPEATS = 3
BARE = "import streamlit as st\n\nst.header('Nothing')\n"
STUDIES = ("usual", "wide")
"""20 variants x 5 seeds, and 1,000 x 10; both in a store of 182 studies."""
PAGES = ("studies", "answer", "curves", "compare", "trial", "trials", "design")


def main(smoke: bool = False) -> None:
    """Print target, best and median wall time, and processor time."""
    repeats, studies, pages = (1, STUDIES[:1], ("answer",)) if smoke else (REPEATS, STUDIES, PAGES)
    browser = find_browser()
    if browser is None:
        print("No Chromium is installed, so the dashboard was not timed.")
        return
    big = big_store(trials=200 if smoke else 100_000)
    from playwright.sync_api import sync_playwright

    print(f"{'page':10} {'study':6} {'what':12} {'target s':>9} {'best':>6} {'median':>7} {'server':>8} {'browser':>8}")
    with _serving(big) as (base, server), _bare() as (bare, other), sync_playwright() as playwright:
        started = launch(playwright, browser)
        if not smoke:
            _first(started, bare, other)
        _print("(bare)", "", "first view", FIRST, [_first(started, bare, other) for _ in range(repeats)])
        if not smoke:
            _first(started, f"{base}/?study=study 0", server)  # the server's imports
        for study in studies:
            for page in pages:
                address = f"{base}/{'' if page == 'studies' else page}?study={study}"
                _print(page, study, "first view", FIRST, [_first(started, address, server) for _ in range(repeats)])
                if page in _ACTIONS:
                    _print(page, study, "click", LATER, _clicks(started, address, page, server))
        started.close()


@dataclass(frozen=True, slots=True)
class _Taken:
    """Wall time, and processor time of server and browser, in seconds."""

    clock: float
    server: float
    browser: float


@contextmanager
def _taking(server: int, taken: list[_Taken], less: float = 0.0) -> Iterator[None]:
    """Measure the body; `less` is subtracted from the wall time."""
    began, before, members = time.perf_counter(), _spent(), _below(server)
    yield
    clock = time.perf_counter() - began - less
    # Processes that have ended belonged to earlier tabs.
    spent = {member: seconds - before.get(member, 0.0) for member, seconds in _spent().items()}
    served = sum(spent.pop(member, 0.0) for member in members)
    taken.append(_Taken(clock, served, sum(spent.values())))


def _below(process: int) -> list[int]:
    """A process and its descendants."""
    return [process, *(child.pid for child in psutil.Process(process).children(recursive=True))]


def _spent() -> dict[int, float]:
    """Processor time so far of each descendant of this process, in seconds."""
    spent = {}
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            times = child.cpu_times()
            spent[child.pid] = times.user + times.system
    return spent


def _print(page: str, study: str, what: str, target: float, taken: list[_Taken]) -> None:
    seconds = [each.clock for each in taken]
    median = statistics.median(seconds)
    server, browser = (statistics.median([getattr(each, side) for each in taken]) for side in ("server", "browser"))
    missed = "" if median <= target else "  missed"
    print(
        f"{page:10} {study:6} {what:12} {target:9.1f} {min(seconds):6.2f} {median:7.2f} {server:8.2f} {browser:8.2f}"
        f"{missed}",
        flush=True,
    )


def _first(browser: Any, address: str, server: int) -> _Taken:
    taken: list[_Taken] = []
    with browser.new_context(viewport={"width": 1440, "height": 1000}) as context, _taking(server, taken):
        tab = context.new_page()
        tab.set_default_timeout(120_000)
        tab.goto(address)
        tab.wait_for_function(IDLE)
    return taken[0]


def _clicks(browser: Any, address: str, page: str, server: int) -> list[_Taken]:
    """Time clicks in one tab after its first view. The window is tall because scrolling closes drop-down lists."""
    taken: list[_Taken] = []
    with browser.new_context(viewport={"width": 1440, "height": 5600}) as context:
        tab = context.new_page()
        tab.set_default_timeout(120_000)
        tab.goto(address)
        tab.wait_for_function(IDLE)
        for click in _ACTIONS[page]:
            with _taking(server, taken, less=0.02):
                click(tab)
                tab.wait_for_timeout(20)  # until the page has noticed
                tab.wait_for_function(IDLE)
    return taken


def _choose(label: str, number: int) -> Callable[[Any], None]:
    def act(tab: Any) -> None:
        tab.get_by_role("combobox", name=label).last.click()
        tab.get_by_role("option").nth(number).click()

    return act


def _show_evidence(tab: Any) -> None:
    tab.locator("a[href*='why=']").first.click()
    tab.get_by_role("dialog").wait_for()


def _close_evidence(tab: Any) -> None:
    tab.keyboard.press("Escape")
    tab.get_by_role("dialog").wait_for(state="detached")


def _press(role: str, name: str) -> Callable[[Any], None]:
    return lambda tab: tab.get_by_role(role, name=name).first.click()


def _tick(text: str) -> Callable[[Any], None]:
    return lambda tab: tab.get_by_test_id("stMain").get_by_text(text, exact=True).first.click()


_ACTIONS: dict[str, tuple[Callable[[Any], None], ...]] = {
    "studies": (_press("radio", "complete"), _tick("Starred"), _tick("Starred"), _press("radio", "all")),
    "answer": (_show_evidence, _close_evidence, _show_evidence),
    "curves": (
        _tick(MORE),
        _press("radio", "tokens"),
        _press("radio", "training"),
        _tick("Single seeds"),
        _tick("Log x"),
    ),
    "compare": (_choose("Sides", 0), _choose("Sides", 0)),
    "trial": (_choose("Variant", 2), _choose("Seed", 1), _choose("Seed", 0)),
    "trials": (_press("radio", "every trial"), _choose("Sort by", 4), _tick("Greatest first"), _choose("Sort by", 5)),
}


@contextmanager
def _serving(store: Path) -> Iterator[tuple[str, int]]:
    """Start a dashboard of a store; yields its address and process id."""
    command = [sys.executable, "-m", "ablate", "dashboard", "--store", str(store), "--port", str(PORT)]
    with _served(command, PORT) as served:
        yield served


@contextmanager
def _bare() -> Iterator[tuple[str, int]]:
    """Start a page with only a heading; yields its address and process id."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "bare.py")
        script.write_text(BARE, encoding="utf-8")
        options = ["--server.headless", "true", "--browser.gatherUsageStats", "false", "--server.port", str(PORT + 1)]
        with _served([sys.executable, "-m", "streamlit", "run", str(script), *options], PORT + 1) as served:
            yield served


@contextmanager
def _served(command: list[str], port: int) -> Iterator[tuple[str, int]]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=5).close()
                break
            except OSError:
                if process.poll() is not None:
                    raise RuntimeError("the server does not start") from None
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        process.wait()
