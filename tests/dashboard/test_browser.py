"""The dashboard in a real browser, over stores that real studies made."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from cli_runs import Workplace, eventually, wait_for
from pages import PALE, Page, unhurried

from ablate.store import open_store

WILD = """
  rate: {fair: {}, wild: {training.optimizer.lr: 1.0e+30}}
design"""
CLAIMS = """
claims:
  - {id: norm-needed, says: Without it the loss is higher., expect: worse, left: norm=none, right: baseline,
     margin: 0.01}
"""


@pytest.fixture(scope="session")
def place(shared_place: Workplace) -> Workplace:
    """A store with the study `tiny` of four variants, of which one diverges, and a claim."""
    file = shared_place.folder / shared_place.space(seeds=2)
    text = (
        file.read_text().replace("\ndesign", WILD, 1).replace("\n  batch_size", "\n  record_blocks: true\n  batch_size")
    )
    file.write_text(text + CLAIMS.lstrip("\n"))
    done = shared_place.call("study", file.name, "--workers", "1")
    assert done.code == 0, done.err
    return shared_place


@pytest.fixture(scope="session")
def shown(place: Workplace) -> dict[str, Any]:
    """What `ablate show --json` says."""
    plain: dict[str, Any] = json.loads(place.call("show", "tiny", "--json").out)
    return plain


def test_a_narrow_dark_screen(page: Page) -> None:
    page.tab.emulate_media(color_scheme="dark")
    page.tab.set_viewport_size({"width": 390, "height": 844})
    page.open("/answer?study=tiny")
    page.check()
    page.check_accessibility()
    background = page.tab.evaluate(
        "getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor.match(/\\d+/g).map(Number)"
    )
    assert sum(background[:3]) < 3 * 64
    page.check_contrast()
    page.open("/effects?study=tiny&show=Parallel")
    axes = page.tab.get_by_test_id("stVegaLiteChart").first.bounding_box()
    assert axes is not None
    assert axes["height"] > 200, "no parallel axis is beside the window"
    assert axes["width"] < 390
    page.open("/curves?study=tiny")
    plot = page.tab.get_by_test_id("stVegaLiteChart").first
    eventually(lambda: 0 < (plot.bounding_box() or {"y": 0.0})["y"] < 500)  # before its controls, once all is drawn
    page.tab.emulate_media(color_scheme="light")
    page.tab.wait_for_function(f"Object.keys(({PALE})()).length === 0")
    light = "getComputedStyle(document.querySelector('[data-testid=stApp]')).colorScheme !== 'dark'"
    page.tab.wait_for_function(light)  # an observer of the page sets it after the colours have changed


def test_a_phone_shows_rows_as_links_and_what_comes_first_at_the_top(page: Page, shown: dict[str, Any]) -> None:
    page.tab.set_viewport_size({"width": 390, "height": 844})
    page.open("/trials?study=tiny&by=val_loss&desc=true")
    rows = page.main.get_by_role("list", name="Trials").get_by_role("link")
    rows.first.wait_for()
    lines = [row.splitlines() for row in rows.all_inner_texts()]
    assert len({line[0] for line in lines}) == 2 * len(shown["variants"])
    assert {"baseline, seed 0", "no normalisation, seed 1"} <= {line[0] for line in lines}
    losses = [float(line[1].split()[1]) for line in lines if line[1].startswith("val_loss ")]
    assert losses == sorted(losses, reverse=True)
    assert [line[1] for line in lines if not line[1].startswith("val_loss ")] == ["diverged"] * 2
    title = rows.first.inner_text().splitlines()[0]
    rows.first.click()
    page.tab.wait_for_url("**/trial?**")
    page.wait_for_text(title.partition(", seed")[0])
    page.open("/compare?study=tiny&sides=baseline&sides=norm%3Dnone")
    fields = page.main.get_by_role("region", name="Differing fields of the spec").get_by_role("row")
    told = fields.filter(has_text="model › block › norm › kind").inner_text()
    assert told.split()[-2:] == ["rms", "none"], told
    page.open("/?study=tiny")
    page.main.get_by_role("list", name="Studies").get_by_role("link").filter(has_text="tiny").click()
    page.tab.wait_for_url("**/answer?study=tiny*")
    page.main.get_by_role("list", name="Studies").wait_for(state="detached")
    headline = page.main.get_by_role("heading").first
    headline.wait_for()
    page.settle()
    assert headline.evaluate("all => parseFloat(getComputedStyle(all).fontSize)") < 24, "rows begin on the first screen"
    page.check_accessibility()
    page.open("/design")
    page.tab.get_by_role("button", name="Start this study").wait_for()
    page.settle()
    assert page.main.get_by_role("textbox", name="question").input_value(), (
        "its width interrupts the first run, which set the values"
    )


def test_the_numbers_are_those_of_show_also_in_downloads(page: Page, shown: dict[str, Any], tmp_path: Path) -> None:
    import pandas as pd

    page.open("/answer?study=tiny&table=true")
    rows = {row["variant"]: row for row in page.table("Ablation table")}
    trivial = rows.pop(shown["trivial_baselines"]["best"])
    assert (trivial["verdict"], float(trivial["val_loss"])) == (
        "trivial baseline",
        shown["trivial_baselines"]["metrics"][shown["trivial_baselines"]["best"]]["val_loss"],
    )
    assert len(rows) == 4
    for variant in shown["variants"]:
        row, versus = rows[variant["name"]], variant["versus_baseline"] or {}
        assert int(row["parameters"]) == variant["parameters"]
        if variant["diverged"]:
            assert row["val_loss"] == row["difference"] == ""
            continue
        mean = variant["metrics"]["val_loss"]
        assert float(row["val_loss"]) == pytest.approx(mean["mean"], rel=1e-12)
        assert float(row["±"]) == pytest.approx((mean["high"] - mean["low"]) / 2, rel=1e-9)
        assert row["verdict"] == (versus["sentence"] if versus else "baseline")
        if versus:
            assert float(row["difference"]) == pytest.approx(versus["difference"], rel=1e-12)
            assert float(row["± 2"]) == pytest.approx((versus["high"] - versus["low"]) / 2, rel=1e-9)
    groups = shown["answer"]["groups"]
    for group in groups if len(groups) > 1 else ():
        page.wait_for_text(f"{len(group['rows'])} {group['key']}")
    page.main.get_by_text("Checks: everything that supports or limits the verdicts").click()
    for sentence in shown["answer"]["sentences"]:
        page.wait_for_text(sentence.replace("`", ""))
    page.wait_for_text("No answer yet: no model beats a bigram")
    page.main.locator("ul.claims summary").first.click()
    page.wait_for_text(shown["claims"][0]["sentence"].partition(": ")[2])
    page.wait_for_text("rate=wild diverged with seed 0, 1")
    page.wait_for_text("tiny: Does a tiny model need its maps?")
    page.check_contrast()
    page.tab.set_viewport_size({"width": 1280, "height": 900})
    page.settle()
    page.check_whole("Ablation table")
    page.check_exports(tmp_path, "tiny_table", "tiny_forest")
    losses = [row["metrics"]["val_loss"]["mean"] for row in shown["variants"] if not row["diverged"]]
    table = pd.read_parquet(tmp_path / "tiny_table.parquet")
    variants = table[table["verdict"] != "trivial baseline"]
    assert sorted(variants["val_loss"].dropna()) == pytest.approx(sorted(losses), rel=1e-12)
    page.main.get_by_role("button", name="Export").first.click()
    assert json.loads(page.download("tiny.json", tmp_path).read_text())["answer"] == shown["answer"]
    assert "<html" in page.download("tiny.html", tmp_path).read_text()


def test_navigation_from_studies_to_a_trial_to_a_comparison(
    page: Page, place: Workplace, shown: dict[str, Any], tmp_path: Path
) -> None:
    page.open("/studies?study=tiny")  # by its name, too
    page.tab.wait_for_url("**/?study=tiny")
    page.tab.get_by_test_id("stSidebar").get_by_role("link", name="Trial", exact=True).click()
    page.settle()
    with open_store(place.store, create=False) as store:
        record = store.study("tiny")
        key = next(trial.key for trial in record.planned if trial.variant == "norm=none" and trial.seed == 0)
        loss = store.trial(key).metrics["val_loss"]
    page.wait_for_text("Trial: no normalisation, seed 0")
    page.wait_for_text(f"{loss:.3f}")
    assert key not in page.text, "the first look is not for a key"
    page.main.get_by_text("Key, full spec").click()
    page.wait_for_text(key)
    assert "tokens/s" not in page.text, "a trial of less than ten seconds tells no speed"
    page.wait_for_text(f"ablate reproduce {key[:12]}")
    page.main.get_by_role("link", name="Compare with the baseline").click()
    page.tab.wait_for_url("**/compare?*")
    page.settle()
    differing = {row.pop("setting"): row for row in page.table("Differing fields of the spec")}
    assert differing.pop("model › block › norm › kind") == {"baseline": "rms", "no normalisation": "none"}
    assert not differing
    page.main.get_by_text("fields that not all sides have").click()
    page.settle()
    assert {row.pop("setting"): row for row in page.table("Differing fields of the spec that")} == {  # of `none`
        "model › block › norm › gain": {"baseline": "true", "no normalisation": "-"},
        "model › block › norm › eps": {"baseline": "1e-08", "no normalisation": "-"},
        "model › block › norm › eps outside": {"baseline": "false", "no normalisation": "-"},
        "model › block › norm › gate std": {"baseline": "0.02", "no normalisation": "-"},
    }
    results = {row["metric"]: row["no normalisation"] for row in page.table("Metrics of each side")}
    versus = next(row for row in shown["variants"] if row["name"] == "norm=none")["versus_baseline"]
    assert results["val_loss"].partition("Δ ")[2] == f"{versus['difference']:+.3g}"
    page.main.get_by_alt_text("Block diagram of no normalisation, compared with baseline").wait_for()
    page.tab.set_viewport_size({"width": 1280, "height": 900})
    page.settle()
    region = page.tab.get_by_role("region", name="Metrics of each side")
    assert region.evaluate("all => all.scrollWidth <= all.clientWidth"), "the table is cut at the right"
    page.check_exports(tmp_path, "compare_curves", "compare_curves")


FOCUSED = """
() => {
    const at = document.activeElement
    if (!at || at === document.body) return ''
    const region = at.closest('[role=region][aria-label], [data-testid=stSidebar]')
    const said = at.getAttribute('aria-label') || at.innerText || at.placeholder || at.tagName
    return `${region ? region.getAttribute('aria-label') || 'Sidebar' : 'main'}: ${said.replace(/\\s+/g, ' ')}`
}
"""


def check_keyboard(page: Page, wanted: list[str]) -> None:
    """The Tab key reaches all of these, those of the navigation first."""
    reached: list[str] = []
    for _ in range(60):
        page.tab.keyboard.press("Tab")
        reached.append(str(page.tab.evaluate(FOCUSED)))
    places = [next((at for at, said in enumerate(reached) if re.search(name, said)), -1) for name in wanted]
    assert -1 not in places, (dict(zip(wanted, places, strict=True)), reached)
    assert places[:2] == sorted(places[:2])
    assert max(places[:2]) < min(places[2:]), "the navigation comes first"


def test_a_trial_is_seen_from_inside(page: Page, place: Workplace, tmp_path: Path) -> None:
    import pandas as pd

    with open_store(place.store, create=False) as store:
        key = next(trial.key for trial in store.study("tiny").planned if trial.variant == "norm=none")
        recorded = store.recordings(key)
    page.open(f"/trial?study=tiny&trial={key}")
    norms = [one.values["gradients"]["block 1 mixer"] for one in recorded if "gradients" in one.values]
    box = page.tab.get_by_role("combobox", name="Of the")
    box.scroll_into_view_if_needed()
    page.settle()  # a list closes where the page still scrolls
    box.click()
    page.tab.get_by_role("option", name="mixer").click()
    told = f"block 1 from {norms[0]:.3g} to {norms[-1]:.3g}"
    page.tab.locator(f'[aria-label="2-norm of the gradient before clipping by block: {told}"]').wait_for()
    page.tab.get_by_role("radio", name="spread of mixing").click()
    page.tab.wait_for_url("**inside=spread*")
    page.tab.locator('[aria-label^="standard deviation of the mixing map by block: block 1 from"]').wait_for()
    mixing = page.tab.locator('[aria-label^="Mixing map of block 1 mixer of norm=none: "]')
    assert mixing.bounding_box()["width"] > 350
    page.settle()
    page.main.get_by_role("button", name="Export").nth(2).click()
    with page.tab.expect_download() as started:
        page.tab.get_by_role("button", name=f"trial_{key[:12]}_maps.csv", exact=True).click()
    started.value.save_as(tmp_path / "maps.csv")
    rows = pd.read_csv(tmp_path / "maps.csv")
    told_rows = recorded[-1].values["map"]["block 1 mixer"]
    assert list(rows["value"]) == pytest.approx([value for row in told_rows for value in row])
    with page.tab.expect_download() as started:
        page.tab.get_by_role("button", name=f"trial_{key[:12]}_maps.svg", exact=True).click()
    started.value.save_as(tmp_path / "maps.svg")
    assert ElementTree.parse(tmp_path / "maps.svg").getroot().tag.endswith("svg")


def test_an_address_survives_reload_and_can_be_shared(page: Page) -> None:
    page.open("/curves?study=tiny")
    page.tab.get_by_role("radio", name="FLOP").click()
    page.tab.get_by_text("Variants, groups, smoothing and scales").click()
    page.tab.get_by_text("Single seeds").click()
    page.tab.wait_for_url("**singles=true*")
    page.settle()
    address = page.tab.url
    assert "axis=FLOP" in address
    page.clear()
    page.open(address.removeprefix(page.base))
    assert page.tab.get_by_role("radio", name="FLOP").is_checked()
    assert page.tab.url == address


def test_the_way_back_from_a_trial_keeps_the_sorting(page: Page) -> None:
    page.open("/trials?study=tiny&states=finished&by=order+of+the+design")
    table = page.tab.locator('[role="region"][aria-label^="Trials with state"] canvas')
    for asked in ("by=variant", "desc=true"):  # two clicks on the heading of the first column
        table.first.click(position={"x": 60, "y": 17}, force=True)  # an element for scrolling lies above it
        page.tab.wait_for_url(f"**{asked}*")
        page.settle()
    address, rows = page.tab.url, page.table("Trials with state")
    names = [row["variant"] for row in rows]
    assert names == sorted(names, reverse=True) != sorted(names)
    table.first.click(position={"x": 60, "y": 35 * 1.5}, force=True)
    page.main.get_by_role("link", name=f"{names[0]}, seed {rows[0]['seed']}").click()
    page.main.get_by_role("heading", name="Trial", level=1).wait_for()
    page.tab.get_by_test_id("stSidebar").get_by_role("link", name="Curves", exact=True).click()
    page.main.get_by_role("heading", name="Curves", level=1).wait_for()
    for title in ("Trial", "All trials"):
        page.tab.go_back()
        page.main.get_by_role("heading", name=title, level=1).wait_for()
    page.settle()
    assert page.tab.url == address
    assert page.table("Trials with state") == rows


def test_all_links_keep_the_study_and_each_page_names_it(page: Page, place: Workplace) -> None:
    page.open("/answer")
    assert "study=tiny" in page.tab.url
    side = page.tab.get_by_test_id("stSidebar")
    for title in ("Curves", "Trade-offs", "Compare", "Trial"):
        side.get_by_role("link", name=title, exact=True).click()
        page.tab.wait_for_url(f"**/{title.lower().replace('-', '')}?study=tiny*")
        page.main.get_by_role("heading", name=re.compile(rf"^{title}(: .+, seed \d)?$"), level=1).wait_for()
        page.wait_for_text("tiny: Does a tiny model need its maps?")
        page.tab.wait_for_function(f"document.title === '{title} · tiny · ablate'")
    for title in ("Effects", "Path", "Search"):
        assert not side.get_by_role("link", name=title, exact=True).count(), "a page that does not apply"
    page.tab.set_viewport_size({"width": 1280, "height": 768})
    box = side.get_by_role("combobox", name="Study").bounding_box()
    assert box is not None
    assert box["y"] < 200, "the choice of a study is at the top"


def test_unknown_values_in_an_address_are_reported_and_the_keyboard_reaches_the_boxes(page: Page) -> None:
    page.open("/answer?study=nope")
    page.wait_for_text("There is no study nope in this store")
    assert "tiny" not in page.text
    page.open("/trial?study=tiny&variant=nope")
    page.wait_for_text("The address asks for variant nope, which this study does not have.")
    check_keyboard(page, ["Sidebar: .*Study", "Sidebar: .*Compare", "main: .*Variant", "main: .*Seed",
                          "main: .*Key, full spec", "main: .*Export"])  # fmt: skip


def test_a_click_on_a_row_or_a_claim_shows_its_evidence_and_the_way_back(page: Page, shown: dict[str, Any]) -> None:
    page.tab.set_viewport_size({"width": 1280, "height": 500})
    page.open("/answer?study=tiny")
    versus = next(row for row in shown["variants"] if row["name"] == "norm=none")["versus_baseline"]
    drawer = page.tab.get_by_role("dialog")
    page.main.locator("ul.claims summary").last.click()
    for number in (0, -1):  # in the table and below the claim
        page.main.locator("a[href*='why=norm%3Dnone']").nth(number).click()
        drawer.get_by_role("row").nth(2).wait_for()
        page.tab.wait_for_url("**why=norm*")
        cells = [row.split("\t") for row in drawer.get_by_role("table").first.inner_text().splitlines()[1:]]
        assert [row[0] for row in cells] == ["0", "1"]
        mean = sum(float(row[3]) for row in cells) / 2
        assert mean == pytest.approx(versus["difference"], abs=1e-3), "its sign is that of the table"
        drawer.get_by_alt_text("Block diagram of norm=none, compared with baseline").wait_for()
        if number == 0:
            page.tab.keyboard.press("Escape")
            drawer.wait_for(state="detached")
            page.tab.wait_for_url(lambda url: "why" not in url)
            page.settle()
    scrolled = "document.querySelector('[data-testid=stMain]').scrollTop"
    before = page.tab.evaluate(scrolled)
    assert before > 0, "the claim is below the table"
    drawer.get_by_role("table").get_by_role("link").nth(1).click()
    page.tab.wait_for_url("**/trial?*")
    page.main.get_by_role("heading", name="Trial", level=1).wait_for()
    page.tab.go_back()
    drawer.get_by_role("row").nth(2).wait_for()
    page.tab.wait_for_function(f"Math.abs({scrolled} - {before}) < 3")


def test_stars_tags_and_notes_are_written_and_found(page: Page, place: Workplace) -> None:
    page.open("/?study=tiny")
    check_keyboard(page, ["Sidebar: .*Study", "Sidebar: .*Curves", "main: .*(Search|words of a name)", "main: .*all$",
                          "Studies with their state", "main: .*Export"])  # fmt: skip
    assert not page.main.get_by_text("Star, tags, note").count(), "the study of the address is no choice of a row"
    page.main.get_by_test_id("stDataFrame").click(position={"x": 16, "y": 60})
    page.main.get_by_text("Star, tags, note").click()
    page.tab.get_by_label("Tags, separated by commas").fill("paper, done")
    page.tab.get_by_label("Note").fill("*look* at it")
    page.main.get_by_role("button", name="Save").click()
    page.main.get_by_test_id("stText").get_by_text("*look* at it", exact=True).wait_for()  # beside where it was typed
    with open_store(place.store, create=False) as store:
        eventually(lambda: store.marks.of("study", "tiny").tags == ("done", "paper"))
    page.tab.get_by_role("textbox", name="Search").fill("paper")
    page.tab.wait_for_url("**find=paper*")
    page.settle()
    assert [row["study"] for row in page.table("Studies")] == ["tiny"]
    page.tab.get_by_role("textbox", name="Search").fill("nothing of the kind")
    page.main.get_by_text("No study matches").wait_for()


def test_the_pages_of_a_running_study_are_updated(page: Page, place: Workplace) -> None:
    slow = place.space("slow", steps=100, seeds=40)  # longer than the test takes
    process = place.fork("study", slow, "--pack", "1", "--workers", "1", run=unhurried)
    try:
        eventually(lambda: place.trials("running"))
        page.tab.goto(page.base + "/answer?study=slow", wait_until="commit")  # the text is waited for
        page.main.get_by_text("of 120 trials ended").wait_for()
        page.tab.evaluate("window.same = true")
        before = progress(page)
        eventually(lambda: progress(page) != before)
        assert page.tab.evaluate("window.same")  # it was not loaded again
        page.tab.get_by_test_id("stSidebar").get_by_role("link", name="Now running", exact=True).click()
        page.main.get_by_text("of 120 trials done").wait_for()
        page.wait_for_text(f"Process {process.pid}")
        page.tab.get_by_role("table", name="Trials that run").wait_for()
        page.check()
    finally:
        process.terminate()
        wait_for(process)
        with open_store(place.store) as store:  # other tests expect `tiny` alone
            store.delete_study("slow")


def progress(page: Page) -> str:
    found = re.search(r"\d+ of 120 trials ended[^\n]*", page.text)
    return found[0] if found else ""


def test_only_this_machine_is_admitted(base: str) -> None:
    port = int(base.rpartition(":")[2])
    with socket.socket() as other:
        assert other.connect_ex(("127.0.0.1", port)) == 0
    with socket.socket() as other:
        assert other.connect_ex(("127.0.0.2", port)) != 0
