"""`ablate validate`: check a space without its data."""

from __future__ import annotations

from pathlib import Path

from ablate.cli.loading import load_space
from ablate.cli.options import DataOption, JsonOption, PluginOption, SpaceArgument
from ablate.render.terminal.console import make_console, print_json, say


def validate(
    file: SpaceArgument, data: DataOption = None, plugin: PluginOption = None, json_: JsonOption = False
) -> None:
    """Check a space file without touching its data; says what is wrong with file, line and column."""
    from ablate.planning.plan import Planner
    from ablate.render.terminal.validate import lines, look_at, validate_json

    space = load_space(file, plugin, data)
    planner = Planner(space, Path(), lambda line: None)
    seen = look_at(space, planner.design(), planner.resolver, planner.starting)
    if json_:
        print_json(validate_json(space, seen), indent=None)
    for line in lines(file, space, seen) if not json_ else ():
        say(make_console(), line)
