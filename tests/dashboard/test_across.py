"""Curves of several studies in one plot: the numbers that the stores hold, and a warning if they are not comparable."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
import streamlit
from streamlit.testing.v1 import AppTest
from vega import marks, series

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

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


def _store(path: Path) -> None:
    """Three studies of one variant and two seeds: `a` and `b` on the same data, `c` on other data."""
    where = Environment({"python": "3"}, "cpu", "here", None, None, "ablate study")
    with open_store(path) as store:
        for number, (study, data) in enumerate({"a": "data", "b": "data", "c": "other data"}.items()):
            planned = [PlannedTrial(f"{study}{seed}", "baseline", seed) for seed in (0, 1)]
            spec = {"model": {}, "task": {"kind": "recall"}, "training": {}}
            variant = VariantRecord("baseline", f"{number:064x}", {}, spec, 10)
            objective = {"metric": "val_loss", "direction": "minimize", "margin": 0.1}
            store.begin_study(StudyDraft(study, "Why?", "", {}, "", objective, "baseline"), [variant], planned)
            for trial in planned:
                curve = tuple(CurvePoint(step, step, 8 * step, step, None, 4 - number - trial.seed - step / 9)
                              for step in (0, 5, 9))  # fmt: skip
                store.record_outcome(
                    TrialOutcome(trial.key, variant.hash, trial.seed, TrialState.FINISHED, {"val_loss": 1.0}, 9, 9.0,
                                 72, 9.0, None, "", data, NOW, NOW, curve),
                    where,
                )  # fmt: skip


def _page() -> None:
    from dashboard.shared.frame import navigation
    from dashboard.views.across import show

    navigation()
    show()


def test_curves_of_several_studies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _store(tmp_path / "s.db")
    monkeypatch.setenv(OPTIONS, json.dumps({"stores": [str(tmp_path / "s.db")]}))
    streamlit.cache_resource.clear()
    page = AppTest.from_function(_page, default_timeout=60)
    page.query_params["studies"] = ["a", "b"]
    page.query_params["axis"] = "tokens"
    page.run()
    assert not page.exception, page.exception
    assert not page.warning
    drawn = series(marks(json.loads(page.get("vega_lite_chart")[0].proto.spec), "line")[0])
    assert set(drawn) == {"a / baseline", "b / baseline"}
    assert [point["x"] for point in drawn["b / baseline"]] == [0, 40, 72]
    means = [point["mean"] for point in drawn["b / baseline"]]
    assert means == pytest.approx([2.5, 2.5 - 5 / 9, 1.5])  # 4 - 1 - mean of seeds - step / 9
    page.multiselect(key="studies").set_value(["a", "c"]).run()
    page.multiselect(key="sides").set_value(["a / baseline", "c / baseline"]).run()
    assert not page.exception, page.exception
    assert "different data" in page.warning[0].value
    streamlit.cache_resource.clear()
