"""Plain data as YAML text, and values without a control, which are entered as YAML."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from dashboard.shared.schema import NOTHING, Node


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
        return typed, f"This is no YAML{line}: {error.problem or 'it cannot be read'}."
    except (YAMLError, TypeError):
        return typed, "This is no YAML."
