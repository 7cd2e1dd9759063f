"""Reads a JSON Schema with defaults, and writes plain data as YAML for values that have no control of their own."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from functools import reduce
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

Node = Mapping[str, Any]
_SAID = {"description": "", "title": "", "default": ""}
NOTHING = object()
"""The default of a required field."""


def alternatives(node: Node, definitions: Node) -> list[dict[str, Any]]:
    """The alternatives of a field: references are resolved, and several constants become one enumeration.

    Of alternatives that differ only in what is said of them, as for a field of several kinds, the first is kept.
    """
    if "$ref" in node:
        return alternatives(_referred(node["$ref"], definitions), definitions)
    if "anyOf" in node:
        options = [alternative for option in node["anyOf"] for alternative in alternatives(option, definitions)]
        constants = [one["const"] for one in options if "const" in one]
        described = {json.dumps({**one, **_SAID}, sort_keys=True): one for one in reversed(options)}
        others = [one for one in reversed(described.values()) if "const" not in one]
        return [{"enum": constants}, *others] if constants else others
    return [dict(node)]


def _referred(reference: str, definitions: Node) -> Node:
    """What a reference such as `#/$defs/BlockSpec/properties/norm` points to."""
    return reduce(lambda node, key: node[key], reference.removeprefix("#/$defs/").split("/"), definitions)


def is_object(node: Node) -> bool:
    """Whether it describes a mapping with known fields."""
    return "properties" in node


def kind_of(node: Node) -> str | None:
    """The kind of a member of a family; None for other objects."""
    kind = node.get("properties", {}).get("kind", {}).get("const")
    return None if kind is None else str(kind)


def member(node: Node, value: Any, definitions: Node) -> dict[str, Any] | None:
    """The alternative that describes an object: that of its kind, or the only one; None if there is none."""
    objects = [alternative for alternative in alternatives(node, definitions) if is_object(alternative)]
    kind = value.get("kind") if isinstance(value, Mapping) else value
    return next((one for one in objects if kind_of(one) == kind and kind is not None), None) or next(
        (one for one in objects if kind_of(one) is None), None
    )


def fitting(options: list[dict[str, Any]], value: Any) -> dict[str, Any]:
    """The one of several objects without a kind that fits a value, by its required fields and enumerations."""
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
    """The default of a field of an object; `NOTHING` if the field is required."""
    field = default["properties"][name]
    if "default" in field:
        return field["default"]
    if name in default.get("required", ()):
        return NOTHING
    return {"object": {}, "array": []}.get(str(field.get("type")))  # created for each value, so not in the schema


def opened(node: Node, value: Any, definitions: Node) -> Any:
    """A short form of a mapping as that mapping; any other value unchanged."""
    option = member(node, value, definitions)
    if isinstance(value, str) and option is not None and "kind" in option["properties"]:
        return {"kind": value}
    return value


def lean(node: Node, value: Any, definitions: Node) -> Any:
    """A value without the fields at their default; the kind of a member of a family is kept."""
    option = member(node, value, definitions)
    if option is None or not isinstance(value, Mapping):
        return value
    kept = {}
    for name, item in value.items():
        field = option["properties"].get(name)
        if field is None:
            kept[name] = item  # unknown: the validation refuses it
            continue
        default = default_of(option, name)
        short = lean(field, opened(field, item, definitions), definitions)
        if "const" in field or default is NOTHING or short != lean(field, default, definitions):
            kept[name] = short
    return kept


def to_yaml(plain: Mapping[str, Any]) -> str:
    """The data as YAML in block style, with keys in their order."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # ruamel declares None
    yaml.allow_unicode = True
    yaml.width = 100
    written = io.StringIO()
    yaml.dump(dict(plain), written)
    return written.getvalue()


def takes_lines(node: Node) -> bool:
    """Whether values of a field need several lines: mappings, and lists of mappings."""
    return node.get("type") == "object" or node.get("items", {}).get("type") == "object"


def yaml_to_edit(node: Node, value: Any) -> str:
    """A value as text to edit."""
    if value is NOTHING or value in (None, [], {}):
        return ""
    if takes_lines(node):
        return to_yaml(value).rstrip() if isinstance(value, Mapping) else to_yaml({"_": value})[3:].rstrip()
    return json.dumps(value, ensure_ascii=False)


def read_yaml(typed: str) -> tuple[Any, str]:
    """The value of YAML text and an error message; if the text is invalid, the value is the text."""
    try:
        read = YAML(typ="safe", pure=True).load(io.StringIO(typed))
        return json.loads(json.dumps(read, default=str)), ""
    except MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
        return typed, f"This is not valid YAML{line}: {error.problem or 'it cannot be read'}."
    except (YAMLError, TypeError):
        return typed, "This is not valid YAML."
