"""`ablate reproduce`: train a stored trial again and compare."""

from __future__ import annotations

from typing import Annotated

import typer

from ablate.cli.loading import load_plugins
from ablate.cli.options import (
    DEFAULT_STORE,
    DIFFERENT,
    AcceptCodeOption,
    CacheOption,
    DeviceOption,
    JsonOption,
    PluginOption,
    StoreOption,
    ThreadsOption,
)
from ablate.render.terminal.console import make_console, print_json, say


def reproduce(
    trial: Annotated[str, typer.Argument(metavar="TRIAL", help="The beginning of a trial's key.")],
    store: StoreOption = DEFAULT_STORE,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 1,
    cache: CacheOption = None,
    plugin: PluginOption = None,
    accept_changed_code: AcceptCodeOption = False,
    json_: JsonOption = False,
) -> int:
    """Train a stored trial again, from its record alone, and say whether the curve is the same.

    The store is only read. Exit codes: 0 the same (identical, or equal within a tolerance), 1 different, 2 it cannot
    be done. `ablate diff STUDY/VARIANT STUDY/VARIANT` shows the keys of trials.
    """
    from ablate.execution.environment import choose_device, describe_environment
    from ablate.execution.local import LocalEngine
    from ablate.execution.reproduce import reproduce as train_again
    from ablate.locations import cache_folder
    from ablate.render.terminal.reproduce import print_reproduction, reproduction_json
    from ablate.store import open_store

    load_plugins(plugin)
    chosen, folder, progress = choose_device(device), cache or cache_folder(), make_console(stderr=True)
    with (
        open_store(store, create=False) as opened,
        LocalEngine(folder, chosen, 1, threads, tuple(plugin or ())) as engine,
        progress.status("Training it again") as status,
    ):
        reproduction = train_again(
            trial,
            opened,
            folder,
            engine,
            describe_environment(chosen),
            say=lambda line: say(progress, line, style="dim"),
            moved=lambda step, steps: status.update(f"Training it again: step {step} of {steps}"),
            accept_changed_code=accept_changed_code,
        )
    if json_:
        print_json(reproduction_json(reproduction))
    else:
        print_reproduction(reproduction, make_console())
    return DIFFERENT if reproduction.verdict == "different" else 0
