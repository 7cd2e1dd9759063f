"""`ablate validate`: check a space without its data."""

from __future__ import annotations

from pathlib import Path

from ablate.cli.loading import is_space, load_plugins, load_space
from ablate.cli.options import DataOption, JsonOption, PluginOption, SpaceArgument
from ablate.render.terminal.console import make_console, print_json, say


def validate(
    file: SpaceArgument, data: DataOption = None, plugin: PluginOption = None, json_: JsonOption = False
) -> None:
    """Check a space file, or a named model, without touching data; says what is wrong with file, line and column."""
    load_plugins(plugin)
    from ablate.spec.lookup import find_model, is_model
    from ablate.spec.named import is_model_file

    if is_model_file(file) or (is_model(file) and not is_space(file)):
        from ablate.render.terminal.models import model_json, model_line

        model = find_model(file)
        if json_:
            print_json(model_json(model), indent=None)
        else:
            say(make_console(), model_line(model))
        return
    from ablate.planning.planner import Planner
    from ablate.planning.points import check_points
    from ablate.render.terminal.validate import lines, validate_json

    space = load_space(file, None, data)
    planner = Planner(space, Path(), lambda line: None)
    seen = check_points(space, planner.design(), planner.starting)
    if json_:
        print_json(validate_json(space, seen), indent=None)
    for line in lines(file, space, seen) if not json_ else ():
        say(make_console(), line)
