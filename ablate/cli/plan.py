"""`ablate plan`: every trial with its cost, before anything runs."""

from __future__ import annotations

from ablate.cli.loading import load_space
from ablate.cli.options import (
    DEFAULT_STORE,
    CacheOption,
    DataOption,
    JsonOption,
    PluginOption,
    SpaceArgument,
    StoreOption,
)
from ablate.render.terminal.console import make_console, print_json, say


def plan(
    file: SpaceArgument,
    data: DataOption = None,
    store: StoreOption = DEFAULT_STORE,
    cache: CacheOption = None,
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> None:
    """List every trial of a space with its cost and an estimate of time; trains nothing.

    Points whose settings make no model are counted with their reasons. The data is prepared, once, as `study` does.
    """
    from ablate.planning.forecast import forecast
    from ablate.planning.plan import Planner, make_plan
    from ablate.render.terminal.plan import plan_json, print_plan
    from ablate.tasks.cache import default_cache
    from ablate.trained.weights import weights_folder

    space = load_space(file, plugin, data)
    progress = make_console(stderr=True)
    told = lambda line: say(progress, line, style="dim")  # noqa: E731
    made = make_plan(Planner(space, cache or default_cache(), told, weights=weights_folder(store)))
    estimate = forecast(made, store)
    if json_:
        print_json(plan_json(made, estimate))
    else:
        print_plan(made, estimate, make_console())
