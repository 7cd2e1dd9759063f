"""`ablate status`: what runs where, from another terminal or machine."""

from __future__ import annotations

from ablate.cli.options import DEFAULT_STORE, JsonOption, StoreOption
from ablate.render.terminal.console import make_console, print_json


def status(store: StoreOption = DEFAULT_STORE, json_: JsonOption = False) -> None:
    """Show what runs where, how fast, what failed or was tried again, and the time left.

    It is read from the store: while `ablate study` runs, type it in another terminal, or on another machine that
    reaches the store.
    """
    from ablate.analysis.status import read_status, status_json
    from ablate.render.terminal.status import print_status
    from ablate.store import open_store

    with open_store(store, create=False) as opened:
        running = read_status(opened)
    if json_:
        print_json(status_json(running))
    else:
        print_status(running, make_console())
