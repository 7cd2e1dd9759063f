"""The pages of a study of the user's trainer, or of judged runs: what needs a model says so, and nothing fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runs import Workplace, quick_workers
from own_trainers import space, write_script
from streamlit.testing.v1 import AppTest

import ablate
from ablate.spec.space import SpaceSpec


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    write_script(folder)
    with pytest.MonkeyPatch.context() as patch, quick_workers():
        patch.chdir(folder)
        ablate.run(SpaceSpec.model_validate(space()), store=folder / "s.db", workers=1)
    return folder / "s.db"


VIEWS = ["answer", "curves", "compare", "trial", "trials", "tradeoffs", "studies", "cluster"]


@pytest.mark.parametrize("view", VIEWS)
def test_a_page_opens(view: str, store: Path, shown: Callable[..., AppTest]) -> None:
    page = shown(view, store, **({"sides": ["baseline", "rate=high"]} if view == "compare" else {}))
    assert not page.error
    said = [caption.value for caption in page.caption]
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
def test_a_page_of_judged_runs_opens(view: str, judged: Path, shown: Callable[..., AppTest]) -> None:
    assert not shown(view, judged, **({"sides": ["base", "wide"]} if view == "compare" else {})).error
