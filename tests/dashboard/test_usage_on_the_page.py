"""The resources that a trial used, on its page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import streamlit
from streamlit.testing.v1 import AppTest
from written_stores import NOW

from ablate.serving import OPTIONS
from ablate.store import (
    Environment,
    PlannedTrial,
    Recording,
    StudyDraft,
    TrialOutcome,
    TrialState,
    VariantRecord,
    open_store,
)


def _page() -> None:
    from dashboard.views.trial import _usage

    _usage("sampled")
    _usage("bare")


def test_means_and_peaks_are_those_of_the_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variant = VariantRecord("baseline", "0" * 64, {}, {"model": {}}, 10)
    outcome = TrialOutcome(
        "sampled", variant.hash, 0, TrialState.FINISHED, {"val_loss": 1.0}, 9, 40.0, 72, 9.0, None, "", "d", NOW, NOW,
        recordings=(
            Recording(3, {"usage": {"cores": 1.0, "memory": 2.0**30, "gpu_memory": 2.0**31}}),
            Recording(4, {"compilation": {"seconds": 1.0}}),
            Recording(9, {"usage": {"cores": 2.0, "memory": 2.0**29, "gpu_memory": 3 * 2.0**30, "gpu": 0.4}}),
        ),
    )  # fmt: skip
    with open_store(tmp_path / "s.db") as store:
        objective = {"metric": "val_loss", "direction": "minimize", "margin": 0.1}
        planned = [PlannedTrial(key, "baseline", seed) for seed, key in enumerate(("sampled", "bare"))]
        store.begin_study(StudyDraft("s", "Why?", "", {}, "", objective, "baseline"), [variant], planned)
        where = Environment({}, "cpu", "here", None, None, "ablate study")
        store.record_outcome(outcome, where)
        store.record_outcome(replace(outcome, key="bare", seed=1, recordings=()), where)
    monkeypatch.setenv(OPTIONS, json.dumps({"stores": [str(tmp_path / "s.db")]}))
    streamlit.cache_resource.clear()
    page = AppTest.from_function(_page, default_timeout=60).run()
    assert not page.exception, page.exception
    assert {one.label: one.value for one in page.metric} == {
        "Cores, mean": "1.50",
        "Memory, highest": "1.00 GiB",
        "GPU, mean": "40%",
        "GPU memory, highest": "3.00 GiB",
    }
    assert len(page.header) == 1, "a trial without samples has no such part"
    assert "2 samples" in page.caption[0].value
    assert "from step 3 to 9" in page.caption[0].value
    streamlit.cache_resource.clear()
