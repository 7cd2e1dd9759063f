"""What `ablate inspect` measures, and what it refuses: which model, how long its sequences are, how much memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from engine_samples import space

from ablate.errors import EngineError, SpaceError
from ablate.execution import inspecting
from ablate.execution.inspecting import inspect_model, inspect_space
from ablate.nn.model import build_model
from ablate.spec.model import ModelSpec

PLAIN: dict[str, Any] = {"family": "decoder", "depth": 2, "width": 8, "heads": 2, "block": "pre_ln"}


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModelSpec]:
    """Make a model the only named one, for 11 ids and so many tokens."""

    def name(context: int, **changes: Any) -> ModelSpec:
        spec = ModelSpec.model_validate(PLAIN | changes)
        found = SimpleNamespace(spec=spec, name="small", named=SimpleNamespace(vocabulary=11, context=context))
        monkeypatch.setattr(inspecting, "find_model", lambda name: found)
        return spec

    return name


def free(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(inspecting, "available_memory", lambda: size)


@pytest.mark.parametrize(("asked", "context", "length"), [(None, 9, 9), (None, 300, 128), (5, 9, 5)])
def test_a_named_model_is_measured_on_random_tokens_of_its_own_length(
    named: Callable[..., ModelSpec], monkeypatch: pytest.MonkeyPatch, asked: int | None, context: int, length: int
) -> None:
    """At most 128 unless more are asked for. Positions that are learnt tell the length of the model that is built."""
    named(context, positions="learned")
    built: list[Any] = []
    monkeypatch.setattr(inspecting, "measure_insides", lambda model, loss: built.append(model) or loss)
    found = inspect_model("small", asked, 2)
    (model,) = built
    assert (found.name, found.on, found.seeds) == ("small", f"random sequences of {length} tokens", (0, 1))
    tables = [p for name, p in model.named_parameters() if "position" in name]
    assert [tuple(table.shape[:2]) for table in tables] == [(2, length)]


def fits(enough: bool, said: str) -> AbstractContextManager[Any]:
    return nullcontext() if enough else pytest.raises(EngineError, match=said)


@pytest.mark.parametrize("missing", [0, 1])
def test_three_copies_of_the_weights_of_all_seeds_must_fit(
    named: Callable[..., ModelSpec], monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    model = build_model(named(9), vocabulary=11, context=9, seeds=(0,))
    free(monkeypatch, 2 * 3 * 4 * sum(parameter.numel() for parameter in model.parameters()) - missing)
    with fits(not missing, "small: the weights need 0.0 GiB"):
        inspect_model("small", None, 2)
    named(9, depth=4, width=2**14, heads=2)
    free(monkeypatch, 2**30)
    with pytest.raises(EngineError, match=r"small: the weights need 14\d\.\d GiB, and 1\.0 GiB are free"):
        inspect_model("small", None, 1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"family": "encoder", "head": {"pooling": "mean"}}, "a model of family encoder"),
        ({"family": "encoder_decoder", "decoder": {"depth": 1, "mixer": "attention"}}, "of family encoder_decoder"),
        ({"family": "encoder"}, ""),
    ],
)
def test_only_a_model_that_predicts_tokens_is_measured_without_a_task(
    named: Callable[..., ModelSpec], changes: dict[str, Any], said: str
) -> None:
    named(9, **changes)
    with pytest.raises(SpaceError, match=said) if said else nullcontext():
        inspect_model("small", 4, 1)


def test_a_variant_of_a_space_is_measured_on_its_validation(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "text").mkdir()
    for name in "abcd":
        (folder / "text" / name).write_text(f"This is text {name}. " * 20)
    found = {name: inspect_space(space(), name, 2, folder / "cache", print) for name in (None, "baseline", "norm=none")}
    assert [one.name for one in found.values()] == ["sample/baseline", "sample/baseline", "sample/norm=none"]
    assert {(one.on, one.seeds) for one in found.values()} == {("validation windows of 8 tokens", (0, 1))}
    assert found[None].insides == found["baseline"].insides != found["norm=none"].insides
    with pytest.raises(SpaceError, match=r"no such variant; expected baseline, values=identity, norm=none; got no"):
        inspect_space(space(), "no", 2, folder / "cache", print)
    free(monkeypatch, 1000)
    with pytest.raises(EngineError, match="norm=none: the weights need"):
        inspect_space(space(), "norm=none", 2, folder / "cache", print)
