"""The frame and the list of studies without a browser, by Streamlit's AppTest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import postgres
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest
from written_stores import Ended, line, simple_store, variants_of, write_study

from ablate.serving import OPTIONS, serve
from ablate.store import (
    Mark,
    TrialState,
    open_store,
)
from dashboard.shared.machine import program
from dashboard.shared.results import _write
from dashboard.shared.store import every, named_stores
from dashboard.shared.store import store as opened_store
from dashboard.views.studies import _PICKED

APP = Path(__file__).parent.parent.parent / "dashboard" / "app.py"


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A store with three studies: `done`, `half` (half of its trials wait) and `broken` (one failed)."""
    with ExitStack() as stack:
        location = str(tmp_path / "ablate.db")
        if getattr(request, "param", "sqlite") == "postgres":
            location = stack.enter_context(postgres.schema(request.getfixturevalue("postgres_server")))
        simple_store(location)
        with open_store(location) as known:
            known.marks.put("study", "half", Mark(starred=True, tags=("thesis",)))
        monkeypatch.setenv("ABLATE_DASHBOARD", json.dumps({"stores": [location]}))
        st.cache_resource.clear()
        yield location
        opened_store().close()
        st.cache_resource.clear()


def opened(**parameters: str) -> AppTest:
    app = AppTest.from_file(str(APP), default_timeout=90)
    app.query_params.update(parameters)
    return app.run()


def listed(app: AppTest) -> list[str]:
    assert not app.exception
    return sorted(app.dataframe[0].value["study"]) if app.dataframe else []


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        ({}, ["broken", "done", "half"]),
        ({"find": "why DONE"}, ["done"]),
        ({"find": "thesis"}, ["half"]),
        ({"find": "nothing"}, []),
        ({"state": "complete"}, ["done"]),
        ({"state": "incomplete"}, ["broken", "half"]),
        ({"state": "with failures"}, ["broken"]),
        ({"starred": "true"}, ["half"]),
    ],
    ids=str,
)
def test_studies_are_found(store: str, parameters: dict[str, str], names: list[str]) -> None:
    assert listed(opened(**parameters)) == names


@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
def test_a_line_says_what_matters(store: str) -> None:
    table = opened().dataframe[0].value.set_index("study")
    ended = ["state", "progress", "ended", "trials"]
    assert list(table.loc["done", [*ended, "best"]]) == ["complete", 1.0, 4, 4, "small"]
    assert list(table.loc["half", [*ended, "★", "tags"]]) == ["waiting", 0.5, 2, 4, "★", "thesis"]
    assert table.loc["broken", "answer"].endswith(" 1 failed.")
    assert table.loc["done", "answer"] == "No verdict yet: 2 seeds do not decide the comparison."


def test_the_address_chooses_the_study_and_a_wrong_one_is_reported(store: str) -> None:
    assert opened(study="half").selectbox(key="study").value == "half"
    wrong = opened(study="no such")
    assert [message.value for message in wrong.error] == [
        "There is no study no such in this store. Choose one of 3 at the side."
    ]
    assert wrong.selectbox(key="study").value is None
    assert wrong.query_params["study"] == "no such"
    assert not wrong.metric, "no study is shown in its place"
    chosen = wrong.selectbox(key="study").set_value("done").run()
    assert not chosen.error
    assert chosen.query_params["study"] == "done"


def test_a_study_whose_trials_were_all_finished_or_pruned_is_complete(store: str) -> None:
    trials = [Ended("baseline", 0, 2.0), *(Ended("baseline", seed, None, TrialState.PRUNED) for seed in (1, 2))]
    write_study(store, "pruned", variants_of({"baseline": 10}, 9), trials, margin=0.5)
    table = opened(study="pruned").dataframe[0].value.set_index("study")
    assert list(table.loc["pruned", ["state", "progress", "ended", "trials"]]) == ["complete", 1.0, 3, 3]
    assert table.loc["pruned", "answer"].endswith("Of 3 trials, 2 pruned.")
    assert every("pruned") is None, "the pages do not ask again"
    assert every("half") is not None


