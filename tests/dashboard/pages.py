"""The dashboard served, and a page of it in a real browser: opened, waited for, read."""

from __future__ import annotations

import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cli_runs import Workplace

Serve = Callable[[Workplace], str]

IDLE = """
() => document.querySelector('[data-testid="stApp"][data-test-script-state="notRunning"]')
    && document.querySelector('[data-testid="stMain"] [data-testid="stHeading"]')
    && !document.querySelector('[data-testid="stSpinner"], [data-testid="stSkeleton"], [data-stale="true"]')
"""
# A table is read once its last column is there and the rows that fit are: it grows into its place after it appears.
READ = """
async region => {
    const shape = () => {
        const table = region.querySelector('table');
        const last = table && table.querySelector('thead th:last-child');
        if (!last || last.ariaColIndex !== table.ariaColCount) return null;
        return JSON.stringify([...table.rows].map(row => [...row.cells].map(cell => cell.textContent)));
    };
    const give_up = performance.now() + 30000;
    for (let before = null; performance.now() < give_up; ) {
        await new Promise(resolve => setTimeout(resolve, 60));
        const now = shape();
        if (now !== null && now === before) return JSON.parse(now);
        before = now;
    }
    throw new Error('a table never showed all its columns');
}
"""
WIDE = {"width": 2400, "height": 1400}
"""So wide that no column of a table is cut off."""
PATIENCE = 90_000


class Page:
    """One tab.

    Attributes:
        tab: The tab of Playwright.
        errors: What its scripts complained of.
        strangers: Requests that went anywhere but to the dashboard.
        refused: Requests that the dashboard answered with an error.
    """

    def __init__(self, context: Any, base: str) -> None:
        self.base = base
        self.tab = context.new_page()
        self.tab.set_default_timeout(PATIENCE)
        self.errors: list[str] = []
        self.strangers: list[str] = []
        self.refused: list[str] = []
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.on("request", self._requested)
        self.tab.on("response", lambda answer: self.refused.append(answer.url) if answer.status >= 400 else None)

    def _requested(self, request: Any) -> None:
        if not request.url.startswith((self.base, "data:", "blob:")):
            self.strangers.append(request.url)

    def open(self, path: str) -> None:
        """Open an address of the dashboard."""
        self.tab.goto(self.base + path)
        self.settle()

    def settle(self) -> None:
        """Wait until the page is drawn and nothing runs."""
        self.tab.wait_for_function(IDLE)
        self.tab.wait_for_timeout(150)
        self.tab.wait_for_function(IDLE)

    @property
    def main(self) -> Any:
        """Everything but the navigation."""
        return self.tab.get_by_test_id("stMain")

    @property
    def text(self) -> str:
        """All words on the page, the navigation left out."""
        return str(self.main.inner_text())

    def wait_for_text(self, text: str) -> None:
        """Wait until the page shows a text: after a click it shows its old content until Streamlit's rerun began.

        Raises:
            AssertionError: The text did not appear in time. The error quotes what the page shows.
        """
        from playwright.sync_api import expect

        expect(self.main).to_contain_text(text, use_inner_text=True, timeout=PATIENCE)

    def table(self, name: str) -> list[dict[str, str]]:
        """The rows of a table, as a screen reader reads them."""
        rows = self.tab.locator(f'[role="region"][aria-label^="{name}"]').evaluate(READ)
        return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]

    def check(self) -> None:
        """Nothing failed, nothing was refused, and nothing was asked of another machine."""
        assert self.main.get_by_test_id("stException").count() == 0, self.text
        assert self.errors == []
        assert self.strangers == []
        assert self.refused == []

    def check_accessibility(self) -> None:
        """There is a heading, every figure has a name, and nothing is wider than the window."""
        assert self.main.get_by_role("heading").count() > 0
        unnamed = "[data-testid=stPlotlyChart]:not([aria-label]), [data-testid=stMain] img:not([alt])"
        assert self.tab.locator(unnamed).count() == 0
        assert self.tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@contextmanager
def tab(browser: Any, base: str, **options: Any) -> Iterator[Page]:
    """A tab in a window of its own, without memory."""
    with browser.new_context(viewport=WIDE, **options) as context:
        yield Page(context, base)


@contextmanager
def serving(place: Workplace, *arguments: str) -> Iterator[str]:
    """The address of a dashboard over the store of a workplace."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = place.start("dashboard", "--port", str(port), *arguments)
    try:
        deadline = time.monotonic() + 60
        while True:
            assert process.poll() is None, process.communicate()
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=5).close()
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.communicate(timeout=30)
