"""The slides: what is on which screen, equal scales, nothing that runs, and how a browser prints them."""

from __future__ import annotations

import base64
import dataclasses
import os
import re
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fake_store import FakeStore, fake_store

from ablate.analysis.findings import read_findings
from ablate.render.formats import write_report
from ablate.render.formats.slides import shown_variant, slides
from ablate.spec.named import named_block
from ablate.store import TrialState
from benchmarks.browser import find_browser, launch

BLOCKS = {"baseline": "pre_ln", "block=parallel": "parallel", "block=sas_p": "sas_p"}


def _store(variants: int = 0, claims: int = 1, question: str = "Which block will do?") -> FakeStore:
    names = [*BLOCKS, *(f"more={number}" for number in range(variants))]
    made = fake_store({name: ({}, 1000 - 10 * len(name)) for name in names}, question=question, margin=0.1)
    specs = {name: {"model": {"block": named_block(block).block}} for name, block in BLOCKS.items()}
    plain = [
        {"id": f"c{number}", "says": f"Claim {number} holds.", "expect": "worse", "left": "block=sas_p"}
        | {"right": "baseline", "margin": 0.01}
        for number in range(claims)
    ]
    made.record = dataclasses.replace(
        made.record,
        space={"claims": plain},
        variants=tuple(
            dataclasses.replace(variant, spec=specs.get(variant.name, specs["baseline"]))
            for variant in made.record.variants
        ),
    )
    for number, name in enumerate(names):
        for seed in range(3):
            made.add(name, seed, {"val_loss": 3 + 0.3 * (number == 2) + seed / 7 + (seed * number) / 1000})
    return made


