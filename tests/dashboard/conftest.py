"""The dashboard's modules on the path, the system's Chromium, and a dashboard that serves a store."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache as remembered
from pathlib import Path
from typing import Any

import pytest
import streamlit
from cli_runs import Workplace
from pages import WIDE, Page, Serve, serving
from streamlit.testing.v1 import AppTest

from ablate.serving import OPTIONS
from benchmarks.browser import find_browser, launch
from dashboard.shared.exports import NARROW


@pytest.fixture(scope="module", autouse=True)
def _main_module() -> Iterator[None]:
    """Restores the main module, which AppTest replaces by its script and which every spawned process imports."""
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main


@pytest.fixture(scope="session", autouse=True)
def _no_custom_components() -> Iterator[None]:
    """Each run of an AppTest would read the metadata of all installed packages to look for custom components."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamlit.components.v2.manifest_scanner.scan_component_manifests", list)
        yield


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., AppTest]]:
    """Runs a page over a store without a browser: `shown("trials", "s.db", study="s", by="val_loss")`."""

    def run(
        view: str, store: str | Path, *, study: str = "", narrow: bool = False, **parameters: str | list[str]
    ) -> AppTest:
        monkeypatch.setenv(OPTIONS, json.dumps({"stores": [str(store)]}))
        streamlit.cache_resource.clear()
        chosen = f"streamlit.session_state['study'] = {study!r}" if study else "choose_study()"
        page = AppTest.from_string(
            "import streamlit\nfrom dashboard.shared.evidence import show_evidence\n"
            "from dashboard.shared.frame import choose_study, navigation\n"
            f"from dashboard.views.{view} import show\nnavigation()\n{chosen}\nshow()\nshow_evidence()",
            default_timeout=120,
        )
        page.session_state[NARROW] = narrow
        for name, value in parameters.items():
            page.query_params[name] = value
        page.run()
        assert not page.exception, page.exception
        return page

    yield run
    streamlit.cache_resource.clear()


@pytest.fixture(scope="session")
def serve() -> Iterator[Serve]:
    """Serves the store of a workplace until the session ends; modules that ask for the same one share a server."""
    with ExitStack() as stack:
        yield remembered(lambda place: stack.enter_context(serving(place)))


@pytest.fixture(scope="session")
def shared_place(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Workplace:
    """A workplace whose store and server several modules share; their studies have different names."""
    return Workplace(tmp_path_factory.mktemp("dashboard"), cache)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The system's Chromium."""
    found = find_browser()
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("the tests in a browser must not be left out here, and there is no Chromium")
        pytest.skip("no Chromium is installed, so the dashboard was not tried in a browser")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = launch(playwright, found)
        yield started
        started.close()


@pytest.fixture(scope="module")
def base(place: Workplace, serve: Serve) -> str:
    """The address of a dashboard over the store of a module's `place`."""
    return serve(place)


@pytest.fixture(scope="session")
def only_tab(browser: Any) -> Iterator[Any]:
    """The tab of all tests. A new tab would compile Streamlit's scripts again, half of a page's processor time."""
    with browser.new_context(viewport=WIDE) as context:
        yield context.new_page()


@pytest.fixture
def page(only_tab: Any, base: str) -> Iterator[Page]:
    """The tab on that dashboard. When a test is through, the tab shows no error, and what it shows is accessible."""
    opened = Page(only_tab, base)
    try:
        yield opened
        opened.settle()
        opened.check()
        opened.check_accessibility()
    finally:
        opened.leave()
