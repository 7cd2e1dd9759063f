"""The page on evaluation: its space is trained, its task of `lm-eval` is measured, later and as an objective."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from ablate.cli.app import app
from ablate.store import open_store
from docs.snippets import blocks

pytestmark = pytest.mark.usefixtures("quick")

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "evaluate.md"


def test_the_task_of_the_page_is_measured(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("lm_eval")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    page = list(blocks(PAGE.read_text(encoding="utf-8")))
    for block in page:
        if block.title:
            Path(block.title).parent.mkdir(exist_ok=True)
            Path(block.title).write_text(block.text, encoding="utf-8")
    (tmp_path / "notes.txt").write_text("return self\nimport os\n" * 300, encoding="utf-8")
    reader = YAML(typ="safe")
    space = reader.load(Path("letters.yaml"))
    (part,) = (block.text for block in page if block.language == "yaml" and "downstream" in block.text)
    space |= reader.load(part)
    reader.dump(space, Path("letters.yaml"))
    common = ["--cache", str(cache), "--store", "a.db", "--json"]
    app(["study", "letters.yaml", "--data", "file:notes.txt", "--workers", "1", *common], standalone_mode=False)
    with open_store("a.db") as store:
        keys = [planned.key for planned in store.study("letters").planned]
        metrics = store.trial(keys[0]).metrics
    assert 0 <= metrics["val_keywords_acc"] <= 1
    commands = [command for block in page for command in block.commands() if command.startswith("ablate evaluate")]
    ours = [command.split()[3:] for command in commands if "hellaswag" not in command]  # whose data is on the hub
    assert len(ours) == len(commands) - 1 == 2
    for arguments in ours:
        capsys.readouterr()
        app(["evaluate", keys[0], *dict.fromkeys([*arguments, *common])], standalone_mode=False)
        told = json.loads(capsys.readouterr().out)
        assert told.keys() - {"trial"} in ({"file"}, {"tasks", "stored_as"})
    with open_store("a.db") as store:
        assert store.trial(keys[0]).metrics["test_keywords_acc"] == metrics["val_keywords_acc"]
