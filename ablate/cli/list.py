"""`ablate list`: the studies of a store."""

from __future__ import annotations

from ablate.cli.options import DEFAULT_STORE, JsonOption, StoreOption, store_flag
from ablate.command_line import command
from ablate.render.terminal.console import make_console, print_json, say


def list_(store: StoreOption = DEFAULT_STORE, json_: JsonOption = False) -> None:
    """List the studies of the store."""
    from ablate.render.terminal.listing import studies_json, studies_table
    from ablate.store import open_store

    with open_store(store, create=False) as opened:
        studies = opened.studies()
    console = make_console()
    if json_:
        print_json(studies_json(studies))
    elif studies:
        console.print(studies_table(studies, console))
    else:
        say(console, f"{store} holds no study yet. Run one: {command('study', 'simplify_block', *store_flag(store))}")