class _Sections(HTMLParser):
    """The words and the images of each section."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.images: list[list[dict[str, str]]] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "section":
            self.words.append("")
            self.images.append([])
        if tag == "img":
            self.images[-1].append({name: value or "" for name, value in attrs})
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        if self.words:
            self.words[-1] += data


def read(html: str) -> _Sections:
    parser = _Sections()
    parser.feed(html)
    return parser


def test_each_screen_has_its_part() -> None:
    shown = read(slides(read_findings(_store(), "a_study")))
    assert [len(images) for images in shown.images] == [2, 0, 0, 0]
    question, comparisons, conclusion, cost = shown.words
    assert "Which block will do?" in question
    assert "As good within 0.1: block=parallel. Worse: block=sas_p (at least 0.29)." in question
    assert "block=sas_p" in comparisons
    assert "≥ +0.29" in comparisons
    assert "svg" in shown.tags, "intervals are drawn"
    assert "Claim 0 holds." in conclusion
    assert "supported" in conclusion
    html = slides(read_findings(_store(claims=2), "a_study"))
    assert html.partition('claims">')[2].count("<svg") == 2, "the interval of each claim"
    assert len(read(html).images[0]) == 2
    assert "What next" in cost
    assert "9/9 trials" in cost


def test_both_blocks_have_one_scale() -> None:
    html = slides(read_findings(_store(), "a_study"), "block=parallel")
    found = re.findall(r'<figure style="width: ([0-9.]+)rem; --share: ([0-9.]+)">', html)
    widths, shares = ([float(one) for one in of] for of in zip(*found, strict=True))
    assert shares == pytest.approx([width / max(widths) for width in widths], rel=1e-3), "on a phone, too"
    drawn = [image["src"] for image in read(html).images[0]]
    texts = [base64.b64decode(src.partition(",")[2]).decode() for src in drawn]
    boxes = [float(width) for text in texts for width in re.findall(r'viewBox="0 [0-9.]+ ([0-9.]+) [0-9.]+"', text)]
    scales = [width / box for width, box in zip(widths, boxes, strict=True)]
    assert len(scales) == 2
    sizes = [int(size) for text in texts for size in re.findall(r"font-size: (\d+)px", text)]
    assert 16 * scales[0] * min(sizes) > 8, "pixels of the smallest text on a screen of 1280"
    assert scales[0] == pytest.approx(scales[1], rel=1e-3)  # four digits are written
    assert boxes[0] != boxes[1], "blocks of equal width would tell nothing"


def test_the_variant_can_be_chosen_and_is_by_default_the_smallest_that_will_do() -> None:
    findings = read_findings(_store(), "a_study")
    assert "Block of block=parallel" in slides(findings)  # sas_p is needed
    assert "Block of block=sas_p" in slides(findings, "block=sas_p")
    assert "Block of block=parallel" in slides(findings, "nobody")
    report = findings.report
    rows = [dataclasses.replace(row, verdict=None) if row.name != "block=sas_p" else row for row in report.variants]
    assert rows[1].name == "block=parallel"
    assert shown_variant(dataclasses.replace(report, variants=rows)) == "block=sas_p", "not one that was pruned"
    blocks = {name: {"model": {"block": name != "block=parallel"}} for name in BLOCKS}
    variants = [dataclasses.replace(one, spec=blocks[one.name]) for one in report.record.variants]
    record = dataclasses.replace(report.record, variants=tuple(variants), baseline="block=sas_p")
    other = shown_variant(dataclasses.replace(report, record=record, variants=rows))
    assert other == "block=parallel", "the baseline's block is not shown twice"


def test_texts_of_users_are_never_executed() -> None:
    nasty = '"><script>window.caught=1</script><img src=x onerror=window.caught=1>'
    shown = read(slides(read_findings(_store(question=nasty), "a_study")))
    assert "script" not in shown.tags
    assert nasty in shown.words[0]
    assert all(image["src"].startswith("data:image/svg+xml;base64,") for images in shown.images for image in images)


def test_a_study_whose_kinds_are_unknown_has_no_blocks() -> None:
    made = _store()
    spec = {"model": {"block": {"mixer": {"kind": "nobody's"}}}}
    variants = tuple(dataclasses.replace(variant, spec=spec) for variant in made.record.variants)
    made.record = dataclasses.replace(made.record, variants=variants)
    shown = read(slides(read_findings(made, "a_study")))
    assert [len(images) for images in shown.images] == [0, 0, 0, 0]


def test_the_files_of_two_formats_do_not_replace_one_another(tmp_path: Path) -> None:
    findings = read_findings(_store(), "a_study")
    files = {write_report(findings, name, tmp_path)[0].name for name in ("html", "slides")}
    assert files == {"a_study.html", "a_study_slides.html"}


def printed(browser: str, page: Path) -> tuple[bytes, list[int]]:
    """A page as PDF, and by how many pixels each of its sections is too long."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = launch(playwright, browser)
        tab = started.new_page(viewport={"width": 1280, "height": 720})
        tab.goto(page.as_uri())
        pdf = tab.pdf(prefer_css_page_size=True, print_background=True)
        tab.emulate_media(media="print")
        cut = tab.evaluate("[...document.querySelectorAll('section')].map(one => one.scrollHeight - one.clientHeight)")
        started.close()
    return pdf, cut


@pytest.mark.parametrize(("variants", "claims"), [(0, 1), (40, 12)])
def test_a_browser_prints_a_page_for_each_screen(variants: int, claims: int, tmp_path: Path) -> None:
    browser = find_browser()
    if browser is None:
        if os.environ.get("CI"):
            pytest.fail("there is no Chromium")
        pytest.skip("no Chromium is installed")
    made = _store(variants, claims, question="Which of many blocks of a Transformer will do? " * 4)
    made.add("block=sas_p", 2, state=TrialState.DIVERGED, stopped_at=9)
    page = tmp_path / "slides.html"
    page.write_text(slides(read_findings(made, "a_study")), encoding="utf-8")
    with ThreadPoolExecutor(1) as thread:  # this one may hold the event loop of another test's browser
        pdf, cut = thread.submit(printed, browser, page).result()
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 4
    assert max(cut) <= 0, "something is cut off at the end of a page"
