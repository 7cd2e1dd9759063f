"""The commands in a report that run a study again work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_store import FakeStore, fake_store

from ablate.analysis.findings import read_findings
from ablate.render.blocks import Listing, Paragraph
from ablate.render.document import kept_options, reproduction
from ablate.spec.reading import load_space
from ablate.spec.space import SpaceSpec
from ablate.store.records import Environment

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
