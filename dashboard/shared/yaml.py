"""Plain data as YAML text."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML


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
