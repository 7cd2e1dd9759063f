"""Switches and variants of a space: what settings give, what is refused, and which setting is named."""

from __future__ import annotations

import re
from typing import Any

import pytest
from plain_specs import SPACE
from pydantic import ValidationError
from ruamel.yaml import YAML

from ablate.errors import SpaceError
from ablate.spec.model import ModelSpec
from ablate.spec.named import named_block
from ablate.spec.sentences import describe
from ablate.spec.space import SpaceSpec
from ablate.spec.variant import VariantSpec

Switches = dict[str, dict[str, dict[str, Any]]]


def plain_space(switches: Switches | None = None, **changes: Any) -> dict[str, Any]:
    plain: dict[str, Any] = YAML(typ="safe").load(SPACE)
    if switches is not None:
        plain["switches"] = switches
    return {**plain, **changes}


def space_of(switches: Switches | None = None, **changes: Any) -> SpaceSpec:
    return SpaceSpec.model_validate(plain_space(switches, **changes))


def refused(plain: dict[str, Any]) -> tuple[tuple[str | int, ...], str]:
    with pytest.raises(ValidationError) as caught:
        SpaceSpec.model_validate(plain)
    (line,) = describe(caught.value)
    return line


def test_settings_give_the_spec_that_they_say() -> None:
    space = space_of(
        {
            "norm": {"rms": {}, "none": {"block.norm": "none"}},
            "size": {"3": {}, "6": {"model.depth": 6, "training.steps": 20}},
        }
    )
    variant = space.resolve({"size": "6", "norm": "none"})
    written = plain_space()
    expected = VariantSpec.model_validate(
        {
            "model": {**written["model"], "block": {**named_block("pre_ln").block, "norm": "none"}, "depth": 6},
            "task": written["task"],
            "training": {**written["training"], "steps": 20},
        }
    )
    assert variant.content_hash() == expected.content_hash()
    assert space.resolve({}).content_hash() == space.resolve({"size": "3", "norm": "rms"}).content_hash()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"nrom": "none"}, "there is no switch `nrom`. Did you mean `norm`?"),
        ({"norm": "nune"}, "`norm` has no setting `nune`. Did you mean `none`?"),
        ({"norm": ["none"]}, "`norm` has no setting `['none']`"),
        ({3: "none"}, "settings must be a mapping of switch to setting; expected for example"),
        ("norm=none", "settings must be a mapping of switch to setting; expected for example"),
    ],
)
def test_settings_that_are_not_in_the_space(settings: Any, message: str) -> None:
    space = space_of({"norm": {"rms": {}, "none": {"block.norm": "none"}}})
    with pytest.raises(SpaceError, match=re.escape(f"space {space.name}: {message}")):
        space.resolve(settings)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model.depth": 0}, "`model.depth`: the value should be at least 1"),
        ({"model.depth": None}, "`model.depth`: a whole number is expected here"),
        ({"model.dpeth": 2}, "`model.dpeth`: there is no key `dpeth` here. Did you mean `depth`?"),
        ({"nothing.at.all": 2}, "there is no key `nothing` here"),
        ({3: 2}, "values must be a mapping of spec path to value"),
        ([1], "values must be a mapping of spec path to value"),
    ],
)
def test_values_that_make_no_model(values: Any, message: str) -> None:
    space = space_of({"norm": {"rms": {}, "none": {"block.norm": "none"}}})
    with pytest.raises(SpaceError, match=re.escape(message)) as caught:
        space.resolve({}, values)
    assert caught.value.where == f"space {space.name}"


def test_a_combination_that_makes_no_model_is_reported_with_what_is_to_blame() -> None:
    space = space_of(COMBINED)
    with pytest.raises(SpaceError, match=r"not a valid model: softmax=off, shaping=shaped: `model\.block\.mixer\."):
        space.resolve({"softmax": "off", "shaping": "shaped", "norm": "none"})


def test_a_later_switch_wins_over_an_earlier_one() -> None:
    switches: Switches = {
        "a": {"off": {}, "on": {"training.steps": 20}},
        "b": {"off": {}, "on": {"training.steps": 30}},
    }
    both = {"a": "on", "b": "on"}
    assert space_of(switches).resolve(both).training.steps == 30
    assert space_of(dict(reversed(switches.items()))).resolve(both).training.steps == 20


