"""`ablate status`: what runs where, from another terminal or machine."""

from __future__ import annotations

from ablate.commands.options import DEFAULT_STORE, JsonOption, StoreOption
from ablate.terminal.console import make_console, print_json


def status(store: StoreOption = DEFAULT_STORE, json_: JsonOption = False) -> None:
    """Show what runs where, how fast, what failed or was tried again, and the time left.

    It is read from the store: while `ablate study` runs, type it in another terminal, or on another machine that
    reaches the store.
    """
    from ablate.report.status import read_status, status_json
    from ablate.store import open_store
    from ablate.terminal.status import print_status

    with open_store(store, create=False) as opened:
        found = read_status(opened)
    if json_:
        print_json(status_json(found))
    else:
        print_status(found, make_console())
