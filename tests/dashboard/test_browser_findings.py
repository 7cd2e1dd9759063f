"""Effects, paths, trade-offs, the cluster and the space designer in a real browser, over stores that studies made."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

import pandas as pd
import pytest
from cli_runs import Workplace
from pages import Page

from ablate.spec.document import read_document
from dashboard.shared.pictures import packed, text_of
from dashboard.shared.store import LIVE

WILD = """
  rate: {fair: {}, wild: {training.optimizer.lr: 1.0e+30}}
design: {kind: fractional, resolution: III, seeds: 2}"""


def study(place: Workplace, name: str, design: str) -> None:
    """Run a study with another design than leave_one_out."""
    file = place.folder / place.space(name, steps=4)
    file.write_text(re.sub(r"\ndesign: .*", design, file.read_text()))
    done = place.call("study", file.name, "--workers", "1")
    assert done.code == 0, done.err


@pytest.fixture(scope="module")
def place(shared_place: Workplace) -> Workplace:
    """A half fraction of three switches, of which one makes models diverge, and a path of models that beat nothing."""
    study(shared_place, "crossed", WILD)
    study(shared_place, "path", "\ndesign: {kind: simplify, seeds: 2}\n".rstrip("\n"))
    with closing(sqlite3.connect(shared_place.store)) as store, store:
        store.execute("UPDATE studies SET trivial = NULL WHERE name = 'path'")
    return shared_place


@pytest.fixture(scope="module")
def said(place: Workplace) -> dict[str, dict[str, Any]]:
    """Study to the output of `ablate report --format json`."""
    return {name: json.loads(place.call("report", name, "--format", "json").out) for name in ("crossed", "path")}


def numbers(rows: list[dict[str, str]], column: str) -> list[float]:
    return [float(row[column].replace(",", "")) for row in rows if row[column] not in ("", "-")]


def test_a_sweep_opens_on_its_slices(page: Page, place: Workplace) -> None:
    study(place, "swept", "\ndesign: {kind: sweep, path: model.heads, values: [1, 2], seeds: 1}")
    page.open("/effects?study=swept")
    chosen = page.tab.get_by_role("radiogroup", name="Show").locator("[aria-checked=true], [data-selected=true]")
    assert chosen.first.inner_text() == "Slices"
    assert {row["model.heads"] for row in page.table("val_loss along model.heads")} == {"1", "2"}
    page.open("/effects?study=crossed")
    page.wait_for_text("Each by itself, on average with and without the others")


def click_on(page: Page, study: str) -> None:
    """Click on the name of a study in the table of studies, and wait for its answer."""
    rows = [row["study"] for row in page.table("Studies")]
    canvas = page.tab.locator('[role="region"][aria-label^="Studies"]').locator("canvas").first.bounding_box()
    assert canvas is not None
    height = (canvas["height"] - 35) / len(rows)
    page.tab.mouse.click(canvas["x"] + 300, canvas["y"] + 35 + height * (0.5 + rows.index(study)))
    page.tab.wait_for_url(f"**/answer?study={study}*")
    page.settle()


def test_a_click_on_the_name_of_a_study_opens_its_answer_while_studies_run(page: Page, place: Workplace) -> None:
    change = "UPDATE study_trials SET state = ? WHERE position = 0 AND study_id IN (SELECT id FROM studies)"
    with closing(sqlite3.connect(place.store)) as store, store:
        known = "SELECT study_id, state FROM study_trials WHERE position = 0"
        states = store.execute(known).fetchall()
        store.execute(change, ("waiting",))
    slow = page.tab.context.new_cdp_session(page.tab)
    try:
        page.open("/answer?study=crossed")
        # What is live asks for a run every `LIVE` seconds; here it asks all the time, so also while a page is drawn.
        hasten = """live => {
            const before = window.setInterval
            window.hastened = 0
            window.setInterval = (call, pause, ...rest) => {
                window.hastened += pause === live
                return before(call, pause === live ? 20 : pause, ...rest)
            }
        }"""
        page.tab.evaluate(hasten, LIVE * 1000)
        for _ in range(2):
            page.tab.get_by_test_id("stSidebar").get_by_role("link", name="Studies", exact=True).click()
            page.main.get_by_role("region", name="Studies with their state").wait_for()
            assert page.tab.evaluate("window.hastened"), "no timer of the page was found"
            click_on(page, "crossed")
            assert page.tab.get_by_role("combobox", name="Study").input_value() == "crossed"
        page.tab.get_by_test_id("stSidebar").get_by_role("link", name="Studies", exact=True).click()
        page.main.get_by_role("region", name="Studies with their state").wait_for()
        # In a slow browser a live run may bring the selection of a table that a choice has replaced: not a click.
        slow.send("Emulation.setCPUThrottlingRate", {"rate": 2})
        for name in ("path", "crossed", "path"):
            page.tab.get_by_role("combobox", name="Study").click()
            page.tab.get_by_role("option", name=name).click()
            page.tab.wait_for_url(f"**study={name}*")
    finally:
        slow.send("Emulation.setCPUThrottlingRate", {"rate": 1})  # a new connection would leave the rate as it is
        slow.detach()
        with closing(sqlite3.connect(place.store)) as store, store:
            store.executemany(f"{change} AND study_id = ?", [(state, study) for study, state in states])


def test_effects_are_those_of_the_report(page: Page, said: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    found = said["crossed"]["effects"]
    page.open("/effects?study=crossed")
    rows = page.main.locator('table[aria-label*="effects on val_loss"] tbody tr:has(.number)').all_inner_texts()
    told = found["main"]
    assert len(rows) == len(told)
    titles = [found["titles"]["=".join(row["settings"][0])] for row in told]
    rows.sort(key=lambda shown: min(range(len(told)), key=lambda place: f"{shown}{titles[place]}".index(titles[place])))
    for shown, row in zip(rows, told, strict=True):
        assert f"{row['estimate']:+.2f}"[:4] in shown
        assert all(f"+ {found['titles'][name]}" in shown for name in row["aliases"])
    assert any(row["aliases"] for row in told), "a fraction of resolution III has aliases"
    page.main.get_by_text("How to read this").click()
    page.wait_for_text("diverged count as")
    alias = next(found["titles"][name] for row in told for name in row["aliases"])
    page.check_exports(tmp_path, "crossed_effects", "crossed_effects")
    drawn = ElementTree.parse(tmp_path / "crossed_effects.svg").getroot().itertext()
    assert f"+ {alias}" in " ".join(drawn), "the figure names what an effect is aliased with"


def test_each_view_of_effects_has_an_address(page: Page, said: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    page.open("/effects?study=crossed&show=Parallel")
    assert len(page.table("Variants with their settings")) == len(said["crossed"]["variants"])
    page.wait_for_text("dashed: ")
    page.check_exports(tmp_path, "crossed_variants", "crossed_parallel")
    page.tab.get_by_role("radio", name="Importances").click()
    page.tab.wait_for_url("**show=Importances*")
    page.main.get_by_text("How much of the variance").wait_for()
    page.settle()
    told = page.tab.get_by_test_id("stVegaLiteChart").first.get_attribute("aria-label") or ""
    found = said["crossed"]["importances"]
    shares = [*(one["share"] for one in found["factors"]), found["rest"]]
    assert re.findall(r"explains? (\d+ %)", told) == [f"{100 * share:.0f} %" for share in shares]
    page.open("/effects?study=crossed&show=Slices")
    page.main.get_by_text("varies nothing that is a number").wait_for()
    page.open("/effects?study=path&show=Effects")
    page.main.get_by_text("design: {kind: fractional}").wait_for()


def test_the_path_is_that_of_the_report(page: Page, said: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    found = said["path"]["path"]
    page.open("/path?study=path")
    rows = page.main.locator('table[aria-label^="Removals that were tried"] tbody tr:has(.number)').all_inner_texts()
    tried = [one for tried in found["rounds"] for one in tried]
    assert len(rows) == len(tried)
    steps = len(found["steps"])
    assert page.main.get_by_text("Speed is left out: no variant was timed.").count() == (steps > 0)
    blocks = page.main.get_by_alt_text(
        re.compile("^Block diagram of step" if steps else "^Block of the baseline of path")
    )
    blocks.nth(steps).wait_for()
    assert blocks.count() == steps + 1
    page.main.get_by_role("button", name="Export").first.click()
    exported = pd.read_csv(page.download("path_path.csv", tmp_path))
    assert len(exported) == len(tried) + 1, "and the baseline"
    assert page.tab.get_by_role("button", name="path_path.svg", exact=True).count() == (steps > 0)
    page.tab.keyboard.press("Escape")
    page.open("/path?study=crossed")
    page.main.get_by_text("design: {kind: simplify, seeds: 3}").wait_for()


def test_the_front_is_that_of_the_report_and_a_point_shows_its_block(
    page: Page, said: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    found = said["path"]["front"]
    page.open("/tradeoffs?study=path")
    rows = page.table("Variants by")
    points = sorted(found["points"], key=lambda point: not point["on_front"])
    named = [f"{place}. {found['titles'][point['variant']]}" for place, point in enumerate(points, 1)]
    assert [row["variant"] for row in rows] == named
    assert numbers(rows, "val_loss") == pytest.approx(
        [point["values"]["val_loss"]["mean"] for point in points], rel=1e-9
    )
    told = set(page.main.locator(".mark-text.role-mark text").all_text_contents())
    assert told == {*named, "baseline + margin 0.05"}, "each point has its name beside it"
    mark = page.main.locator(".mark-symbol.role-mark path").last
    mark.click(force=True)
    page.tab.wait_for_url("**variant=*")
    page.settle()
    (chosen,) = parse_qs(urlsplit(page.tab.url).query)["variant"]
    assert chosen in {point["variant"] for point in found["points"]}
    page.main.get_by_alt_text(re.compile("^Block diagram of")).last.wait_for()
    page.open("/tradeoffs?study=path&seen=val_loss&seen=parameters&seen=training+FLOP")
    assert "flops" in page.table("Variants by")[0]
    page.check_exports(tmp_path, "path_front", "path_front")


def test_a_click_on_a_trial_in_the_table_gives_its_link(page: Page) -> None:
    page.open("/trials?study=crossed&by=val_loss")
    rows = page.table("Trials with state")
    canvas = page.tab.locator('[role="region"][aria-label^="Trials with state"] canvas').first.bounding_box()
    assert canvas is not None
    page.tab.mouse.click(canvas["x"] + 60, canvas["y"] + 35 * 3.5)
    page.main.get_by_role("link", name=f"{rows[2]['variant']}, seed {rows[2]['seed']}").click()
    page.tab.wait_for_url(f"**trial={rows[2]['key']}*")
    page.wait_for_text(f"{rows[2]['variant']}, seed {rows[2]['seed']}")
    page.tab.go_back()
    page.tab.wait_for_url("**/trials?study=crossed*")


def test_the_page_of_a_run_shows_failed_trials(page: Page, tmp_path: Path) -> None:
    page.open("/runs?study=crossed&past=true")
    rows = page.table("Trials that failed")
    assert len(rows) == 4
    assert {row["state"] for row in rows} == {"diverged"}
    assert all(row["reason"] and "→ 1e+30" in row["variant"] for row in rows)
    assert sum(numbers(page.table("Machines and devices"), "trials")) == 8
    page.check_exports(tmp_path, "crossed_throughput", "crossed_throughput")
    page.open("/cluster?study=crossed")
    page.main.get_by_text("No study runs now").wait_for()


def test_a_study_is_designed_with_clicks_and_as_yaml_and_started(page: Page, place: Workplace) -> None:
    start = read_document(place.folder / place.space("made", steps=2, seeds=2), "a space").plain
    start |= {"switches": {}, "model": {**start["model"], "block": {"mixer": {"kind": "attention"}}}}
    page.open(f"/design?space={packed(start)}")
    page.tab.get_by_label("The space as YAML").fill(text_of(start | {"name": "typed"}).replace("depth: 1", "depth: ["))
    page.tab.keyboard.press("Control+Enter")
    page.wait_for_text("This is not valid YAML")
    page.check_contrast()
    norm = {"norm": {"kept": {}, "none": {"block.norm": {"kind": "none"}}}}
    page.tab.get_by_label("The space as YAML").fill(text_of(start | {"name": "clicked", "switches": norm}))
    page.tab.keyboard.press("Control+Enter")
    page.main.get_by_text("A valid space: clicked").wait_for()
    page.settle()
    page.main.locator("[data-part='skip_mixer']").last.locator("text").click()
    page.tab.get_by_role("button", name="Remove the skip around attention").click()
    page.wait_for_text("removed: without the skip around attention")
    page.main.locator("[data-part='mixer: value'] rect").click()
    page.tab.get_by_role("button", name="Remove the value projection").wait_for()
    page.settle()
    page.tab.get_by_role("combobox", name="Replace or vary").click()
    page.tab.get_by_role("option", name="the dense value → reparametrised").click()
    page.wait_for_text("reparametrised: replaces the dense value by reparametrised")
    page.main.get_by_text("A valid space: clicked").wait_for()
    page.tab.get_by_role("button", name="Start this study").click()
    page.tab.wait_for_url("**/answer?study=clicked*")
    page.wait_for_text("8 of 8 trials")
