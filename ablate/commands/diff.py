"""`ablate diff`: what differs between two variants, trials or spaces."""

from __future__ import annotations

from ablate.commands.loading import load_plugins
from ablate.commands.options import DEFAULT_STORE, JsonOption, PluginOption, SideArgument, StoreOption
from ablate.terminal.console import make_console, print_json


def diff(
    left: SideArgument,
    right: SideArgument,
    store: StoreOption = DEFAULT_STORE,
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> None:
    """Say what differs between two variants, trials or space files: in spec, environment and result."""
    from ablate.report.diff import diff_json, read_diff
    from ablate.terminal.diff import print_diff

    load_plugins(plugin)
    found = read_diff(left, right, store)
    if json_:
        print_json(diff_json(found))
    else:
        print_diff(found, make_console())
