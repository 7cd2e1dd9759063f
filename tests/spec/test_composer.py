"""Composed points against one at a time, paths set in specs against plain data, and paths into plain data."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from ruamel.yaml import YAML

from ablate.errors import SpaceError
from ablate.spec.base import Spec, content_hash
from ablate.spec.composer import ROOTS, Composer
from ablate.spec.named import shipped_spaces
from ablate.spec.paths import assign, leaves
from ablate.spec.reading import load_space
from ablate.spec.space import SpaceSpec
from ablate.spec.variant import VariantSpec


@pytest.fixture(scope="module")
def space() -> SpaceSpec:
    """The shipped space with switches of the task and of the training beside those of the model, some impossible."""
    plain: dict[str, Any] = YAML(typ="safe").load(shipped_spaces() / "simplify_block.yaml")
    plain |= {"variants": {}, "tuned": {}, "claims": []}
    plain["model"]["heads"] = 4
    plain["switches"]["heads"] = {"four": {}, "five": {"model.heads": 5}}
    plain["switches"]["context"] = {"short": {}, "long": {"task.context": 256}}
    plain["switches"]["both"] = {"no": {}, "yes": {"model.depth": 3, "training.steps": 77}}
    plain["switches"]["rate"] = {"low": {}, "high": {"training.optimizer.lr": 0.01}}
    return SpaceSpec.model_validate(plain)


def corners(space: SpaceSpec) -> Iterator[dict[str, str]]:
    for chosen in itertools.product(*space.switches.values()):
        yield dict(zip(space.switches, chosen, strict=True))


VALUES: list[Mapping[str, Any]] = [{}, {"model.width": 128}, {"model.width": 96}, {"training.optimizer.lr": 3e-3}]


def outcome(resolve: Callable[..., VariantSpec], *arguments: Any) -> VariantSpec | str:
    """The variant, or the whole text of the error."""
    try:
        return resolve(*arguments)
    except ValidationError as error:
        return str(error)


def test_same_variants_same_hashes_same_refusals(space: SpaceSpec) -> None:
    hashes, refused = set(), 0
    for number, settings in enumerate(corners(space)):
        values = VALUES[number % 7] if number % 7 < len(VALUES) else {}
        expected = outcome(space.composer.lay_over_baseline, settings, values)
        if isinstance(expected, str):
            refused += 1
            assert outcome(space.composer.compose, settings, values) == expected
            continue
        variant = space.composer.compose(settings, values)
        assert variant == expected
        assert variant.content_hash() == expected.content_hash() == content_hash(expected.canonical())
        hashes.add(variant.content_hash())
    assert refused > 100
    assert len(hashes) > 100


def test_reasons_name_the_settings_to_blame(space: SpaceSpec) -> None:
    for settings in itertools.islice((s for s in corners(space) if s["heads"] == "five"), 40):
        with pytest.raises(ValidationError) as caught:
            space.composer.compose(settings)
        assert space.composer.reason(settings, caught.value).startswith("heads=five: ")


def test_what_is_shared_is_resolved_once(space: SpaceSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    lay_over_baseline = Composer.lay_over_baseline

    def counting(self: Composer, *arguments: Any) -> VariantSpec:
        nonlocal calls
        calls += 1
        return lay_over_baseline(self, *arguments)

    monkeypatch.setattr(Composer, "lay_over_baseline", counting)
    composer = Composer({"model": space.model, "task": space.task, "training": space.training}, space.switches)
    possible = [settings for settings in corners(space) if settings["heads"] == "four"]
    for settings in possible:
        composer.compose(settings)
    models = 4 * 2 * 2 * 2 * 2 * 2  # of the shipped switches, and `both`
    assert len(possible) == models * 2 * 2
    assert models <= calls <= models + 3  # and once for each other task and training


def test_a_model_is_checked_when_it_is_made_and_not_again(space: SpaceSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    variant = space.resolve({})

    def refuse(*arguments: object) -> None:
        raise RuntimeError("it was checked already")

    monkeypatch.setattr("ablate.spec.model.check_model", refuse)
    again = VariantSpec.model_validate({"model": variant.model, "task": variant.task, "training": variant.training})
    assert again.model is variant.model
    with pytest.raises(RuntimeError, match="already"):
        space.resolve({"both": "yes"}, {"model.depth": 7})  # another model


def test_setters(space: SpaceSpec) -> None:
    assert space.composer.setters_below("task") == ("context",)
    assert space.composer.setters_below("training") == ("both", "rate")
    assert "heads" in space.composer.setters_below("model")
    assert "rate" not in space.composer.setters_below("model")


def plain(value: Any) -> Any:
    """Every spec opened, however deep: the slow reference."""
    if isinstance(value, Spec):
        return {name: plain(item) for name, item in value.editable().items()}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def slowly(space: SpaceSpec, settings: dict[str, str], values: dict[str, Any]) -> VariantSpec:
    opened = {root: plain(getattr(space, root)) for root in ROOTS}
    for switch, options in space.switches.items():
        for path, value in options[settings[switch]].items():
            assign(opened, f"model.{path}" if path.startswith("block") else path, value)
    for path, value in values.items():
        assign(opened, path, value)
    return VariantSpec.model_validate(opened)


@pytest.mark.parametrize("name", ["simplify_block", "recall", "translate"])
def test_the_same_variant(name: str) -> None:
    space = load_space(name)
    tried = refused = 0
    for chosen in product(*space.switches.values()):
        settings = dict(zip(space.switches, chosen, strict=True))
        values = {"training.optimizer.lr": 1e-4 * (1 + tried % 3), "model.init_std": 0.01 * (1 + tried % 2)}
        try:
            slow = slowly(space, settings, values)
        except ValidationError:
            refused += 1
            with pytest.raises(SpaceError):
                space.resolve(settings, values)
            continue
        quick = space.resolve(settings, values)
        assert quick == slow
        assert quick.content_hash() == slow.content_hash()
        tried += 1
        if tried == 60:
            break
    assert tried >= 2


def test_what_a_space_starts_from_is_left_as_it_is() -> None:
    space = load_space("simplify_block")
    before = space.model_dump_json(), space.model.canonical_json()
    for switch, setting in space.single_settings():
        try:
            space.resolve({switch: setting}, {"model.block.norm.eps": 1e-3})
        except SpaceError:
            continue
    assert (space.model_dump_json(), space.model.canonical_json()) == before


NAMES = st.text("abc_", min_size=1, max_size=3)
LEAVES = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
TREES = st.dictionaries(NAMES, st.recursive(LEAVES, lambda below: st.dictionaries(NAMES, below, max_size=3)))


@given(TREES)
def test_the_leaves_of_nested_mappings_put_back_make_the_same_mappings(plain: dict[str, object]) -> None:
    again: dict[str, object] = {}
    for path, value in leaves(plain).items():
        assign(again, path, value)
    assert again == plain
