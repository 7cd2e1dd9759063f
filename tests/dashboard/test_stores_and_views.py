"""Several stores in one dashboard, and views that are saved."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_runs import Workplace
from pages import serving, tab
from written_stores import simple_store

from ablate.store import Mark, open_store
from shared.saved import PAGE, read_views, views_file, write_views
from shared.store import named_stores

GROUND = "link => getComputedStyle(link).backgroundColor"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Workplace:
    """Two stores of the same studies; in the second one `half` is starred."""
    found = Workplace(tmp_path_factory.mktemp("stores"), cache)
    for name in ("first", "second"):
        simple_store(str(found.folder / f"{name}.db"))
    with open_store(found.folder / "second.db") as store:
        store.marks.put("study", "half", Mark(True, ("mine",), ""))
    return found


@pytest.fixture(scope="module")
def base(place: Workplace) -> Iterator[str]:
    with serving(place, "first.db", "second.db") as address:
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


def test_all_stores_are_listed_and_the_address_names_the_chosen_one(browser: Any, base: str) -> None:
    with tab(browser, base) as page:
        page.open("/")
        rows = page.table("Studies with their state")
        assert sorted((row["store"], row["study"]) for row in rows) == sorted(
            (store, study) for store in ("first", "second") for study in ("done", "half", "broken")
        )
        assert [(row["store"], row["study"]) for row in rows if row["★"]] == [("second", "half")]
        page.open("/answer?store=second&study=half")
        page.wait_for_text("Answer of the study half in the store second")
        page.wait_for_text("--store=second.db")
        page.tab.get_by_role("combobox", name="Store").click()
        page.tab.get_by_role("option", name="first").click()
        page.tab.wait_for_url("**store=first*")
        page.wait_for_text("Answer of the study half in the store first")
        page.wait_for_text("--store=first.db")
        page.open("/answer?store=nope&study=half")
        page.wait_for_text("There is no store nope on this dashboard.")
        page.open("/across?store=second&study=done")
        page.wait_for_text("second: done / baseline")
        page.check()


def test_a_view_is_saved_found_again_and_removed(browser: Any, base: str, place: Workplace) -> None:
    file = views_file(str(place.folder / "second.db"))
    with tab(browser, base) as page:
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
            page.wait_for_text("All trials of the study done")
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


def test_a_file_that_holds_no_views_has_none(tmp_path: Path) -> None:
    file = views_file(str(tmp_path / "s.db"))
    assert read_views(file) == {}
    for text in ("", "[1, 2]", '{"a": 1, "b": {"study": ["x"]}}', '{"a": {"": "answer"}}', "\0"):
        file.write_text(text)
        assert read_views(file) == {}
    views = {"a": {PAGE: ["answer"], "study": ["x", "y"]}}
    write_views(file, views)
    assert read_views(file) == views
