"""The page Answer of a study of many variants: some are drawn at once, the others page by page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import streamlit
from streamlit.testing.v1 import AppTest
from vega import marks, series
from written_stores import NOW

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

VARIANTS = 70


def _store(path: Path) -> None:
    """A baseline and 70 variants, each worse than the one before it, with curves of four points and three seeds."""
    names = ["baseline", *(f"a=v{number:02}" for number in range(VARIANTS))]
    variants = [VariantRecord(name, f"{n:064x}", {}, {"model": {}}, 10) for n, name in enumerate(names)]
    planned = [PlannedTrial(f"{name}/{seed}", name, seed) for seed in range(3) for name in names]
    with open_store(path) as store:
        objective = {"metric": "val_loss", "direction": "minimize", "margin": 0.05}
        store.begin_study(StudyDraft("s", "Why?", "", {}, "", objective, "baseline"), variants, planned)
        where = Environment({}, "cpu", "here", None, None, "ablate study")
        for trial in planned:
            number = names.index(trial.variant)
            gap = (VARIANTS - number) / 100 if number else 0.0
            loss = 2.0 + gap + trial.seed / 10 + number % 3 * trial.seed / 1000
            curve = tuple(CurvePoint(step, step, step, step, None, loss + (9 - step) / 9) for step in (3, 6, 8, 9))
            store.record_outcome(
                TrialOutcome(trial.key, variants[number].hash, trial.seed, TrialState.FINISHED, {"val_loss": loss}, 9,
                             9.0, 9, 9.0, None, "", "d", NOW, NOW, curve),
                where,
            )  # fmt: skip


def _page() -> None:
    from dashboard.shared.frame import navigation
    from dashboard.views.answer import _details

    navigation()
    _details("s")


def _figures(page: AppTest) -> list[dict[str, Any]]:
    return [json.loads(one.proto.spec) for one in page.get("vega_lite_chart")]


def _rows_of(forest: dict[str, Any]) -> list[str]:
    return list(marks(forest, "point")[1]["encoding"]["y"]["scale"]["domain"])


def test_many_variants_are_drawn_page_by_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _store(tmp_path / "s.db")
    monkeypatch.setenv(OPTIONS, json.dumps({"stores": [str(tmp_path / "s.db")]}))
    streamlit.cache_resource.clear()
    page = AppTest.from_function(_page, default_timeout=120).run()
    assert not page.exception, page.exception
    forest, course = _figures(page)
    shown = _rows_of(forest)
    assert len(shown) == 60
    assert any(f"of {VARIANTS} variants" in one.value for one in page.caption)
    lines = set(series(marks(course, "line")[0]))
    assert lines == set(page.multiselect(key="courses").value)
    assert lines == set(shown[:7]), "the course is that of the first variants of the forest plot"
    page.number_input(key="part").set_value(2).run()
    assert not page.exception, page.exception
    assert set(_rows_of(_figures(page)[0])).isdisjoint(shown)
    assert len(_rows_of(_figures(page)[0])) == VARIANTS - 60
    page.multiselect(key="courses").set_value(["a=v03"]).run()
    assert not page.exception, page.exception
    assert set(series(marks(_figures(page)[1], "line")[0])) == {"a=v03"}
    streamlit.cache_resource.clear()
