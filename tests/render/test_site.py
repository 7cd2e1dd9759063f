"""A static site: every link leads to a file of it, nothing of a study is markup, and other names stay in the folder."""

from __future__ import annotations

import dataclasses
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from fake_store import FakeStore, fake_store

from ablate.analysis.findings import read_findings
from ablate.render.site import write_site
from ablate.store.records import TrialState

HOSTILE = "../<script>alert(1)</script>"


def studied(name: str, **more: Any) -> FakeStore:
    made = fake_store({"baseline": ({}, 10), "a=x": ({}, 9), "b=y": ({}, 9)}, seeds=3, margin=0.1)
    for seed in range(3):
        made.add("baseline", seed, {"val_loss": 3.0 + seed / 10})
        made.add("a=x", seed, {"val_loss": 3.9 + seed / 10 + seed / 100})
        made.add("b=y", seed, {}, state=TrialState.DIVERGED, stopped_at=3)
    made.record = dataclasses.replace(made.record, name=name, **more)
    return made


class Links(HTMLParser):
    """The tags and addresses of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [str(value) for name, value in attrs if name in ("href", "src")]


@pytest.mark.parametrize("pages", ["html", "md"])
def test_the_index_leads_to_every_report(pages: Any, tmp_path: Path) -> None:
    stores = [studied("first", question="Does `x` matter?"), studied(HOSTILE, question="<b>Is it</b> | so? [x](y)")]
    studies = [read_findings(store, store.record.name) for store in stores]
    written = write_site(studies, tmp_path / "site", pages, "What can go & what must stay")
    assert written[0] == tmp_path / "site" / {"html": "index.html", "md": "README.md"}[pages]
    assert all(file.is_file() and file.is_relative_to(tmp_path / "site") for file in written)
    assert {file.parent.name for file in (tmp_path / "site").rglob("*.json")} >= {"first"}
    index = written[0].read_text(encoding="utf-8")
    assert index.count("val\\_loss 3.1" if pages == "md" else "val_loss 3.1") == 2
    assert "1 change is worse" in index
    shown = index.replace("\\<", "")
    assert "<script" not in shown
    assert "<b>" not in shown
    if pages == "html":
        links = Links(index)
        assert "script" not in links.tags
        targets = [address for address in links.addresses if not address.startswith("data:")]
        assert len(targets) == 2
        assert all((tmp_path / "site" / unquote(target)).is_file() for target in targets)


def test_the_data_is_the_report(tmp_path: Path) -> None:
    store = studied("first")
    write_site([read_findings(store, "first")], tmp_path)
    plain = json.loads((tmp_path / "first" / "first.json").read_text())
    assert [row["name"] for row in plain["variants"]] == ["baseline", "a=x", "b=y"]
    assert len((tmp_path / "first" / "first.csv").read_text().splitlines()) == 4
