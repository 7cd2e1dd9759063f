"""`ablate validate`: check a space without its data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.commands.loading import load_space
from ablate.commands.options import DataOption, JsonOption, PluginOption, SpaceArgument
from ablate.terminal.console import make_console, say

if TYPE_CHECKING:
    from ablate.spec.design import SeedsSpec
    from ablate.spec.space import SpaceSpec


def validate(
    file: SpaceArgument, data: DataOption = None, plugin: PluginOption = None, json_: JsonOption = False
) -> None:
    """Check a space file without touching its data; says what is wrong with file, line and column."""
    from ablate.engine.plan import Planner

    space = load_space(file, plugin, data)
    points = Planner(space, Path(), lambda line: None).design().points()
    missing = space.task.missing()
    if json_:
        print(json.dumps({"space": space.name, "valid": True, "points": len(points), "missing": missing}))
    else:
        say(
            make_console(),
            f"{file} is a valid space: {len(points)} points, {_seeds(space.design.seeds)}{_fair(space)}.",
        )
        if missing:
            say(make_console(), f"Its data is missing: {missing}")


def _seeds(seeds: int | SeedsSpec) -> str:
    return f"each with {seeds} seeds" if isinstance(seeds, int) else f"each with {seeds.start} to {seeds.max} seeds"


def _fair(space: SpaceSpec) -> str:
    tuned = "" if space.tune is None else f", tuned over {len(list(space.tune.combinations()))} values first"
    return f"{tuned}{'' if space.match.path is None else f', at equal {space.match.equal}'}"