@pytest.mark.parametrize(
    ("path", "value", "whole"),
    [
        ("block.mixer.value.bias", True, {"kind": "dense", "bias": True}),
        ("block.mixer.value.kind", "identity", "identity"),
        ("block.mixer.value", "identity", {"kind": "identity"}),
    ],
)
def test_a_path_leads_into_a_member_of_a_family_that_is_left_at_its_default(path: str, value: Any, whole: Any) -> None:
    by_path = space_of({"s": {"off": {}, "on": {path: value}}}).resolve({"s": "on"})
    at_once = space_of({"s": {"off": {}, "on": {"block.mixer.value": whole}}}).resolve({"s": "on"})
    assert by_path.content_hash() == at_once.content_hash() != space_of().resolve({}).content_hash()


def test_a_named_block_in_a_setting_brings_its_exceptions_and_takes_the_others_away() -> None:
    model = plain_space()["model"]
    switches: Switches = {
        "block": {"pre_ln": {"block": "pre_ln"}, "sas": {"model.block": "sas"}},
        "norm": {"rms": {}, "none": {"block.norm": "none"}},
    }
    for base in ("pre_ln", "sas"):
        space = space_of(switches, model={**model, "block": base})
        for name in ("pre_ln", "sas"):
            whole = space_of(model={**model, "block": name}).resolve({})
            assert space.resolve({"block": name}).content_hash() == whole.content_hash()
    assert {block.norm.kind for block in space.resolve({"block": "sas", "norm": "none"}).model.blocks} == {"none"}


def test_settings_may_be_named_by_numbers_and_booleans() -> None:
    space = space_of(
        {"softmax": {"true": {}, "false": {"block.mixer.softmax": False}}},
        variants={"plain": {"softmax": False}, "3": {"softmax": True}},
    )
    assert space.variants == {"plain": {"softmax": "false"}, "3": {"softmax": "true"}}


NORM = {"rms": {}, "none": {"block.norm": "none"}}


@pytest.mark.parametrize(
    ("plain", "path", "rule", "remedy"),
    [
        ({"switches": {}}, "", "at least one entry", ""),
        (
            {"switches": {"a": {"b": {}, "c": {"norm": "none"}}}},
            "a.c.norm",
            "a path starts at",
            "Write the full path of",
        ),
        (
            {"switches": {"a": {"b": {}, "c": {"training.schedule": "cosin"}}}},
            "a.c.training.schedule",
            "there is no schedule kind `cosin`",
            "`cosine`",
        ),
        (
            {"switches": {"a": {"b": {}, "c": {"model.depth.x": 1}}}},
            "a.c.model.depth.x",
            "`model.depth` is 3 and has no fields",
            "Set `model.depth` itself",
        ),
        ({"switches": {"a": {"b": {}, "c": {"block..norm": 1}}}}, "a.c.block..norm", "is not a path", "single dots"),
        (
            {"switches": {"a": {"b": {}, "c": {"model.exceptions.frist.norm": "none"}}}},
            "a.c.model.exceptions.frist.norm",
            "a selector of layers",
            "one of these forms",
        ),
        (
            {"switches": {"a": {"b": {}, "c": {"task.data": "nowhere"}}}},
            "a.c.task.data",
            "no such data source",
            "`file:`",
        ),
        ({"switches": {"a b": NORM}}, "a b", "one word", ""),
        ({"switches": {"a": {"b=c": {}, "d": {}}}}, "a.b=c", "without commas and equals signs", ""),
    ],
)
def test_an_invalid_switch(plain: dict[str, Any], path: str, rule: str, remedy: str) -> None:
    loc, sentence = refused(plain_space(**plain))
    assert ".".join(map(str, loc)) == f"switches.{path}".rstrip(".")
    assert rule in sentence
    assert "got nothing" not in sentence, "it repeats the value that was written, once"
    assert remedy in sentence


