"""`ablate kinds`: what a space can name."""

from __future__ import annotations

from ablate.cli.loading import load_plugins
from ablate.cli.options import JsonOption, PluginOption
from ablate.render.terminal.console import make_console, print_json


def kinds(plugin: PluginOption = None, json_: JsonOption = False) -> None:
    """List the kinds of every family with their facts (of a mixer its cost class and source), and the named blocks."""
    from ablate.render.terminal.kinds import kinds_json, print_kinds

    load_plugins(plugin)
    if json_:
        print_json(kinds_json())
    else:
        print_kinds(make_console())
