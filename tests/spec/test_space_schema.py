"""The JSON Schema agrees with the reader: what loads is valid, typical mistakes are underlined."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from jsonschema import Draft7Validator
from plain_specs import SPACE, Plain, models
from pydantic import Field
from ruamel.yaml import YAML

from ablate.designs.fixed import LeaveOneOutSpec
from ablate.kinds.mixers.attention import AttentionSpec
from ablate.nn.pack import DenseSpec, ReparametrisedSpec
from ablate.spec.base import LARGEST, Kinded, Spec
from ablate.spec.model import ModelSpec
from ablate.spec.named import block_names, shipped_spaces
from ablate.spec.paths import assign
from ablate.spec.schema import space_schema
from ablate.spec.space import SpaceSpec
from ablate.tasks.language_model import LanguageModelSpec
from ablate.tasks.tokenizers.kinds import BpeSpec


@cache
def shipped() -> dict[str, Any]:
    """Printed by a fresh process: this one may know kinds that other tests have defined."""
    done = subprocess.run([sys.executable, "-m", "ablate", "schema"], capture_output=True, check=True)
    schema: dict[str, Any] = json.loads(done.stdout)
    return schema


@cache
def validator() -> Draft7Validator:
    return Draft7Validator(shipped())


def read(text: str) -> dict[str, Any]:
    plain: dict[str, Any] = YAML(typ="safe").load(text)
    return plain


def underlined(plain: Any) -> list[str]:
    return [error.message for error in validator().iter_errors(plain)]


def changed(path: str, value: Any) -> dict[str, Any]:
    plain = read(SPACE)
    assign(plain, path, value)
    return plain


def with_setting(path: str, value: Any) -> dict[str, Any]:
    plain = read(SPACE)
    plain["switches"]["norm"]["none"] = {path: value}
    return plain


def test_every_integer_is_bounded() -> None:
    integers = [node for node in nodes(shipped()) if node.get("type") == "integer"]
    assert len(integers) > 50
    for node in integers:
        assert {"minimum", "exclusiveMinimum"} & node.keys() or "enum" in node or "const" in node, node
        assert {"maximum", "exclusiveMaximum"} & node.keys() or "enum" in node or "const" in node, node


def test_every_pattern_is_of_a_text() -> None:
    """A pattern alone lets numbers, lists and mappings pass; names of properties are texts."""
    of_names = [id(node["propertyNames"]) for node in nodes(shipped()) if "propertyNames" in node]
    patterns = [node for node in nodes(shipped()) if isinstance(node.get("pattern"), str) and id(node) not in of_names]
    assert len(patterns) > 5
    assert [node for node in patterns if "string" not in node.get("type", ())] == []


def test_it_is_a_schema_and_all_references_resolve() -> None:
    Draft7Validator.check_schema(shipped())
    wholes = [one for one in shipped()["$defs"].values() if "properties" in one]
    assert {one["type"] for one in wholes} == {"object"}
    for node in nodes(shipped()):
        if "$ref" in node:
            target: Any = shipped()
            for part in node["$ref"].removeprefix("#/").split("/"):
                target = target[part]
            assert target


def nodes(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
    for child in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from nodes(child)


def test_editors_insert_no_defaults_and_show_descriptions_on_one_line() -> None:
    typed = [node for node in nodes(shipped()) if isinstance(node.get("type"), str)]
    assert not [node for node in typed if "default" in node]
    assert not [node for node in typed if "\n" in node.get("description", "")]


def described(node: dict[str, Any]) -> bool:
    """Whether a schema, or what it refers to, or each of its alternatives tells an editor what it is."""
    if "description" in node:
        return True
    if "$ref" in node:
        name, _, field = node["$ref"].removeprefix("#/$defs/").partition("/properties/")
        definition = shipped()["$defs"][name]
        return described(definition["properties"][field] if field else definition)
    options = [option for option in node.get("anyOf", ()) if option != {"type": "null"}]
    return bool(options) and all(described(option) for option in options)


def test_every_field_of_every_spec_is_described() -> None:
    for name, body in shipped()["$defs"].items():
        for field, node in body.get("properties", {}).items():
            assert described(node), f"{name}.{field}"


def test_the_text_below_a_field_is_its_description_wherever_the_class_is_made() -> None:
    class Wide(Spec):
        width: int = 1
        """In channels,
        not in heads."""
        depth: int = 1
        """In blocks."""

    class Deep(Wide):
        depth: int = 2
        other: int = Field(3, description="Its own.")
        """Not this."""

    fields = Deep.model_json_schema()["properties"]
    assert {name: field.get("description") for name, field in fields.items()} == {
        "width": "In channels,\nnot in heads.", "depth": None, "other": "Its own."
    }  # fmt: skip


@pytest.mark.parametrize("file", sorted(shipped_spaces().glob("*.yaml")), ids=lambda file: file.stem)
def test_shipped_spaces_are_valid_and_point_at_it(file: Any) -> None:
    text = file.read_text(encoding="utf-8")
    assert underlined(read(text)) == []
    assert text.startswith("# yaml-language-server: $schema=./space.schema.json\n")


@settings(max_examples=50)
@given(plain=models())
def test_every_model_that_loads_is_valid(plain: Plain) -> None:
    ModelSpec.model_validate(plain)
    assert underlined(changed("model", plain)) == []
    dumped = ModelSpec.model_validate(plain).model_dump(mode="json")
    assert underlined(changed("model", dumped)) == []


@pytest.mark.parametrize("name", sorted(block_names()))
def test_named_blocks_are_valid_by_name_and_written_out(name: str) -> None:
    block = read(block_names()[name].read_text(encoding="utf-8"))
    assert underlined(changed("model.block", name)) == []
    plain = changed("model.block", block["block"])
    plain["model"]["exceptions"] = block.get("exceptions", {})
    assert underlined(plain) == []


SHORT = [
    ("model.block", {"mixer": "attention", "norm": "rms", "mlp": "gated", "gains": {"mlp_branch": 0.5}}),
    ("model.block", {"mixer": {"kind": "attention", "shaping": "shaped", "value": "identity"}}),
    ("model.exceptions", {"first": {"norm": "none"}, "1-2": {"mixer": {"value": {"bias": True}}}}),
    ("training.schedule", "linear"),
    ("training.optimizer", {"lr": 1, "betas": [0.9, 0.98]}),
    ("task.tokenizer", "bytes"),
    ("variants", {"a": {"norm": "none"}, "b": {}}),
    ("resources", {"checkpoint_every": 0}),
    ("resources", {"checkpoint_every": LARGEST}),
    ("resources", {"checkpoint_every": "10 min"}),
]

SETTINGS = [
    ("block", "sas"),
    ("model.block", {"mixer": "attention"}),
    ("block.mixer", "attention"),
    ("block.mixer.shaping", "shaped"),
    ("block.mixer.shaping.beta", 0.5),
    ("block.mixer.value.alpha", {"init": 1, "trainable": True}),
    ("model.block.norm.eps", 1e-5),
    ("model.depth", 6),
    ("model.exceptions.first.norm", "rms"),
    ("model.exceptions.0-1.mixer.value", {"kind": "reparametrised", "init": "identity"}),
    ("model.exceptions.last", {"mixer": {"value": "identity"}}),
    ("task.tokenizer.vocab_size", 300),
    ("training.optimizer.lr", 1e-4),
]

MISTAKES = [
    ("model.widht", 3),
    ("model.width", "wide"),
    ("model.depth", 0),
    ("model.depth", 2.5),
    ("model.block", "pre_lm"),
    ("model.block", {"norm": "rms"}),
    ("model.block", {"mixer": "atention"}),
    ("model.block", {"mixer": {"softmax": True}}),
    ("model.block", {"mixer": {"kind": "attention", "value": "identiy"}}),
    ("model.block", {"mixer": {"kind": "attention", "value": {"kind": "identity", "bias": True}}}),
    ("model.block", {"mixer": "attention", "norm": "rmss"}),
    ("model.block", {"mixer": "attention", "gains": {"mpl_branch": 1}}),
    ("model.block", {"mixer": "attention", "gains": {"mlp_branch": {"inti": 1}}}),
    ("model.block", {"mixer": "attention", "skips": {"mixer": 3}}),
    ("model.exceptions", {"frist": {"norm": "none"}}),
    ("model.exceptions", {"first": {"nrom": "none"}}),
    ("task.kind", "languge_model"),
    ("task.tokenizer", "bpe"),
    ("task.tokenizer", {"vocab_size": 300}),
    ("training.optimizer", {"lr": "small"}),
    ("training.optimizer", {"lr": 1, "betas": [0.9]}),
    ("tuned", {"training.optimizer.lr": {}}),
    ("tune", {"training.optimizer.lr": [1]}),
    ("tune", {"grid": {"training.optimizer.lr": [1]}}),
    ("training.schedule", "cosin"),
    ("design", "leave_one"),
    ("objective", {}),
    ("name", "a b"),
    ("resources", {"checkpoint_every": -1}),
    ("resources", {"checkpoint_every": LARGEST + 1}),
    ("resources", {"checkpoint_every": "soon"}),
    ("tasks", {"one": {"kind": "languge_model"}}),
    ("tasks", ["language_model"]),
    ("trainnig", {}),
    ("switches", {}),
    ("switches", {"norm": {"rms": {}}}),
    ("variants", {"a": "none"}),
    ("variants", {"a": {"norm": ["none"]}}),
    ("variants", {"a": {"removes": 3}}),
]

SETTING_MISTAKES = [
    ("blok.norm", "none"),
    ("norm", "none"),
    ("block.nrom", "none"),
    ("block.norm", "non"),
    ("block.mixer.matmul_order", "vk_first"),
    ("block", "pre_lm"),
    ("model.exceptions.frist.norm", "none"),
    ("model.exceptions.first.nrom", "none"),
    ("model.exceptions.first.mixer-value", "identity"),
    ("training.step", 3),
    ("training.schedule", "cosin"),
]


@pytest.mark.parametrize(("path", "value"), SHORT)
def test_short_forms_are_valid(path: str, value: Any) -> None:
    plain = changed(path, value)
    assert underlined(plain) == []
    SpaceSpec.model_validate(plain)


@pytest.mark.parametrize(("path", "value"), SETTINGS)
def test_settings_are_valid(path: str, value: Any) -> None:
    assert underlined(with_setting(path, value)) == []


@pytest.mark.parametrize(("path", "value"), MISTAKES)
def test_mistakes_are_underlined(path: str, value: Any) -> None:
    assert underlined(changed(path, value))


@pytest.mark.parametrize(("path", "value"), SETTING_MISTAKES)
def test_mistakes_in_settings_are_underlined(path: str, value: Any) -> None:
    assert underlined(with_setting(path, value))


@pytest.mark.parametrize("key", ["name", "question", "task", "model", "training", "switches", "design", "objective"])
def test_a_missing_key_is_underlined_unless_the_space_extends_another(key: str) -> None:
    plain = read(SPACE)
    del plain[key]
    assert underlined(plain)
    assert underlined({**plain, "extends": "base.yaml"}) == []


def test_a_space_that_extends_another_may_hold_parts_and_nulls() -> None:
    child: dict[str, Any] = {
        "extends": "base.yaml",
        "training": {"steps": 3, "schedule": {"floor": 0.1}, "precision": None},
        "model": {"block": {"norm": {"eps": 1e-5}}},
        "switches": {"norm": {"layer": {"block.norm": "layer"}, "none": None}, "values": None},
        "variants": None,
    }
    assert underlined(child) == []
    for path, value in [
        ("training.steps", "x"),
        ("training.stpes", 3),
        ("model.block.nrom", "rms"),
        ("extends", ["a"]),
    ]:
        wrong = copy.deepcopy(child)
        assign(wrong, path, value)
        assert underlined(wrong), path


@pytest.mark.parametrize(
    "kind", [AttentionSpec, LanguageModelSpec, BpeSpec, LeaveOneOutSpec, DenseSpec, ReparametrisedSpec]
)
def test_every_sort_of_kind_is_in_it_with_all_its_fields(kind: type[Kinded]) -> None:
    body = shipped()["$defs"][kind.__name__]
    assert set(body["properties"]) == set(kind.model_fields)
    assert "kind" in body["required"]


def test_named_blocks_of_other_folders_can_be_added(tmp_path: Any) -> None:
    (tmp_path / "blocks").mkdir()
    (tmp_path / "blocks" / "mine.yaml").write_text("description: d\nsource: s\nblock: {mixer: attention}\n")
    mine = changed("model.block", "mine")
    assert underlined(mine)
    assert Draft7Validator(space_schema([tmp_path])).is_valid(mine)
