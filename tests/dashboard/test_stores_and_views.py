"""Several stores in one dashboard, one of them full of hostile text, and views that are saved."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from cli_runs import Workplace
from pages import Page, serving
from written_stores import HOSTILE, SCRIPT, hostile_store, simple_store

from ablate.store import Mark, open_store
from dashboard.shared.frame import PAGE, read_views, views_file, write_views
from dashboard.shared.store import named_stores
from dashboard.views import PAGES

ENTRIES = [entry for entries in PAGES.values() for entry in entries]
GROUND = "link => getComputedStyle(link).backgroundColor"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Workplace:
    """Two stores of the same studies, `half` starred in the second one, and a store whose study has hostile texts."""
    found = Workplace(tmp_path_factory.mktemp("stores"), cache)
    for name in ("first", "second"):
        simple_store(str(found.folder / f"{name}.db"))
    with open_store(found.folder / "second.db") as store:
        store.marks.put("study", "half", Mark(True, ("mine",), ""))
    hostile_store(found.folder / "hostile.db")
    return found


@pytest.fixture(scope="module")
def base(place: Workplace) -> Iterator[str]:
    with serving(place, "first.db", "second.db", "hostile.db") as address:
        yield address


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["a.db", "b.db"], ["a", "b"]),
        (["studies/ablate.db", "/mnt/x/studies/ablate.db"], None),
        (["x/one/ablate.db", "x/two/ablate.db"], ["one/ablate", "two/ablate"]),
        (["postgresql://me:secret@host/one", "two.db"], ["one", "two"]),
        (["runs/a.db", "runs/a.sqlite"], None),
    ],
)
def test_stores_have_different_names(given: list[str], named: list[str] | None) -> None:
    found = named_stores(given)
    assert list(found.values()) == given
    assert named is None or list(found) == named
    assert len(found) == len(given), "no store hides another"
    assert "secret" not in " ".join(found)


def test_all_stores_are_listed_and_the_address_names_the_chosen_one(page: Page) -> None:
    page.open("/")
    rows = page.table("Studies with their state")
    assert [row["store"] for row in rows].count("hostile") == 1
    rows = [row for row in rows if row["store"] != "hostile"]
    assert sorted((row["store"], row["study"]) for row in rows) == sorted(
        (store, study) for store in ("first", "second") for study in ("done", "half", "broken")
    )
    assert [(row["store"], row["study"]) for row in rows if row["★"]] == [("second", "half")]
    page.open("/answer?store=second&study=half")
    page.wait_for_text("half in the store second: Why half?")
    page.tab.get_by_role("combobox", name="Store").click()
    page.tab.get_by_role("option", name="first").click()
    page.tab.wait_for_url("**store=first*")
    page.wait_for_text("half in the store first: Why half?")
    page.main.get_by_role("button", name="Command").first.click()
    page.tab.get_by_text("--store=first.db").wait_for()
    page.open("/answer?store=nope&study=half")
    page.wait_for_text("There is no store nope on this dashboard.")
    page.open("/across?store=second&study=done")
    page.main.get_by_role("button", name="Choose studies and variants").click()
    page.tab.get_by_text("baseline (second: done)").first.wait_for()
    page.check()


def test_a_view_is_saved_found_again_and_removed(page: Page, place: Workplace) -> None:
    file = views_file(str(place.folder / "second.db"))
    page.open("/trials?store=second&study=done&states=finished&metric=val_loss&high=0.08")
    page.wait_for_text("1 of 4 trials")
    page.tab.get_by_role("button", name="Save view").click()
    page.tab.get_by_role("textbox", name="Name").fill("the best [one](x)")
    page.tab.get_by_role("button", name="Save", exact=True).click()
    page.tab.get_by_role("link", name="the best [one](x)").wait_for()
    kept = json.loads(file.read_text())["the best [one](x)"]
    assert kept[PAGE] == ["trials"]
    assert (kept["store"], kept["study"], kept["states"]) == (["second"], ["done"], ["finished"])
    # From another page, and from the same page with other filters.
    for elsewhere in ("/curves?store=second&study=half", "/trials?store=second&study=done&states=failed"):
        page.tab.mouse.move(1200, 900)
        page.open(elsewhere)
        link = page.tab.get_by_role("link", name="the best [one](x)")
        assert link.evaluate(GROUND) == "rgba(0, 0, 0, 0)", "only the view that is looked at is marked"
        link.click()
        page.wait_for_text("1 of 4 trials")
        page.main.get_by_role("heading", name="All trials").wait_for()
        page.tab.mouse.move(1200, 900)
        page.settle()
        assert link.evaluate(GROUND) != "rgba(0, 0, 0, 0)"
    page.tab.get_by_role("button", name="Save view").click()
    page.tab.get_by_role("combobox", name="Or remove").click()
    page.tab.get_by_role("option", name="the best [one](x)").click()
    page.tab.get_by_role("button", name="Remove", exact=True).click()
    page.tab.get_by_role("link", name="the best [one](x)").wait_for(state="detached")
    assert json.loads(file.read_text()) == {}
    page.check()


def test_hostile_text_is_shown_as_text(page: Page) -> None:
    named = f"store=hostile&study={quote(f's {SCRIPT}')}"
    page.open(f"/?{named}")
    for entry in ENTRIES:  # from page to page of one tab, which need not load Streamlit's scripts each time
        found = page.tab.get_by_test_id("stSidebar").get_by_role("link", name=entry.title, exact=True)
        if found.count():
            found.click()
            page.tab.wait_for_url(f"**/{entry.name}*" if entry.name != "studies" else re.compile(r":\d+/(\?.*)?$"))
            page.settle()
        else:  # it does not apply to this study
            page.open(f"/{entry.name}?{named}")
        page.check()
        page.check_accessibility()
        assert page.tab.evaluate("window.caught") is None
        assert page.main.locator("img[src=x], script, a[href^=javascript]").count() == 0
    page.open(f"/answer?{named}")
    page.wait_for_text(HOSTILE[:90])
    page.open(f"/trial?{named}&seed=0&variant=baseline")
    page.wait_for_text("**bold**")


def test_a_file_that_holds_no_views_has_none(tmp_path: Path) -> None:
    file = views_file(str(tmp_path / "s.db"))
    assert read_views(file) == {}
    for text in ("", "[1, 2]", '{"a": 1, "b": {"study": ["x"]}}', '{"a": {"": "answer"}}', "\0"):
        file.write_text(text)
        assert read_views(file) == {}
    views = {"a": {PAGE: ["answer"], "study": ["x", "y"]}}
    write_views(file, views)
    assert read_views(file) == views
