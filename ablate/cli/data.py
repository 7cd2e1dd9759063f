"""`ablate data`: what a space will train on."""

from __future__ import annotations

from ablate.cli.loading import load_space
from ablate.cli.options import CacheOption, DataOption, JsonOption, PluginOption, SpaceArgument
from ablate.render.terminal.console import make_console, print_json, say


def data_(
    file: SpaceArgument,
    data: DataOption = None,
    cache: CacheOption = None,
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> None:
    """Show what a space will train on: rows, tokens, lengths, labels, samples, fingerprint, trivial baselines."""
    from ablate.locations import cache_folder
    from ablate.render.terminal.data import data_json, print_data

    space = load_space(file, plugin, data)
    folder, progress = cache or cache_folder(), make_console(stderr=True)
    fingerprint = space.task.prepare(folder, lambda line: say(progress, line, style="dim"))
    task = space.task.open(folder, fingerprint)
    address = str(getattr(space.task, "data", space.task.kind_name()))
    if json_:
        print_json(data_json(space.name, address, task, space.departs))
    else:
        print_data(address, task, space.departs, make_console())
