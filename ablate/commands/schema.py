"""`ablate schema`: the JSON Schema of a space."""

from __future__ import annotations

import json

from ablate.commands.loading import load_plugins
from ablate.commands.options import PluginOption


def schema(plugin: PluginOption = None) -> None:
    """Print the JSON Schema of a space file, with which an editor completes and underlines."""
    load_plugins(plugin)
    from ablate.spec.schema import space_schema

    print(json.dumps(space_schema(), indent=2, ensure_ascii=False))
