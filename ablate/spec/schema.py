"""The JSON Schema of space files, for completion and validation in editors.

`ablate schema` prints it. It covers the kinds, the named blocks and the paths that switches can set; rules on several
values are checked by `ablate validate`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema

from ablate.spec.composer import ROOTS
from ablate.spec.named import block_names, model_names
from ablate.spec.paths import WORDS
from ablate.spec.space import SpaceSpec, TrainerSpace

_DIALECT = "http://json-schema.org/draft-07/schema#"  # what editors know best
_SELECTOR = r"(first|last|\d+(-\d+)?)"
_PART = ".part"
_EXTENDS = "The space that this one extends: a file next to it, or a shipped space. Mappings merge key by key, one \
with a `kind` replaces, null removes a key."
_TEXTS = {
    word: {
        "anyOf": [{"type": "string"}, {"type": "null"}],
        "description": f"What this {word}, as a text for the answer.",
    }
    for word in WORDS
}


def space_schema(folders: Iterable[Path] = ()) -> dict[str, Any]:
    """The JSON Schema of a space file.

    Args:
        folders: Folders with further named blocks in `blocks/` and models in `models/`.
    """
    schema = SpaceSpec.model_json_schema(schema_generator=_Generator)
    own = _trainer_space()
    shared = {**own.pop("$defs"), **schema.pop("$defs")}
    definitions: dict[str, Any] = {**shared, "SpaceSpec": schema, "TrainerSpace": own}
    del definitions["JsonValue"]  # settings get a stricter schema
    _share(definitions)
    for name in ("SpaceSpec", "TrainerSpace"):
        _allow_texts(definitions[name]["properties"]["variants"])
    definitions.update({f"{name}{_PART}": _part(name, body) for name, body in definitions.items()})

    names = {"enum": list(block_names(folders)), "description": "The name of a block."}
    exceptions = {"propertyNames": {"pattern": f"^{_SELECTOR}$"}, "additionalProperties": _ref(f"BlockSpec{_PART}")}
    written = dict(definitions["ModelSpec"]["properties"])
    whole = definitions["SpaceSpec"]
    written_space = dict(whole["properties"])
    whole["required"].remove("task")
    whole["anyOf"] = [{"required": ["task"]}, {"required": ["tasks", "aggregate"]}]
    for suffix in ("", _PART):
        model = definitions[f"ModelSpec{suffix}"]["properties"]
        model["block"] = {"description": model["block"]["description"], "anyOf": [names, _ref(f"BlockSpec{suffix}")]}
        if suffix:
            model["name"] = {"type": "string", "description": "The model over which the other keys are laid."}
        model["exceptions"] = {**_description_of(written["exceptions"]), "type": "object", **exceptions}
        space = definitions[f"SpaceSpec{suffix}"]["properties"]
        # The name of a model, or with `name` what is laid over it.
        named = {"enum": list(model_names(folders)), "description": "The name of a model."}
        changed = {"allOf": [_ref(f"ModelSpec{_PART}")], "required": ["name"]}
        options = [named, *_alternatives(space["model"]), *([] if suffix else [changed])]
        space["model"] = {"description": "The baseline model.", "anyOf": options}
        space["switches"] = {**_description_of(space["switches"]), **_switches(whole=not suffix)}
        on_task = {"allOf": [_ref("Setting")], "required": ["task"]}
        tasks = {"anyOf": [*_alternatives(written_space["task"]), on_task]}
        space["tasks"] = {**_description_of(written_space["tasks"]), "type": "object", "additionalProperties": tasks}
        space["extends"] = {"type": "string", "description": _EXTENDS}
        own_space = definitions[f"TrainerSpace{suffix}"]["properties"]
        own_space["switches"] = {
            **_description_of(own_space["switches"]),
            **_switches(whole=not suffix, setting="Parameters"),
        }
        own_space["extends"] = space["extends"]
    definitions["Setting"] = _setting(definitions)
    value = {"type": ["string", "number", "boolean"]}
    definitions["Parameters"] = {"type": "object", "properties": _TEXTS, "additionalProperties": value}
    return {
        "$schema": _DIALECT,
        "title": "A space of ablate",
        "type": "object",
        "if": {"required": ["trainer"]},
        "then": _whole_or_part("TrainerSpace"),
        "else": _whole_or_part("SpaceSpec"),
        "$defs": dict(sorted(definitions.items())),
    }


def _whole_or_part(name: str) -> dict[str, Any]:
    """A space of this schema; one that extends another may leave keys out."""
    return {"if": {"required": ["extends"]}, "then": _ref(f"{name}{_PART}"), "else": _ref(name)}


def _trainer_space() -> dict[str, Any]:
    """The schema of a space with a trainer."""
    plain = TrainerSpace.model_json_schema(schema_generator=_Generator)
    for name in ("tasks", "aggregate", "budgets", "timing"):
        plain["properties"].pop(name)
    return plain


class _Generator(GenerateJsonSchema):
    """Pydantic's generator without titles from field names, and with tuples in the form of draft 7."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def tuple_schema(self, schema: Any) -> JsonSchemaValue:
        plain = super().tuple_schema(schema)
        if "prefixItems" in plain:  # not in a list of any length
            plain["items"] = plain.pop("prefixItems")
        return plain

    def generate(self, schema: CoreSchema, mode: Any = "validation") -> JsonSchemaValue:
        plain = super().generate(schema, mode)
        for node in _nodes(plain):
            node.pop("default", None)  # editors would insert a default that is a mapping
            if "description" in node:
                node["description"] = " ".join(node["description"].split())
        return plain


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def _children(node: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """The subschemas of a schema as (container, key or index in it)."""
    for keyword in ("properties", "patternProperties", "$defs"):
        yield from ((node[keyword], name) for name in node.get(keyword, ()))
    for keyword in ("anyOf", "oneOf", "allOf", "items"):
        if isinstance(node.get(keyword), list):
            yield from ((node[keyword], index) for index in range(len(node[keyword])))
    for keyword in ("items", "additionalProperties", "propertyNames"):
        if isinstance(node.get(keyword), dict):
            yield node, keyword


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for container, key in _children(node):
        yield from _nodes(container[key])


def _description_of(node: dict[str, Any]) -> dict[str, Any]:
    return {"description": node["description"]} if "description" in node else {}


def _switches(*, whole: bool, setting: str = "Setting") -> dict[str, Any]:
    """The schema of switches; a space that extends another may have fewer settings and remove some."""
    of_setting, least = (_ref(setting), {"minProperties": 2}) if whole else (_or_null(_ref(setting)), {})
    settings = {"type": "object", **least, "properties": _TEXTS, "additionalProperties": of_setting}
    switches = settings if whole else _or_null(settings)
    return {"type": "object", "minProperties": 1, "additionalProperties": switches}


def _allow_texts(variants: dict[str, Any]) -> None:
    """Allow texts in named variants in addition to their settings."""
    for variant in variants["patternProperties"].values():
        (names,) = variant["patternProperties"].items()
        variant["properties"] = _TEXTS
        variant["patternProperties"] = {f"^(?!({'|'.join(WORDS)})$){names[0].removeprefix('^')}": names[1]}


def _or_null(node: dict[str, Any]) -> dict[str, Any]:
    options = node.get("anyOf", [node])
    return {"anyOf": [*options, *([] if {"type": "null"} in options else [{"type": "null"}])]}


def _alternatives(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [nested for option in node["anyOf"] for nested in _alternatives(option)] if "anyOf" in node else [node]


def _share(definitions: dict[str, Any]) -> None:
    """Write each spec once, in `definitions`, and refer to it elsewhere."""
    for body in list(definitions.values()):
        for node in list(_nodes(body)):
            for container, key in _children(node):
                child = container[key]
                if "properties" in child and definitions.setdefault(child["title"], child) == child:
                    container[key] = _ref(child["title"])


def _part(home: str, body: dict[str, Any]) -> dict[str, Any]:
    """The schema for a partial value that is merged over a whole one: nothing is required, null removes."""
    part = copy.deepcopy(body)
    for name, value in part.get("properties", {}).items():
        if name != "kind" and all("$ref" not in node and "properties" not in node for node in _nodes(value)):
            part["properties"][name] = _shorter(value, f"{home}/properties/{name}")  # the same, but for null
    for node in reversed(list(_nodes(part))):  # bottom-up, because properties are replaced by copies
        node.pop("required", None)
        if "$ref" in node and "/properties/" not in node["$ref"]:
            node["$ref"] += _PART
        for name, value in node.get("properties", {}).items():
            if name != "kind":  # distinguishes the members of a family
                bare = {key: item for key, item in value.items() if key != "description"}
                node["properties"][name] = {**_description_of(value), **_or_null(bare)}
    return part


def _setting(definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a setting: every existing path with the schema of its value."""
    space = definitions["SpaceSpec"]["properties"]
    paths: _Paths = {}
    for root in ROOTS:
        _collect(root, space[root], definitions, paths)
    for path in [path for path in paths if path.startswith("model.block")]:
        short = path.removeprefix("model.")
        paths[short], paths[path] = paths[path], [(_ref(f"Setting/properties/{short}"), "")]
    layers: _Paths = {}
    place = rf"^model\.(exceptions\.{_SELECTOR}|pattern\.\d+)"
    _collect(place, _ref(f"BlockSpec{_PART}"), definitions, layers, dot=r"\.")
    return {
        "type": "object",
        "properties": {path: _any_of(options) for path, options in sorted(paths.items())} | _TEXTS,
        "patternProperties": {f"{path}$": _any_of(options) for path, options in sorted(layers.items())},
        "additionalProperties": False,
    }


_Paths = dict[str, list[tuple[dict[str, Any], str]]]
"""Path to the schemas of its value, each with the place where it is written already; empty: nowhere."""


def _collect(
    path: str, node: dict[str, Any], definitions: dict[str, Any], schemas: _Paths, dot: str = ".", home: str = ""
) -> None:
    """Collect `node` under `path`, and its fields under their paths; `home` is where it is written already."""
    if "/properties/" in node.get("$ref", ""):
        name, _, field = node["$ref"].removeprefix("#/$defs/").partition("/properties/")
        node = definitions[name]["properties"][field]
    known = schemas.setdefault(path, [])
    if all(node != other for other, _ in known):
        known.append((node, home))
    for option in _alternatives(node):
        name = option["$ref"].rpartition("/")[2] if "$ref" in option and "/properties/" not in option["$ref"] else ""
        body = definitions[name] if name else option
        for field, value in body.get("properties", {}).items():
            _collect(
                f"{path}{dot}{field}", value, definitions, schemas, dot, f"{name}/properties/{field}" if name else ""
            )


def _any_of(options: list[tuple[dict[str, Any], str]]) -> Any:
    shown = [_shorter(node, home) for node, home in options]
    return shown[0] if len(shown) == 1 else {"anyOf": shown}


def _shorter(node: dict[str, Any], home: str) -> dict[str, Any]:
    """A reference to a schema, where it is written already and that is shorter than to repeat it."""
    reference = _ref(home)
    return reference if home and len(str(reference)) < len(str(node)) else node
