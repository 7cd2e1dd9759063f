"""The pages Search and All trials, over a search that pruned trials, and the table behind the latter."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import streamlit
from fake_store import FakeStore, fake_store
from streamlit.testing.v1 import AppTest
from vega import marks, rows, series

from ablate.serving import OPTIONS
from ablate.store import (
    CurvePoint,
    Environment,
    PlannedTrial,
    StudyDraft,
    TrialOutcome,
    TrialState,
    VariantRecord,
    open_store,
)
from ablate.store.records import DesignTraits
from dashboard.shared.results import KEY, STATE, Filter, filtered, switches, trial_table

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
LR = "training.optimizer.lr"
SPACE = {
    "switches": {"norm": {"rms": {}, "<b>none": {}}},
    "design": {"kind": "search", "points": 12, "ranges": {LR: {"low": 1e-4, "high": 0.1, "log": True}}},
}


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A store with a search of twelve points; the last four were pruned."""
    path = tmp_path / "s.db"
    names = [f"norm={'rms' if n % 2 else '<b>none'}@{LR}={10 ** (-4 + n / 4):.4g}" for n in range(12)]
    variants = [
        VariantRecord(
            name, f"{n:064x}", {"norm": name.partition("@")[0][5:], LR: name.rpartition("=")[2]}, {"model": {}}, 9
        )
        for n, name in enumerate(names)
    ]
    planned = [PlannedTrial(f"{n:064x}", name, 0) for n, name in enumerate(names)]
    objective = {"metric": "val_loss", "direction": "minimize", "margin": 0.1}
    where = Environment({"python": "3"}, "cpu", "here", None, None, "ablate study")
    with open_store(path) as store:
        traits = DesignTraits(chooses=True, plans_points=False)
        draft = StudyDraft("searched", "Which rate?", "", SPACE, "", objective, names[0], traits=traits)
        store.begin_study(draft, variants, planned)
        for n, trial in enumerate(planned):
            state = TrialState.PRUNED if n >= 8 else TrialState.FINISHED
            curve = tuple(CurvePoint(step, step, step, step, None, 4.0 - n / 10 - step / 9) for step in range(1, 4))
            store.record_outcome(
                TrialOutcome(
                    trial.key, f"{n:064x}", 0, state, {"val_loss": 4.0 - n / 10} if n < 8 else {}, 3, 3.0, 3, 3.0,
                    3 if n >= 8 else None, "", "d", NOW, NOW, curve,
                ),
                where,
            )  # fmt: skip
    monkeypatch.setenv(OPTIONS, json.dumps({"stores": [str(path)]}))
    streamlit.cache_resource.clear()
    yield path
    streamlit.cache_resource.clear()


def _search() -> None:
    import streamlit as st

    from dashboard.shared.frame import navigation
    from dashboard.views.search import show

    navigation()
    st.session_state["study"] = "searched"
    show()


def _trials() -> None:
    import streamlit as st

    from dashboard.shared.frame import navigation
    from dashboard.views.trials import show

    navigation()
    st.session_state["study"] = "searched"
    show()


def figures(app: AppTest) -> list[dict[str, Any]]:
    return [json.loads(one.proto.spec) for one in app.get("vega_lite_chart")]


def test_the_search_is_drawn_with_its_best_and_its_pruned_trials(app: Path) -> None:
    page = AppTest.from_function(_search, default_timeout=90).run()
    assert not page.exception, page.exception
    history, curves, pair = figures(page)
    (line,) = marks(history, "line")
    values = [row["value"] for row in rows(line)]
    assert [row["best"] for row in rows(line)] == list(itertools.accumulate(values, min))
    lines = series(marks(curves, "point")[-1], "trial")
    assert len(lines) == 12
    assert sum({row["name"] for row in line} == {"pruned"} for line in lines.values()) == 4
    assert len(rows(marks(pair, "point")[0])) == len(values)


def test_the_table_is_filtered_from_the_address(app: Path) -> None:
    page = AppTest.from_function(_trials, default_timeout=90)
    page.query_params["states"] = ["finished"]
    page.query_params["setting"] = ["norm=rms"]
    page.query_params["by"] = "val_loss"
    page.run()
    assert not page.exception, page.exception
    shown = page.dataframe[0].value
    assert list(shown["val_loss"]) == pytest.approx([3.3, 3.5, 3.7, 3.9])
    assert set(shown["norm="]) == {"rms"}
    page.multiselect(key="states").set_value(["pruned"]).run()
    assert len(page.dataframe[0].value) == 2


def _searched() -> FakeStore:
    settings = {"baseline": {"norm": "rms"}, "a": {"norm": "none", LR: "0.003"}, "b": {LR: "0.01"}}
    made = fake_store({name: (chosen, 100) for name, chosen in settings.items()}, seeds=2)
    made.record = replace(made.record, space=SPACE)
    made.add("baseline", 0, {"val_loss": 1.5}, curve=[(0, 3.0), (10, 1.5)])
    made.add("a", 0, {"val_loss": 1.25}, curve=[(10, 1.25)])
    made.add("b", 1, state=TrialState.PRUNED, curve=[(5, 2.5)])
    return made


def _table() -> pd.DataFrame:
    made = _searched()
    known = made.trials([one.key for one in made.record.planned])
    assert switches(made.record) == {"norm": ["rms", "none"], LR: ["0.003", "0.01"]}
    return trial_table(made.record, made.record.planned, known)


@pytest.mark.parametrize(
    ("wish", "keys"),
    [
        (Filter(), ["baseline/0", "a/0", "b/0", "baseline/1", "a/1", "b/1"]),
        (Filter(states=("finished", "pruned")), ["baseline/0", "a/0", "b/1"]),
        (Filter(settings=("norm=rms",)), ["baseline/0", "baseline/1"]),
        (Filter(settings=("norm=rms", "norm=none")), ["baseline/0", "a/0", "baseline/1", "a/1"]),
        (Filter(settings=("norm=none", f"{LR}=0.01")), []),
        (Filter(metric="val_loss", low=1.25, high=1.4), ["a/0"]),
        (Filter(by="val_loss"), ["a/0", "baseline/0", "b/0", "baseline/1", "a/1", "b/1"]),
        (Filter(by="val_loss", descending=True), ["baseline/0", "a/0", "b/0", "baseline/1", "a/1", "b/1"]),
        (Filter(by="nobody", metric="nothing", low=3.0, settings=("nobody=x",)), None),
    ],
)
def test_rows_are_filtered_and_sorted(wish: Filter, keys: list[str] | None) -> None:
    table = _table()
    rows = list(filtered(table, wish)[KEY])
    assert rows == (list(table[KEY]) if keys is None else keys)
    assert set(table[STATE]) == {"finished", "pruned", "waiting"}
