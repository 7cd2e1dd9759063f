"""`ablate diff`: what differs between two variants, trials or spaces."""

from __future__ import annotations

from ablate.cli.loading import load_plugins
from ablate.cli.options import DEFAULT_STORE, JsonOption, PluginOption, SideArgument, StoreOption
from ablate.render.terminal.console import make_console, print_json


def diff(
    left: SideArgument,
    right: SideArgument,
    store: StoreOption = DEFAULT_STORE,
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> None:
    """Show what differs between two variants, trials or space files: in spec, environment and result."""
    from ablate.analysis.diff import diff_json, read_diff
    from ablate.render.terminal.diff import print_diff

    load_plugins(plugin)
    difference = read_diff(left, right, store)
    if json_:
        print_json(diff_json(difference))
    else:
        print_diff(difference, make_console())
