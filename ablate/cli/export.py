"""`ablate export`: a study for other programs' eyes."""

from __future__ import annotations

from typing import Annotated

import typer

from ablate.analysis.text import plural
from ablate.cli.options import DEFAULT_STORE, StoreOption, StudyArgument
from ablate.command_line import hide_passwords
from ablate.render.terminal.console import make_console, say


def export(
    study: StudyArgument,
    optuna: Annotated[
        str, typer.Option("--optuna", metavar="URL", help="Optuna's storage, for instance sqlite:///optuna.db.")
    ],
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Write the trials of a study into Optuna's storage, for `optuna-dashboard` and Optuna's plots.

    Run it again to add what has ended since.
    """
    from ablate.render.export import export_optuna
    from ablate.store import open_store

    with open_store(store, create=False) as opened:
        written, there = export_optuna(opened, study, optuna)
    before = f", {there} were there already" if there else ""
    say(make_console(), f"{plural(written, 'trial')} of {study} written to {hide_passwords(optuna)}{before}.")
