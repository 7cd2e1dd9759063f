"""The pages of a study that ran the user's trainer: what needs a model says so, and nothing fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import streamlit
from cli_runs import quick_workers
from own_trainers import space, write_script
from streamlit.testing.v1 import AppTest

import ablate
from ablate.serving import OPTIONS
from ablate.spec.space import SpaceSpec

PAGE = "from dashboard.shared.frame import choose_study, navigation\nnavigation(); choose_study()\n"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    write_script(folder)
    with pytest.MonkeyPatch.context() as patch, quick_workers():
        patch.chdir(folder)
        ablate.run(SpaceSpec.model_validate(space()), store=folder / "s.db", workers=1)
    return folder / "s.db"


@pytest.mark.parametrize("view", ["answer", "curves", "compare", "trial", "trials", "tradeoffs", "studies", "cluster"])
def test_a_page_opens(view: str, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OPTIONS, json.dumps({"stores": [str(store)]}))
    streamlit.cache_resource.clear()
    page = AppTest.from_string(f"{PAGE}from dashboard.views.{view} import show\nshow()", default_timeout=120)
    if view == "compare":
        page.query_params["sides"] = ["baseline", "rate=high"]
    page.run()
    assert not page.exception, page.exception
    assert not page.error
    said = [one.value for one in page.caption]
    assert any("runs a trainer of your own" in one for one in said) is (view in ("compare", "trial")), said
