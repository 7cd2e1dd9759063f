"""A static site whose every link leads somewhere, and commands in a report that run a study again."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from fake_store import FakeStore, fake_store

from ablate.analysis.findings import read_findings
from ablate.render.blocks import Listing, Paragraph
from ablate.render.document import kept_options, reproduction
from ablate.render.site import write_site
from ablate.spec.reading import load_space
from ablate.spec.space import SpaceSpec
from ablate.store.records import Environment, TrialState

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
    assert "Worse: " in index
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


PARENT = """
name: parent
task: {kind: language_model, data: builtin:python_stdlib, tokenizer: bytes, context: 16}
model: {family: decoder, depth: 1, width: 16, heads: 2, block: mine}
training: {steps: 2, batch_size: 2, optimizer: {kind: adamw, lr: 1.0e-5}}
switches:
  "on":
    "yes": {}
    "1": {block.mixer: {kind: retention}}
    heads: {block.mixer.kv_heads: null, block.gains.mixer_branch.init: 0.5}
objective: {metric: val_loss, direction: minimize, margin: 0.05}
design: {kind: leave_one_out, seeds: 2}
"""
CHILD = """
extends: parent.yaml
name: child
question: "Wozu? 'a' \\"b\\": #c 漢"
training: {steps: 3}
claims:
  - {id: it, expect: worse, left: on=heads, right: baseline, margin: 0.1}
"""


def space_of(folder: Path) -> SpaceSpec:
    (folder / "blocks").mkdir()
    (folder / "blocks" / "mine.yaml").write_text(
        "{description: ours, source: us, block: {mixer: attention, norm: rms}}\n"
    )
    (folder / "parent.yaml").write_text(PARENT)
    (folder / "child.yaml").write_text(CHILD, encoding="utf-8")
    return load_space(folder / "child.yaml", data=f"file:{folder}/texts")


def store_of(space: SpaceSpec, command: str) -> FakeStore:
    places = [f"@task={task}" for task in space.tasks] or [""]
    names = [f"{variant}{place}" for variant in ("baseline", "other") for place in places]
    made = fake_store({name: ({}, 100 - number) for number, name in enumerate(names)}, seeds=1, name=space.name)
    spec = space.resolve({}).model_dump(mode="json")
    objective = made.record.objective | {"metric": space.objective.metric, "direction": space.objective.direction}
    made.record = replace(
        made.record,
        objective=objective,
        space=space.model_dump(mode="json"),
        text="extends: what_is_not_there.yaml",
        variants=[replace(variant, spec=spec) for variant in made.record.variants],
    )
    where = Environment({"python": "3.12"}, "cpu: lab", "host", None, None, command)
    for variant in names:
        made.add(variant, 0, {space.objective.metric: 0.5})
    made.trial_records = {key: replace(trial, environment=where) for key, trial in made.trial_records.items()}
    return made


def said(space: SpaceSpec, command: str) -> tuple[str, str, str]:
    """The commands, the space and the sentences of the section."""
    blocks = list(reproduction(read_findings(store_of(space, command), space.name)))
    commands, text = (block.text for block in blocks if isinstance(block, Listing))
    return commands, text, " ".join(block.text for block in blocks if isinstance(block, Paragraph))


def test_the_printed_space_alone_gives_the_same_variants(tmp_path: Path) -> None:
    (folder := tmp_path / "here").mkdir()
    (elsewhere := tmp_path / "elsewhere").mkdir()
    space = space_of(folder)
    (elsewhere / "child.yaml").write_text(said(space, "ablate study child.yaml")[1], encoding="utf-8")
    again = load_space(elsewhere / "child.yaml")
    assert again.canonical() == space.canonical()
    assert again.task.data == f"file:{folder}/texts"
    for settings in ({}, {"on": "1"}, {"on": "heads"}):
        assert again.resolve(settings).content_hash() == space.resolve(settings).content_hash()


@pytest.mark.parametrize("file", sorted(Path("spaces").glob("*.yaml")), ids=lambda file: file.stem)
def test_every_shipped_space_comes_back(file: Path, tmp_path: Path) -> None:
    space = load_space(file)
    (tmp_path / "again.yaml").write_text(said(space, "ablate study x.yaml")[1], encoding="utf-8")
    assert load_space(tmp_path / "again.yaml").canonical() == space.canonical()


def test_the_command_has_the_plugins_and_the_engine_that_were_used(tmp_path: Path) -> None:
    command = "ablate study sub/child.yaml --data file:x --plugin 'my mixer.py' --plugin=task.py --engine ray"
    commands, _, sentences = said(space_of(tmp_path), command)
    again = "ablate study child.yaml --plugin 'my mixer.py' --plugin task.py --engine ray --store again.db"
    assert commands.splitlines() == [again, "ablate report child --store again.db"]
    assert command in sentences
    assert "not recorded" not in sentences


@pytest.mark.parametrize("command", ["notebook.py --plugin no.py", "an 'open quote", ""])
def test_what_another_program_loaded_is_not_known_and_the_report_says_so(command: str, tmp_path: Path) -> None:
    commands, _, sentences = said(space_of(tmp_path), command)
    assert commands.startswith("ablate study child.yaml --store again.db")
    assert "plugins, and which, is not recorded" in sentences
    assert list(kept_options(command)) == []
