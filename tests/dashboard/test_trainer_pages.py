"""Pages of trainer studies and judged runs, the resources of a trial, and the slides."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path

import pytest
import streamlit
from cli_runs import Workplace, quick_workers
from own_trainers import space, write_script
from streamlit.testing.v1 import AppTest
from written_stores import NOW, simple_store

import ablate
from ablate.serving import OPTIONS
from ablate.spec.space import SpaceSpec
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

PAGE = "from dashboard.shared.frame import choose_study, navigation\nnavigation(); choose_study()\n"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    write_script(folder)
    with pytest.MonkeyPatch.context() as patch, quick_workers():
        patch.chdir(folder)
        ablate.run(SpaceSpec.model_validate(space()), store=folder / "s.db", workers=1)
    return folder / "s.db"


VIEWS = ["answer", "curves", "compare", "trial", "trials", "tradeoffs", "studies", "cluster"]


def opened(view: str, store: Path, variant: str, patch: pytest.MonkeyPatch) -> list[str]:
    """The captions of a page, on which nothing failed."""
    patch.setenv(OPTIONS, json.dumps({"stores": [str(store)]}))
    streamlit.cache_resource.clear()
    page = AppTest.from_string(f"{PAGE}from dashboard.views.{view} import show\nshow()", default_timeout=120)
    if view == "compare":
        page.query_params["sides"] = ["baseline" if variant != "wide" else "base", variant]
    page.run()
    assert not page.exception, page.exception
    assert not page.error
    return [caption.value for caption in page.caption]


@pytest.mark.parametrize("view", VIEWS)
def test_a_page_opens(view: str, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = opened(view, store, "rate=high", monkeypatch)
    assert any("runs a trainer of your own" in text for text in said) is (view in ("compare", "trial")), said


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("judged")
    rows = [f"{name},{seed},{loss + seed / 10}" for name, loss in (("base", 1), ("wide", 2)) for seed in range(3)]
    (folder / "runs.csv").write_text("\n".join(["variant,seed,loss", *rows]))
    options = ("--metric", "loss", "--direction", "lower", "--baseline", "base", "--margin", "0.1", "--store", "s.db")
    assert Workplace(folder, folder).call("judge", "runs.csv", *options).code == 0
    return folder / "s.db"


@pytest.mark.parametrize("view", VIEWS)
def test_a_page_of_judged_runs_opens(view: str, judged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(view, judged, "wide", monkeypatch)


def _trial_page() -> None:
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
    page = AppTest.from_function(_trial_page, default_timeout=60).run()
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


def _slides_page() -> None:
    import streamlit as st

    from dashboard.shared.frame import navigation
    from dashboard.views.slides import show

    navigation()
    st.session_state["study"] = "done"
    show()


def test_the_page_shows_the_slides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simple_store(str(tmp_path / "s.db"))
    monkeypatch.setenv(OPTIONS, json.dumps({"stores": [str(tmp_path / "s.db")]}))
    streamlit.cache_resource.clear()
    app = AppTest.from_function(_slides_page, default_timeout=90).run()
    streamlit.cache_resource.clear()
    assert not app.exception, app.exception
    (frame,) = [one for one in app.main if one.type == "iframe"]
    kind, _, content = frame.proto.src.partition(",")
    assert kind == "data:text/html;base64"
    html = base64.b64decode(content).decode()
    assert html.count("<section>") == 3
    assert "Why done?" in html
    assert "prefers-color-scheme" not in html, "the theme of the page decides, not that of the system"
