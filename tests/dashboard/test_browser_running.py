"""The buttons that start, stop and continue studies, clicked in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from cli_runs import Workplace, eventually
from pages import Page, serving

from ablate.spec.document import read_document
from dashboard.shared.pictures import packed


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Workplace]:
    """Its studies of a million steps end with the tests, whatever fails."""
    yield (made := Workplace(tmp_path_factory.mktemp("running"), cache))
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if any(str(made.folder) in argument for argument in process.cmdline()):
                process.kill()


@pytest.fixture(scope="module")
def base(place: Workplace) -> Iterator[str]:
    with serving(place) as address:
        yield address


def stop(page: Page) -> None:
    """Stop the run on its live page, and wait for its end."""
    page.tab.get_by_role("button", name="Stop", exact=True).click()
    page.tab.get_by_role("button", name="Stop", exact=True).wait_for(state="detached")


def test_in_an_empty_folder_a_study_is_started_stopped_and_continued_by_clicks(
    base: str, page: Page, place: Workplace
) -> None:
    page.open("/answer")
    page.main.get_by_text("ablate study simplify_block").wait_for()
    list_of_studies = Page(page.tab.context.new_page(), base)
    list_of_studies.open("/")
    list_of_studies.main.get_by_text("ablate new my_question").wait_for()
    draft = read_document(place.folder / place.space("long", steps=10**6, seeds=2), "a space").plain
    draft["model"]["block"] = {"mixer": {"kind": "attention"}}
    page.open(f"/design?space={packed(draft)}")
    page.main.get_by_text("A valid space: long").wait_for()
    page.tab.get_by_role("button", name="Start this study").click()
    eventually(lambda: place.trials("running"))
    list_of_studies.main.get_by_text("Does a tiny model need its maps?").first.wait_for(state="attached")
    list_of_studies.check()
    list_of_studies.tab.close()
    page.tab.wait_for_url("**/answer?study=long*")
    page.wait_for_text("0 of 6 trials ended")
    assert page.main.get_by_text("What next?").count() == 0, "it runs"
    stop(page)
    page.open("/runs?study=long")
    page.wait_for_text("6 of 6 trials are left")
    page.wait_for_text("Stopped with 0 of 6 trials done")

    page.tab.get_by_role("button", name="Resume").click()
    page.tab.wait_for_url("**/answer?study=long*")
    page.tab.get_by_role("button", name="Stop", exact=True).wait_for()
    eventually(lambda: place.trials("running"))
    stop(page)
    assert place.rows("SELECT count(*) FROM study_trials") == [(6,)]
    page.check()
    left = [one for one in psutil.process_iter(["cmdline"]) if str(place.folder) in " ".join(one.info["cmdline"] or ())]
    assert [one.info["cmdline"] for one in left if "dashboard" not in one.info["cmdline"]] == []
