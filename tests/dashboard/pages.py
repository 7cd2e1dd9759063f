"""The dashboard served, and a page of it in a real browser: opened, waited for, read."""

from __future__ import annotations

import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from xml.etree import ElementTree

import pytest
from cli_runs import Workplace

from ablate.cli import main
from ablate.training.pack import Pack
from benchmarks.browser import IDLE

Serve = Callable[[Workplace], str]

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
PALE = """
() => {
    const parse = text => { const n = text.match(/[\\d.]+/g).map(Number); return n.length > 3 ? n : [...n, 1] }
    const over = (top, below) => below.map((channel, i) => top[3] * top[i] + (1 - top[3]) * channel)
    const light = rgb => {
        const [r, g, b] = rgb.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b
    }
    const found = {}
    for (const node of document.querySelectorAll('[data-testid=stMain] *')) {
        const words = [...node.childNodes].filter(one => one.nodeType === 3).map(one => one.textContent).join('').trim()
        // The number of a slider stands above the handle that is its parent.
        const passive = '[disabled], [aria-disabled=true], ' +
            '[data-testid=stIconMaterial], [data-testid=stSliderThumbValue]'
        if (!words || node.closest(passive) || node.closest('style') || !node.getClientRects().length) continue
        const layers = []
        let opacity = 1
        for (let at = node; at; at = at.parentElement) {
            const style = getComputedStyle(at)
            opacity *= Number(style.opacity)
            layers.unshift(parse(style.backgroundColor))
        }
        const ground = layers.reduce((below, layer) => over(layer, below), [255, 255, 255])
        const style = getComputedStyle(node)
        const ink = parse(node.ownerSVGElement ? style.fill : style.color)
        ink[3] *= opacity
        const [high, low] = [light(over(ink, ground)), light(ground)].sort((a, b) => b - a)
        if (opacity > 0.2 && (high + 0.05) / (low + 0.05) < 4.5)
            found[words.slice(0, 60)] = `${ink} on ${ground}, ${node.closest('[data-testid]').dataset.testid}`
    }
    return found
}
"""
"""Words with less than the contrast of 4.5:1 that WCAG 2.2 asks for (1.4.3)."""
WIDE = {"width": 2400, "height": 1400}
"""So wide that no column of a table is cut off."""
PATIENCE = 240_000
POLLING = 50
"""Milliseconds between two looks at a page; Playwright would look at every frame."""


class Page:
    """One tab, as one test sees it.

    Attributes:
        tab: The tab of Playwright.
        errors: Errors of its scripts.
        strangers: Requests to other servers than the dashboard.
        refused: Requests that the dashboard answered with an error.
    """

    def __init__(self, tab: Any, base: str) -> None:
        self.base = base
        self.tab = tab
        self.tab.set_default_timeout(PATIENCE)
        self.tab.set_viewport_size(WIDE)
        self.errors: list[str] = []
        self.strangers: list[str] = []
        self.refused: list[str] = []
        self._heard = {"pageerror": self._failed, "request": self._requested, "response": self._answered}
        for event, hear in self._heard.items():
            self.tab.on(event, hear)

    def _failed(self, error: Any) -> None:
        self.errors.append(str(error))

    def _requested(self, request: Any) -> None:
        if not request.url.startswith((self.base, "data:", "blob:")):
            self.strangers.append(request.url)

    def _answered(self, answer: Any) -> None:
        if answer.status >= 400:
            self.refused.append(answer.url)

    def leave(self) -> None:
        """Reset the tab for the next test."""
        for event, hear in self._heard.items():
            self.tab.remove_listener(event, hear)
        self.tab.emulate_media(color_scheme="light")
        self.tab.mouse.move(0, 0)
        self.clear()

    def clear(self) -> None:
        """Leave the page and delete its storage and cookies."""
        self.tab.evaluate("localStorage.clear(), sessionStorage.clear()")
        self.tab.context.clear_cookies()
        self.tab.goto("about:blank")

    def open(self, path: str) -> None:
        """Open an address of the dashboard."""
        self.tab.goto(self.base + path)
        self.settle()

    def settle(self) -> None:
        """Wait until the page is drawn and nothing runs."""
        self.tab.wait_for_function(IDLE, polling=POLLING)
        self.tab.wait_for_timeout(150)
        self.tab.wait_for_function(IDLE, polling=POLLING)

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
        names: list[str] = []
        for title in rows[0]:  # a title of several columns is `title`, `title 2` ...
            names.append(title if title not in names else f"{title} {rows[0][: len(names)].count(title) + 1}")
        return [dict(zip(names, row, strict=True)) for row in rows[1:]]

    def check_whole(self, name: str) -> None:
        """No column of a table is cut off at the right."""
        scrolled = self.tab.locator(f'[role="region"][aria-label^="{name}"] .dvn-scroller')
        assert scrolled.evaluate("all => all.scrollWidth <= all.clientWidth"), f"the table {name} is cut at the right"

    def download(self, name: str, folder: Path) -> Path:
        """The file of this name from the list that a button for exports has opened."""
        with self.tab.expect_download() as started:
            self.tab.get_by_role("button", name=name, exact=True).click()
        started.value.save_as(folder / name)
        return folder / name

    def check_exports(self, folder: Path, table: str, figure: str, number: int = 0) -> None:
        """A table and a figure of the page are files that other programs read, by the menu of this number."""
        import pandas as pd
        from PIL import Image

        self.main.get_by_role("button", name="Export").nth(number).click()
        found = pd.read_parquet(self.download(f"{table}.parquet", folder))
        assert len(found) >= 1
        assert "hours" not in found.columns, "trials of less than a second have an axis in seconds or minutes"
        written = pd.read_csv(self.download(f"{table}.csv", folder))
        assert list(written) == list(found)
        numbers = list(found.select_dtypes("number"))
        assert written[numbers].to_numpy(float) == pytest.approx(found[numbers].to_numpy(float), rel=1e-12, nan_ok=True)
        assert r"\bottomrule" in self.download(f"{table}.tex", folder).read_text()
        assert ElementTree.parse(self.download(f"{figure}.svg", folder)).getroot().tag.endswith("svg")
        with Image.open(self.download(f"{figure}.png", folder)) as picture:
            assert min(picture.size) > 100
        self.tab.keyboard.press("Escape")

    def check(self) -> None:
        """Nothing failed, nothing was refused, and nothing was asked of another machine."""
        assert self.main.get_by_test_id("stException").count() == 0, self.text
        assert self.errors == []
        assert self.strangers == []
        assert self.refused == []

    def check_accessibility(self) -> None:
        """There is a heading, every figure has a name, and nothing is wider than the window."""
        self.main.get_by_role("heading").first.wait_for()
        unnamed = "[data-testid=stVegaLiteChart]:not([aria-label]), [data-testid=stMain] img:not([alt])"
        assert self.tab.locator(unnamed).count() == 0
        assert self.tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")

    def check_contrast(self) -> None:
        """All text of the page contrasts with its background."""
        pale = self.tab.evaluate(PALE)
        assert pale == {}, pale


def unhurried() -> None:
    """Run the command line with a pause in each training step, so that a running study takes little processor time."""
    step = Pack.step

    def waiting(pack: Pack, number: int) -> None:
        time.sleep(0.02)
        step(pack, number)

    with patch.object(Pack, "step", waiting):
        main()


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
