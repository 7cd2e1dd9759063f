"""`ablate check-store`: whether a store is whole, and what can be read of a damaged one."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ablate.cli.options import DEFAULT_STORE, JsonOption, StoreOption
from ablate.errors import StoreError
from ablate.render.terminal.console import make_console, say


def check_store(
    store: StoreOption = DEFAULT_STORE,
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="FILE", help="A new store for all that can be read of a damaged one."),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Check that every row of a store can be read; with --export, save what can be read to a new store.

    The store itself is not changed. Exit codes: 0 it is whole, 2 it is damaged.
    """
    from ablate.store.check import check_store as check

    damage = check(store, export)
    console = make_console()
    if json_:
        print(json.dumps(asdict(damage), ensure_ascii=False))
    else:
        for table in damage.tables:
            reached = "" if table.complete else ", and some cannot be reached"
            say(console, f"{table.name}: {table.whole:,} rows can be read, {table.damaged:,} cannot{reached}")
        for finding in damage.findings:
            say(console, finding)
    if export is not None:
        say(make_console(stderr=True), f"Wrote what can be read to {export}")
    if damage.findings:
        remedy = None if export else "`ablate check-store --export FILE` saves what can be read to a new store."
        raise StoreError("the database file is damaged", where=damage.where, remedy=remedy)
