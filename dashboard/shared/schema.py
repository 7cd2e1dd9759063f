"""Reads a JSON Schema with defaults: what a field may be, and plain values without what holds its default."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Node = Mapping[str, Any]
NOTHING = object()
"""The default of a field that must be given."""


def alternatives(node: Node, definitions: Node) -> list[dict[str, Any]]:
    """What a field may be, one after the other: references followed, several constants as one enumeration.

    Of alternatives that differ in their description only, as a field of several kinds has, the first stays.
    """
    if "$ref" in node:
        return alternatives(definitions[node["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in node:
        options = [one for option in node["anyOf"] for one in alternatives(option, definitions)]
        constants = [one["const"] for one in options if "const" in one]
        described = {json.dumps({**one, "description": ""}, sort_keys=True): one for one in reversed(options)}
        others = [one for one in reversed(described.values()) if "const" not in one]
        return [{"enum": constants}, *others] if constants else others
    return [dict(node)]


def is_object(node: Node) -> bool:
    """Whether it is a mapping with known fields."""
    return "properties" in node


def kind_of(node: Node) -> str | None:
    """The kind that a member of a family has; None for other objects."""
    kind = node.get("properties", {}).get("kind", {}).get("const")
    return None if kind is None else str(kind)


def member(node: Node, value: Any, definitions: Node) -> dict[str, Any] | None:
    """The object that a value is of: the member of its kind, or the only one; None if it is none."""
    objects = [one for one in alternatives(node, definitions) if is_object(one)]
    kind = value.get("kind") if isinstance(value, Mapping) else value
    return next((one for one in objects if kind_of(one) == kind and kind is not None), None) or next(
        (one for one in objects if kind_of(one) is None), None
    )


def fitting(options: list[dict[str, Any]], value: Any) -> dict[str, Any]:
    """Of several objects without a kind the one that a value is of, by the fields it must have and by its words."""
    if not isinstance(value, Mapping):
        return options[0]

    def fits(option: Node) -> bool:
        fields = option["properties"]
        return set(option.get("required", ())) <= value.keys() <= fields.keys() and all(
            value[name] in known
            for name, field in fields.items()
            if name in value and (known := [field["const"]] if "const" in field else field.get("enum"))
        )

    return next((option for option in options if fits(option)), options[0])


def default_of(default: Node, name: str) -> Any:
    """What a field of an object is if it is left out; `NOTHING` if it may not be."""
    field = default["properties"][name]
    if "default" in field:
        return field["default"]
    if name in default.get("required", ()):
        return NOTHING
    return {"object": {}, "array": []}.get(str(field.get("type")))  # made afresh for each value, so not in the schema


def opened(node: Node, value: Any, definitions: Node) -> Any:
    """A bare value that stands for a mapping, as that mapping; any other value as it is."""
    option = member(node, value, definitions)
    if isinstance(value, str) and option is not None and "kind" in option["properties"]:
        return {"kind": value}
    return value


def lean(node: Node, value: Any, definitions: Node) -> Any:
    """A value without the fields that hold their default; the kind of a member of a family stays."""
    option = member(node, value, definitions)
    if option is None or not isinstance(value, Mapping):
        return value
    kept = {}
    for name, item in value.items():
        field = option["properties"].get(name)
        if field is None:
            kept[name] = item  # unknown here: for the validation to refuse
            continue
        default = default_of(option, name)
        short = lean(field, opened(field, item, definitions), definitions)
        if "const" in field or default is NOTHING or short != lean(field, default, definitions):
            kept[name] = short
    return kept
