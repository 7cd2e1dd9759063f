"""The page Answer of a study of many variants: some are drawn at once, the others page by page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import streamlit
from streamlit.testing.v1 import AppTest
from written_stores import NOW

from ablate.render.figures.curves import MOST_PANELS
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
    from dashboard.views.answer import _details, _live

    navigation()
    _live("s")
    _details("s")


def _shown(page: AppTest) -> list[str]:
    """The variants of the rows that the table of the answer shows."""
    (table,) = (one.proto.body for one in page.get("html") if "answer" in one.proto.body)
    return re.findall(r"why=(a%3Dv\d+)", table)


def test_many_variants_are_shown_page_by_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _store(tmp_path / "s.db")
    monkeypatch.setenv(OPTIONS, json.dumps({"stores": [str(tmp_path / "s.db")]}))
    streamlit.cache_resource.clear()
    page = AppTest.from_function(_page, default_timeout=120).run()
    assert not page.exception, page.exception
    first = _shown(page)
    assert len(first) == 60
    assert any(f"of {VARIANTS} variants" in one.value for one in page.caption)
    (course,) = (json.loads(one.proto.spec) for one in page.get("vega_lite_chart"))
    assert len(course["facet"]["sort"]) == MOST_PANELS, "each variant has a panel, as far as they can be told apart"
    page.number_input(key="part").set_value(2).run()
    assert not page.exception, page.exception
    assert sorted(first + _shown(page)) == [f"a%3Dv{number:02}" for number in range(VARIANTS)]
    streamlit.cache_resource.clear()
