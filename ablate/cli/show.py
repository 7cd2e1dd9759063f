"""`ablate show`: the table and the answer of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ablate.cli.loading import read
from ablate.cli.options import DEFAULT_STORE, JsonOption, StoreOption, StudyArgument, picture_file
from ablate.render.terminal.console import make_console, print_json


def show(
    study: StudyArgument,
    store: StoreOption = DEFAULT_STORE,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write the table as a picture.")] = None,
    trials: Annotated[
        bool, typer.Option("--trials", help="List the trials with their keys, as others take them.")
    ] = False,
    all_: Annotated[bool, typer.Option("--all", help="Show every row of a long table.")] = False,
    json_: JsonOption = False,
) -> None:
    """Show the table and the answer of a study, finished or not."""
    from ablate.render.as_json import study_json
    from ablate.render.table import MOST_ROWS, print_study, study_svg

    if svg is not None:
        from ablate.render.drawing.svg import write_svg

        write_svg(picture_file("--svg", svg), study_svg(read(store, study)))
    if trials:
        show_trials(store, study, json_=json_)
    elif json_:
        print_json(study_json(read(store, study)))
    elif svg is None:
        print_study(read(store, study), make_console(), None if all_ else MOST_ROWS)


def show_trials(store: str, study: str, *, json_: bool) -> None:
    """Print the trials of a study instead of its table."""
    from ablate.render.trials import list_trials, trials_json, trials_table
    from ablate.store import open_store

    with open_store(store, create=False) as opened:
        trials = list_trials(opened, study)
    if json_:
        print_json(trials_json(trials))
    else:
        make_console().print(trials_table(trials))