@pytest.mark.parametrize(
    ("variants", "path", "rule", "remedy"),
    [
        ({"v": {"norm": "zzz"}}, "v.norm", "`norm` has no setting `zzz`", "Known names: rms, none."),
        ({"baseline": {"norm": "none"}}, "baseline", "the variant with all first settings", "another name"),
        ({"v": "none"}, "v", "a mapping of keys", ""),
    ],
)
def test_an_invalid_variant(variants: dict[str, Any], path: str, rule: str, remedy: str) -> None:
    loc, sentence = refused(plain_space(variants=variants))
    assert ".".join(map(str, loc)) == f"variants.{path}"
    assert rule in sentence
    assert remedy in sentence


def test_a_first_setting_that_breaks_the_baseline_is_named() -> None:
    switches: Switches = {
        "fine": {"a": {"block.dropout": 0.1}, "b": {}},
        "arrangement": {"parallel": {"block.arrangement": "parallel"}, "sequential": {}},
    }
    loc, sentence = refused(plain_space(switches))
    assert loc == ("switches", "arrangement", "parallel")
    assert "`model.block.skips.mlp`: a parallel block has one skip" in sentence
    assert sentence.count("got ") == 1
    mended: Switches = {**switches, "skip": {"none": {"block.skips.mlp": 0}, "one": {}}}
    assert space_of(mended).resolve({}).model.block.arrangement == "parallel"


COMBINED: Switches = {
    "softmax": {"on": {}, "off": {"block.mixer.softmax": False}},
    "order": {"qk_first": {}, "kv_first": {"block.mixer.matmul_order": "kv_first"}},
    "shaping": {"none": {}, "shaped": {"block.mixer.shaping": "shaped"}},
    "norm": NORM,
}


@pytest.mark.parametrize(
    ("settings", "culprits"),
    [
        ({"order": "kv_first", "norm": "none"}, {"order": "kv_first"}),
        ({"softmax": "off", "shaping": "shaped", "norm": "none"}, {"softmax": "off", "shaping": "shaped"}),
        ({"softmax": "off", "order": "kv_first", "norm": "none"}, {}),
        ({}, {}),
    ],
)
def test_the_settings_to_blame_are_the_fewest_that_are_refused(
    settings: dict[str, str], culprits: dict[str, str]
) -> None:
    space = space_of(COMBINED)
    assert space.composer.culprits(settings) == culprits
    if culprits:
        with pytest.raises(ValidationError) as caught:
            space.composer.compose(settings)
        reason = space.composer.reason(settings, caught.value)
        blamed = ", ".join(f"{switch}={setting}" for switch, setting in culprits.items())
        assert reason.startswith(f"{blamed}: `model.block.mixer.")
        assert "softmax" in reason
        assert " Set `softmax: " in reason


def test_the_setter_of_a_path_is_the_last_that_sets_it_or_a_part_of_it() -> None:
    space = space_of(
        {
            "values": {"dense": {}, "identity": {"block.mixer.value": "identity"}},
            "mixer": {"a": {}, "b": {"block.mixer": {"kind": "attention", "value": "identity"}}},
        }
    )
    both = {"values": "identity", "mixer": "b"}
    assert space.composer.setter_of({"values": "identity"}, "model.block.mixer.value.kind") == (
        "values",
        "identity",
        "block.mixer.value",
    )
    assert space.composer.setter_of(both, "model.block.mixer.value") == ("mixer", "b", "block.mixer")
    assert space.composer.setter_of(both, "model.block.mlp") is None


def test_an_objective_names_a_metric_of_its_task() -> None:
    loc, sentence = refused(plain_space(objective={"metric": "val_los", "margin": 0.1}))
    assert loc == ("objective", "metric")
    assert "the task language_model has no metric of this name" in sentence
    assert "Did you mean `val_loss`?" in sentence


