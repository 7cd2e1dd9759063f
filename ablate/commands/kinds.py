"""`ablate kinds`: what a space can name."""

from __future__ import annotations

import json

from ablate.commands.loading import load_plugins
from ablate.commands.options import JsonOption, PluginOption
from ablate.terminal.console import make_console


def kinds(plugin: PluginOption = None, json_: JsonOption = False) -> None:
    """List what a space can name: mixers with their cost class and source, tasks, designs, blocks."""
    from ablate.terminal.kinds import kinds_json, print_kinds

    load_plugins(plugin)
    if json_:
        print(json.dumps(kinds_json(), indent=2, ensure_ascii=False))
    else:
        print_kinds(make_console())
