"""A suite from its file to its answer: planned, trained, shown, reported, and on the page of the dashboard."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import streamlit
from cli_runs import Workplace
from streamlit.testing.v1 import AppTest

from ablate.serving import OPTIONS

SPACE = """
name: suite
question: Which mixers recall and copy?
tasks:
  recall: {kind: recall, context: 16, pairs: 2, symbols: 8, validation_rows: 16}
  copy: {task: {kind: copy, span: 6, symbols: 4}, training.steps: 4}
model: {family: decoder, depth: 1, width: 8, heads: 2, block: pre_ln}
training: {steps: 3, batch_size: 4, optimizer: {kind: adamw, lr: 1.0e-3}}
switches:
  mixer: {attention: {}, linear: {block.mixer: linear, replaces: attention by a linear kind}}
design: {kind: leave_one_out, seeds: 2}
objective: {metric: val_accuracy, direction: maximize, margin: 0.05}
aggregate: {margin: 0.05}
claims:
  - {id: recalls, task: recall, left: baseline, right: mixer=linear, expect: better, margin: 0.05}
"""


def _page() -> None:
    from dashboard.shared.frame import navigation
    from dashboard.views.answer import _claims, _details, _live

    navigation()
    _live("suite")
    _claims("suite")
    _details("suite")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    folder: Path = tmp_path_factory.mktemp("suite")
    place = Workplace(folder, tmp_path_factory.mktemp("cache"))
    (folder / "suite.yaml").write_text(SPACE)
    study = place.call("study", "suite.yaml", "--workers", "1")
    assert study.code == 0, study.err
    return place


def test_commands_show_variants_by_task(place: Workplace) -> None:
    commands = (
        ["plan", "suite.yaml", "--json"],
        ["show", "suite", "--json"],
        ["show", "suite", "--task", "copy"],
        ["show", "suite", "--task", "copy", "--why", "mixer=linear"],
        ["list", "--json"],
        ["report", "suite", "--format", "md"],
        ["data", "suite.yaml", "--json"],
        ["show", "suite", "--task", "party"],
    )
    planned, shown, alone, why, status, report, data, wrong = (place.call(*command) for command in commands)
    plan = json.loads(planned.out)
    assert [variant["name"] for variant in plan["variants"]] == [
        "baseline@task=recall", "baseline@task=copy", "mixer=linear@task=recall", "mixer=linear@task=copy",
    ]  # fmt: skip
    assert all(trial["done"] for trial in plan["trials"])
    answer = json.loads(shown.out)
    assert answer["objective"] == {"metric": "score", "direction": "maximize", "margin": 0.05}
    assert answer["progress"]["planned"] == 8
    suite = answer["answer"]["suite"]
    # A model that knows which symbols are left to copy, and not their order, is right more often than once in four.
    trivial = {task: of["trivial"] for task, of in suite["tasks"].items()}
    assert trivial == {"recall": 0.5, "copy": pytest.approx(0.614, abs=1e-3)}
    for row in suite["rows"]:
        assert list(row["cells"]) == ["recall", "copy"]
        scores = [cell["score"] for cell in row["cells"].values()]
        assert row["score"] == pytest.approx(sum(scores) / 2)
    assert answer["claims"][0]["evidence"]["task"] == "recall"
    assert "val_accuracy − baseline" in alone.out
    assert "--task copy" in alone.out
    assert why.code == 0
    assert json.loads(status.out)[0]["planned"] == 8
    assert "| variant | mean score | recall | copy |" in report.out
    assert [task["task"] for task in json.loads(data.out)] == ["recall", "copy"]
    assert wrong.code == 2
    assert "has no task 'party'" in wrong.err


def test_page_shows_profile_and_matrix(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OPTIONS, json.dumps({"stores": [str(place.store)]}))
    streamlit.cache_resource.clear()
    page = AppTest.from_function(_page, default_timeout=120).run()
    assert not page.exception, page.exception
    matrix = next(body for one in page.get("html") if "a column for each task" in (body := one.proto.body))
    assert re.findall(r"<th(?: [^>]*)?>(.*?)</th>", matrix)[:3] == ["variant", "mean score", "recall"]
    named = ["baseline", "a linear kind", "trivial baseline"]
    assert re.findall(r"<tr><td[^>]*>(.*?)</td>", matrix) == named
    specs = [json.loads(one.proto.spec) for one in page.get("vega_lite_chart")]
    profile = next(one for one in specs if "concat" in one)
    assert [panel["title"]["text"] for panel in profile["concat"]] == ["mean score", "recall", "copy"]
    streamlit.cache_resource.clear()