TARGET = {"metric": "val_loss", "reach": 1.9, "margin": 0.05}
NO_TARGETS: dict[str, tuple[dict[str, Any], str, str]] = {
    "measure alone": ({"objective": {"margin": 0.05, "measure": "tokens"}}, "objective.measure", "Add `reach`"),
    "maximize": ({"objective": {**TARGET, "direction": "maximize"}}, "objective.reach", "hold `val_loss` alone"),
    "percent": ({"objective": {**TARGET, "margin": 5}}, "objective.margin", "Write 0.05 for 5 % more"),
    "search": ({"design": {"kind": "simplify", "seeds": 2}}, "design.kind", "this objective is the time to a target"),
    "schedule": (
        {"design": {"kind": "leave_one_out", "seeds": {"start": 2, "max": 4}}},
        "design.seeds",
        "at the end of",
    ),
    "tune": ({"tune": {"training.optimizer.lr": [1e-3, 2e-3]}}, "tune", "`tune` chooses by the objective at the end"),
    "budgets": ({"budgets": [1, 2]}, "budgets", "this objective is the time to a target"),
}


@pytest.mark.parametrize(("changed", "where", "said"), NO_TARGETS.values(), ids=NO_TARGETS)
def test_what_has_no_time_to_a_target_is_refused(changed: dict[str, Any], where: str, said: str) -> None:
    loc, sentence = refused(plain_space(**{"objective": TARGET, **changed}))
    assert ".".join(map(str, loc)) == where
    assert said in sentence


def test_the_time_to_a_target_is_an_objective_that_claims_may_name() -> None:
    claim = {"id": "a", "left": "norm=none", "right": "baseline", "expect": "worse", "margin": 0.1}
    switches: Switches = {"norm": {"rms": {}, "none": {"block.norm": "none"}}}
    objective, claims = {**TARGET, "measure": "flops"}, [{**claim, "metric": "flops_to_1.9"}]
    space = space_of(switches, objective=objective, claims=claims, design="leave_one_out")
    assert space.objective.compared == "flops_to_1.9"
    assert space_of().objective.compared == "val_loss"


def test_a_switch_addresses_a_range_of_layers() -> None:
    linear = {"kind": "attention", "softmax": False}
    switches: Switches = {
        "last_two": {"softmax": {}, "linear": {"model.exceptions.1-2.mixer": linear}},
        "first": {"norm": {}, "plain": {"model.exceptions.first": {"norm": "none"}}},
        "order": {"same": {}, "turns": {"model.pattern": [{}, {"mlp": {"activation": "gelu"}}]}},
    }
    space = space_of(switches)
    blocks = space.resolve({"last_two": "linear", "first": "plain", "order": "turns"}).model.blocks
    assert [block.mixer.canonical() for block in blocks] == [{"kind": "attention"}, linear, linear]
    assert [block.norm.kind for block in blocks] == ["none", "rms", "rms"]
    assert [block.mlp.activation for block in blocks] == ["relu", "gelu", "relu"]
    by_exceptions = space_of(model={**plain_space()["model"], "exceptions": {"1-2": {"mixer": linear}}})
    assert space.resolve({"last_two": "linear"}).content_hash() == by_exceptions.resolve({}).content_hash()


def test_a_setting_for_layers_that_are_not_there_gives_no_variant() -> None:
    space = space_of({"last": {"off": {}, "on": {"model.exceptions.2-3": {"norm": "none"}}}})
    with pytest.raises(SpaceError, match="numbered 0 to 2"):
        space.resolve({"last": "on"})


@pytest.mark.parametrize("path", ["block", "model.block"])
def test_a_named_block_of_a_switch_replaces_the_pattern(path: str) -> None:
    """As it does where a model names it; a pattern of the same setting stays."""
    model = {**plain_space()["model"], "block": {"mixer": "attention"}, "pattern": [{"norm": "none"}, {}]}
    turns = [{"mlp": {"activation": "gelu"}}, {}]
    both = {"model.pattern": turns, path: "parallel"}
    space = space_of({"s": {"as_it_is": {}, "named": {path: "parallel"}, "turns": both}}, model=model)
    assert [block.norm.kind for block in space.resolve({}).model.blocks] == ["none", "rms", "none"]
    plain = {name: value for name, value in model.items() if name != "pattern"}
    expected = ModelSpec.model_validate({**plain, "block": "parallel"})
    assert space.resolve({"s": "named"}).model.canonical() == expected.canonical()
    expected = ModelSpec.model_validate({**plain, "block": "parallel", "pattern": turns})
    assert space.resolve({"s": "turns"}).model.canonical() == expected.canonical()
