"""Studies started, given seeds and stopped from the dashboard, in separate processes; and when that is not allowed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import streamlit
from cli_runs import SPACE, Workplace
from streamlit.testing.v1 import AppTest

from ablate.serving import OPTIONS, host_name
from ablate.store import open_store
from dashboard.shared.running import Run, RunError, last_run, may_run, start_space, stop


@pytest.fixture
def place(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workplace]:
    """A folder in which a dashboard on loopback works."""
    found = Workplace(tmp_path, cache)
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(OPTIONS, json.dumps({"stores": [str(found.store)], "may_run": True}))
    monkeypatch.chdir(found.folder)
    streamlit.cache_resource.clear()
    yield found
    streamlit.cache_resource.clear()
    monkeypatch.setenv(OPTIONS, json.dumps({"stores": [str(found.store)], "may_run": True}))
    for run in filter(None, map(last_run, ("tiny", "long"))):
        stop(run)
        ended(run)


def ended(run: Run, seconds: float = 180) -> str:
    """The output of a run, once it has ended."""
    deadline = time.monotonic() + seconds
    while run.alive:
        assert time.monotonic() < deadline, run.tail()
        time.sleep(0.1)
    return run.tail()


def planned(place: Workplace) -> int:
    (count,) = place.rows("SELECT count(*) FROM study_trials")[0]
    return int(count)


def _page() -> None:
    import streamlit as st

    from dashboard.shared.frame import navigation
    from dashboard.views.runs import show

    navigation()
    st.session_state["study"] = "tiny"
    show()


def test_a_study_gets_seeds(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert place.call("study", place.space(steps=2, seeds=2), "--workers", "1").code == 0
    assert planned(place) == 6
    app = AppTest.from_function(_page, default_timeout=60).run()
    assert not app.exception, app.exception
    assert "ablate resume tiny --seeds=" in " ".join(one.proto.body for one in app.get("html"))
    for key in ("least-of-tiny", "most-of-tiny"):
        app.number_input(key=key).set_value(3).run()
    app.button(key="add-seeds").click().run()
    run = last_run("tiny")
    assert run is not None
    assert os.getsid(run.pid) == run.pid != os.getsid(0), "it does not end with the dashboard"
    assert "6 trials reused from the store" in ended(run)
    assert planned(place) == 9
    with open_store(place.store, create=False) as store:
        assert store.study("tiny").space["design"]["seeds"] == 3
        assert all(
            trial.state == "finished"
            for trial in store.trials([one.key for one in store.study("tiny").planned]).values()
        )
    # The same page on a dashboard that others can reach has the commands, and no button.
    monkeypatch.setenv(OPTIONS, json.dumps({"stores": [str(place.store)], "read_only": True, "may_run": False}))
    app = AppTest.from_function(_page, default_timeout=60).run()
    assert not app.exception, app.exception
    assert not app.button
    assert "ablate resume tiny" in app.get("html")[0].proto.body
    with pytest.raises(RunError, match="only on the machine"):
        start_space("tiny", "")


def test_a_run_stops_and_keeps_what_it_has(place: Workplace) -> None:
    text = SPACE.format(name="long", steps=1_000_000, seeds=2, margin=0.1)
    run = start_space("long", text)
    with pytest.raises(RunError, match="already running"):
        start_space("long", text)
    deadline = time.monotonic() + 60
    while not place.trials("running"):
        assert run.alive, run.tail()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    stop(run)
    assert "Continue:" in ended(run)


class _Visit:
    """What `st.context` says of a request."""

    def __init__(self, headers: dict[str, str]) -> None:
        self.headers = headers


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({"Host": "localhost:8501"}, True),
        ({"Host": "127.0.0.1:8501"}, True),
        ({"Host": "[::1]:8501"}, True),
        ({"Host": "ablate.example.org"}, False),
        ({"Host": "localhost.example.org:8501"}, False),
        ({"Host": "localhost:8501", "X-Forwarded-For": "10.0.0.7"}, False),
    ],
)
def test_visitors_that_may_run_studies(
    headers: dict[str, str], allowed: bool, place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboard.shared.running.st.context", _Visit(headers))
    assert may_run() is allowed


def test_nothing_may_run_unless_the_server_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(OPTIONS, raising=False)
    assert not may_run()
    monkeypatch.setenv(OPTIONS, json.dumps({"stores": ["postgresql://me:secret@host/db"], "may_run": True}))
    assert not may_run(), "the password would be in the list of processes"


@pytest.mark.parametrize("study", ["../up", "-x", "--plugin=evil.py", "a b", ""])
def test_a_name_is_no_path_and_no_option(study: str, place: Workplace) -> None:
    with pytest.raises(RunError):
        start_space(study, "")
    assert not list(place.folder.rglob("*.log"))
    assert last_run(study) is None


def test_a_run_of_another_process_is_not_ours(place: Workplace) -> None:
    mine = Run("x", os.getpid(), 1.0, "", (), "")
    assert not mine.alive, "the number of a process is given again"
    stop(mine)  # and so nothing is sent to it
    assert host_name("[::1]:80") == "::1"
