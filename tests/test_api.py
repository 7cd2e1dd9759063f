"""The words for notebooks: they are completed, take what a person has at hand, and refuse what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from cli_runs import Workplace

import ablate
from ablate.errors import EngineError, StoreError


def test_a_notebook_completes_every_word() -> None:
    assert set(ablate.__all__) <= set(dir(ablate))
    assert all(callable(getattr(ablate, name)) for name in ablate.__all__)


def test_a_space_may_be_named_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Workplace(tmp_path, tmp_path / "cache")
    file = place.space()
    monkeypatch.chdir(tmp_path)
    by_name, by_space = (ablate.plan(space, cache=place.cache) for space in (file, ablate.load_space(file)))
    assert [trial.key for trial in by_name.trials] == [trial.key for trial in by_space.trials]


@pytest.mark.parametrize("name", ["workers", "threads", "pack"])
def test_fewer_than_one_is_refused_before_a_store_is_made(name: str, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=f"{name}: .* expected at least 1; got 0"):
        ablate.run("simplify_block", store=tmp_path / "s.db", **{name: 0})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("shape", [(2, 8), (1, 2, 0), (1, 1, 2, 8)])
def test_a_model_says_which_shape_it_takes(shape: tuple[int, ...]) -> None:
    model = ablate.build(ablate.load_space("simplify_block").resolve({}).model)
    with pytest.raises(ValueError, match=r"token ids \[K, B, T\] of one token at least are expected; got"):
        model(torch.zeros(shape, dtype=torch.long))


def test_a_slip_in_python_is_no_fault_of_the_url(tmp_path: Path) -> None:
    with ablate.open_store(tmp_path / "s.db") as store, pytest.raises(Exception) as caught:  # noqa: PT011
        store.trials("abc")
    assert not isinstance(caught.value, StoreError)
