"""Texts of switches, settings and variants: kept through every form of a space, and no part of any spec."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator
from plain_specs import SPACE
from pydantic import ValidationError
from ruamel.yaml import YAML

from ablate.spec.paths import with_texts, without_texts
from ablate.spec.reading import load_space
from ablate.spec.schema import space_schema
from ablate.spec.sentences import describe
from ablate.spec.space import SpaceSpec


@cache
def validator() -> Draft7Validator:
    return Draft7Validator(space_schema())


def told() -> dict[str, Any]:
    plain: dict[str, Any] = YAML(typ="safe").load(SPACE)
    plain["switches"] = {
        "norm": {
            "removes": "the normalisation",
            "rms": {},
            "none": {"block.norm": "none"},
            True: {"block.norm": "layer"},
        },
        "skip": {"kept": {}, "gone": {"block.skips.mixer": 0, "removes": "the skip\n around attention"}},
    }
    plain["variants"] = {"both": {"norm": "none", "skip": "gone", "replaces": "all by nothing"}}
    return plain


def silent() -> dict[str, Any]:
    plain = told()
    del plain["switches"]["norm"]["removes"]
    del plain["switches"]["skip"]["gone"]["removes"]
    del plain["variants"]["both"]["replaces"]
    return plain


def test_texts_change_no_variant_no_hash_and_no_switch() -> None:
    with_them, without = SpaceSpec.model_validate(told()), SpaceSpec.model_validate(silent())
    assert with_them.switches == without.switches
    assert with_them.variants == without.variants
    assert with_them.canonical() == without.canonical()
    assert with_them.content_hash() == without.content_hash()
    settings = {"norm": "none", "skip": "gone"}
    assert with_them.resolve(settings).content_hash() == without.resolve(settings).content_hash()


def test_a_space_is_written_with_its_texts_where_they_were_read() -> None:
    plain = told()
    before = copy.deepcopy(plain)
    space = SpaceSpec.model_validate(plain)
    assert plain == before, "what is read stays as it is"
    for written in (space.model_dump(mode="json"), json.loads(space.model_dump_json())):
        assert written["switches"]["norm"]["removes"] == "the normalisation"
        assert written["switches"]["skip"]["gone"]["removes"] == "the skip around attention"
        assert written["variants"]["both"]["replaces"] == "all by nothing"
        assert SpaceSpec.model_validate(written).model_dump(mode="json") == written
    assert space.with_names({}).model_dump() == space.model_dump()
    silent_written = SpaceSpec.model_validate(silent()).model_dump(mode="json")
    assert "removes" not in json.dumps(silent_written["switches"])


def test_texts_are_taken_out_and_put_back() -> None:
    plain, texts = without_texts(told())
    assert plain == silent()
    assert texts[("switches", "norm")] == {"removes": "the normalisation"}
    assert texts[("variants", "both")] == {"replaces": "all by nothing"}
    del plain["switches"]["norm"][True]
    whole = told()
    del whole["switches"]["norm"][True]
    assert with_texts(plain, texts) == whole


def put(plain: dict[str, Any], *path: Any) -> dict[str, Any]:
    *parents, last, value = path
    here = plain
    for key in parents:
        here = here[key]
    here[last] = value
    return plain


@pytest.mark.parametrize(
    ("path", "place", "rule", "remedy"),
    [
        (("switches", "norm", "remove", "the norm"), "switches.norm.remove", "there is no key", "`removes`"),
        (("switches", "norm", "none", "replace", "x"), "switches.norm.none.replace", "a path starts", "`replaces`"),
        (("variants", "both", "replace", "a by b"), "variants.both.replace", "there is no key", "`replaces`"),
        (("switches", "norm", "removes", {"block.norm": "none"}), "switches.norm.removes", "is a text", "for example"),
        (("switches", "skip", "gone", "removes", 5), "switches.skip.gone.removes", "is a text", "for example"),
        (("variants", "both", "replaces", " "), "variants.both.replaces", "is a text", "for example"),
        (("switches", "norm", "replaces", "x"), "switches.norm.removes", "there can be one text", "`removes: null`"),
        (("switches", "skip", "kept", "removes", "x"), "switches.skip.kept.removes", "baseline's setting", "another"),
        (("switches", "replaces", {"a": {}, "b": {}}), "switches.replaces", "cannot be the name of a switch", "Rename"),
        (
            ("variants", "removes", {"norm": "none"}),
            "variants.removes",
            "cannot be the name of a named variant",
            "Rename",
        ),
        (("switches", "norm", "rms", "a text"), "switches.norm.rms", "a setting is a mapping", "`removes:`"),
    ],
)
def test_values_that_are_not_texts_are_refused_at_their_position(path: Any, place: str, rule: str, remedy: str) -> None:
    with pytest.raises(ValidationError) as caught:
        SpaceSpec.model_validate(put(told(), *path))
    ((loc, message),) = describe(caught.value)
    assert ".".join(map(str, loc)) == place
    assert rule in message
    assert remedy in message


def test_a_space_that_extends_another_changes_and_removes_its_texts(tmp_path: Path) -> None:
    plain = silent() | {"switches": {"skip": told()["switches"]["skip"]}, "variants": {}}
    (tmp_path / "base.yaml").write_text(json.dumps(plain))
    child = {"extends": "base.yaml", "name": "child", "switches": {"skip": {"gone": {"removes": "the residual"}}}}
    (tmp_path / "child.yaml").write_text(json.dumps(child))
    assert load_space(tmp_path / "child.yaml").model_dump()["switches"]["skip"]["gone"]["removes"] == "the residual"
    child["switches"] = {"skip": {"replaces": "a by b", "gone": {"removes": None}}}
    (tmp_path / "child.yaml").write_text(json.dumps(child))
    assert not [error.message for error in validator().iter_errors(child)]
    written = load_space(tmp_path / "child.yaml").model_dump()["switches"]["skip"]
    assert written == {"kept": {}, "gone": {"block.skips.mixer": 0}, "replaces": "a by b"}


def test_the_schema_knows_texts_and_underlines_what_is_none() -> None:
    plain = json.loads(json.dumps(told()))
    assert not [error.message for error in validator().iter_errors(plain)]
    for path in (
        ("switches", "norm", "remove", "the norm"),
        ("switches", "norm", "removes", 5),
        ("switches", "skip", "gone", "removes", {}),
        ("variants", "both", "remove", "the norm"),
        ("variants", "both", "removes", 5),
    ):
        assert [*validator().iter_errors(put(json.loads(json.dumps(plain)), *path))], path
