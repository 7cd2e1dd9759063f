"""The plugin files of `docs/how-to/`, one of each family: in a space, in `kinds`, in `check`, in both schemas."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from plugin_kinds import OF_MODELS, OF_THE_REST, write_plugin

from ablate.plugins import FAMILIES

ROOT = Path(__file__).parent.parent.parent
SPACE = """
name: own_kinds
question: Do kinds of one's own work?
model: {family: decoder, width: 12, depth: 2, heads: 3, block: pre_ln}
task: {kind: language_model, data: squares, tokenizer: letters, context: 16, text: text}
training:
  steps: 4
  batch_size: 4
  optimizer: {kind: sign_sgd, lr: 1.0e-2, embedding_rate: 0.1}
  schedule: {kind: stable_decay, decay: 0.5}
  evaluations: 2
switches:
  norm: {layer: {}, none: {block.norm: none}}
  optimizer: {own: {}, adam: {training.optimizer: {kind: adam, lr: 1.0e-3}}}
design: {kind: leave_two_out, seeds: 2}
objective: {metric: val_loss, margin: 0.1}
"""


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process prints that has loaded the plugins of the pages."""
    folder = tmp_path_factory.mktemp("plugins")
    for family in OF_THE_REST:
        write_plugin(family, folder)
    assert len(list(folder.glob("my_*.py"))) == len(OF_THE_REST)
    (folder / "own_kinds.yaml").write_text(SPACE, encoding="utf-8")
    command = [
        sys.executable,
        str(Path(__file__).with_name("plugin_run.py")),
        str(folder),
        str(folder / "own_kinds.yaml"),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}  # `docs` is there, wherever `ablate` is installed
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment, timeout=280)
    assert done.returncode == 0, done.stderr
    plain: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return plain


def test_there_is_a_plugin_file_of_each_family() -> None:
    assert {*OF_MODELS, *OF_THE_REST} == {*FAMILIES}


@pytest.mark.parametrize(("family", "kind"), OF_THE_REST.items())
def test_it_is_listed_and_keeps_the_contract(facts: dict[str, Any], family: str, kind: str) -> None:
    assert kind in facts["listed"][family]
    assert facts["checked"][family] == []


@pytest.mark.parametrize(
    "kind", [kind for family, kind in OF_THE_REST.items() if family not in ("formats", "trackers")]
)
@pytest.mark.parametrize("schema", ["schema", "designer"])
def test_it_is_in_the_schema_of_files_and_in_the_designers(facts: dict[str, Any], schema: str, kind: str) -> None:
    assert re.search(rf'"const": "{kind}"' if kind != "squares" else r'"pattern": "[^"]*\|squares', facts[schema])


def test_its_fields_are_described(facts: dict[str, Any]) -> None:
    assert "Rate of the embeddings, as a share of that of all else." in facts["designer"]


def test_a_space_is_made_of_them(facts: dict[str, Any]) -> None:
    assert facts["training"]["optimizer"] == {"kind": "sign_sgd", "lr": 0.01, "embedding_rate": 0.1}
    assert facts["training"]["schedule"] == {"kind": "stable_decay", "decay": 0.5}
    assert (facts["task"]["data"], facts["task"]["tokenizer"]) == ("squares", {"kind": "letters"})
    assert facts["points"] == ["baseline", "norm=none,optimizer=adam"]
    assert facts["format"] == "txt"


def test_the_code_of_each_is_part_of_the_keys_of_its_trials(facts: dict[str, Any]) -> None:
    """Also of the source, which a space names by its address, as a text."""
    assert {label: entry["file"] for label, entry in facts["code"].items()} == {
        "optimizer sign_sgd": "my_optimizer.py",
        "schedule stable_decay": "my_schedule.py",
        "tokenizer letters": "my_tokenizer.py",
        "data source squares": "my_source.py",
    }


def test_it_trains(facts: dict[str, Any]) -> None:
    first, *_, last = facts["losses"]
    assert first == pytest.approx(math.log(28), abs=0.2)  # 28 ids, at random
    assert last < first - 0.1
