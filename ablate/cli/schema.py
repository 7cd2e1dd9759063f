"""`ablate schema`: the JSON Schema of a space."""

from __future__ import annotations

from ablate.cli.loading import load_plugins
from ablate.cli.options import PluginOption
from ablate.render.terminal.console import print_json


def schema(plugin: PluginOption = None) -> None:
    """Print the JSON Schema of a space file, with which an editor completes and underlines."""
    load_plugins(plugin)
    from ablate.spec.schema import space_schema

    print_json(space_schema())