def test_without_a_store_the_page_says_how_to_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABLATE_DASHBOARD", json.dumps({"stores": [str(tmp_path / "none.db")]}))
    st.cache_resource.clear()
    app = opened()
    assert not app.exception
    assert any(">ablate study simplify_block<" in one.proto.body for one in app.get("html"))


def test_a_sample_without_weights_says_why(store: str) -> None:
    with open_store(store, create=False) as known:
        key = known.study("done").planned[0].key
    assert "weights" in _write(key, "", 0)


def test_nothing_is_shown_before_the_token_is_given(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {"stores": [store], "token": "a long word", "read_only": True}
    monkeypatch.setenv("ABLATE_DASHBOARD", json.dumps(chosen))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    app = opened(study="done")
    assert not app.exception
    assert not app.dataframe
    assert not app.selectbox
    app.text_input(key="token").set_value("another").run()
    assert [message.value for message in app.error] == ["This is not the token of this dashboard."]
    assert not app.dataframe
    app.text_input(key="token").set_value("a long word").run()
    assert listed(app) == ["broken", "done", "half"]


def test_a_read_only_dashboard_writes_no_mark(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABLATE_DASHBOARD", json.dumps({"stores": [store], "read_only": True}))
    app = AppTest.from_file(str(APP), default_timeout=90)
    app.query_params["study"] = "done"
    app.session_state[_PICKED] = (next(iter(named_stores([store]))), "done")  # a row was selected
    app.run()
    saves = [one for one in app.button if one.label == "Save"]
    assert saves
    assert all(one.disabled for one in saves)


@pytest.mark.parametrize(
    ("host", "token", "read_only"), [("127.0.0.1", None, False), ("127.0.0.1", "word", False), ("0.0.0.0", None, True)]
)
def test_a_dashboard_for_other_machines_has_a_token_and_is_read_only(
    host: str,
    token: str | None,
    read_only: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chosen: dict[str, object] = {}
    monkeypatch.setattr(os, "execve", lambda file, line, environment: chosen.update(json.loads(environment[OPTIONS])))
    serve([str(tmp_path / "none.db")], None, host, (), token)
    assert chosen["read_only"] is read_only
    assert bool(chosen["token"]) == (read_only or token is not None)
    assert token is None or chosen["token"] == token
    assert str(chosen["token"]) in capsys.readouterr().out
    assert not read_only or len(str(chosen["token"])) > 20


def test_the_page_of_an_answer_draws_the_course_of_each_comparison(
    tmp_path: Path, shown: Callable[..., AppTest]
) -> None:
    trials = []
    for seed in range(3):
        for name in ("baseline", "small"):
            loss = 2.0 + (name == "small") * (0.1 + seed / 100)
            trials.append(
                Ended(name, seed, loss, curve=line(*((step, loss * 100 / step) for step in (25, 50, 75, 100))))
            )
    write_study(tmp_path / "s.db", "s", variants_of({"baseline": 10, "small": 5}), trials, margin=0.05)
    app = shown("answer", tmp_path / "s.db")
    assert "Course of the differences" in [part.label for part in app.expander]
    assert not [*app.dataframe, *app.get("vega_lite_chart")], "a closed part is not drawn, which would take long"
    app = shown("answer", tmp_path / "s.db", table="true", course="true")
    (figure,) = app.get("vega_lite_chart")
    assert "small shrinking" in figure.proto.alt
    (table,) = [frame.value for frame in app.dataframe if "course" in frame.value]
    assert table["course"].iloc[0] == "-"
    opened_store().close()


HOLD = "import sys\nprint(flush=True)\nsys.stdin.read()\n"
"""A program that says that it has begun, and waits."""


def test_a_program_is_named_with_its_script_and_without_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "hold.py").write_text(HOLD)
    for how, said in (
        (["hold.py"], "it hold.py"),
        (["-m", "hold"], "it -m hold"),
        (["-uB", "hold.py"], "it hold.py"),
        (["-c", HOLD], "it"),
    ):
        command = [sys.executable, *how, "--token=secret"]
        with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as held:
            assert held.stdout
            held.stdout.readline()  # it has its own arguments, no longer those of this process
            assert program(held.pid, "it") == said
            held.communicate()
    assert program(held.pid, "it") == "it", "which has ended"
