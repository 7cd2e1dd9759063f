"""`ablate show`: the answer of a study, the reasons of one verdict, the table, the checks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ablate.cli.loading import read
from ablate.cli.options import DEFAULT_STORE, JsonOption, StoreOption, StudyArgument, picture_file, store_flag
from ablate.render.terminal.console import make_console, print_json


def show(
    study: StudyArgument,
    store: StoreOption = DEFAULT_STORE,
    why: Annotated[
        str | None, typer.Option("--why", metavar="VARIANT", help="Explain the verdict on one variant, seed by seed.")
    ] = None,
    table: Annotated[bool, typer.Option("--table", help="Show the ablation table and how to read it.")] = False,
    checks: Annotated[bool, typer.Option("--checks", help="Show all that supports or limits the verdicts.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Show answer, table, checks and claims.")] = False,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write the answer as a picture.")] = None,
    trials: Annotated[
        bool, typer.Option("--trials", help="List the trials with the keys that `evaluate` and `reproduce` accept.")
    ] = False,
    all_: Annotated[bool, typer.Option("--all", help="Show every row of a long answer or table.")] = False,
    json_: JsonOption = False,
) -> None:
    """Show the answer of a study, finished or not: what can go, what must stay, how sure that is, what to do next."""
    from ablate.analysis.answer import answer_of
    from ablate.analysis.why import why as why_of
    from ablate.render.answer import answer_svg, print_answer, print_why
    from ablate.render.as_json import study_json, why_json
    from ablate.render.table import MOST_ROWS, print_checks, print_study, print_table

    if trials:
        show_trials(store, study, json_=json_)
        return
    picture = None if svg is None else picture_file("--svg", svg)
    report, most = read(store, study), None if all_ else MOST_ROWS
    if picture is not None:
        from ablate.render.drawing.svg import write_svg

        write_svg(picture, answer_svg(answer_of(report)))
    console = make_console()
    if why is not None:
        explained = why_of(report, why)
        print_json(why_json(explained)) if json_ else print_why(explained, console)
    elif json_:
        print_json(study_json(report))
    elif full:
        print_answer(answer_of(report), console, store=store_flag(store), everything=all_)
        console.print()
        print_study(report, console, most)
    elif table:
        print_table(report, console, most)
    elif checks:
        print_checks(report, console)
    elif svg is None:
        print_answer(answer_of(report), console, store=store_flag(store), everything=all_)


def show_trials(store: str, study: str, *, json_: bool) -> None:
    """Print the trials of a study instead of its table."""
    from ablate.analysis.trials import list_trials
    from ablate.render.terminal.listing import trials_json, trials_table
    from ablate.store import open_store

    with open_store(store, create=False) as opened:
        trials = list_trials(opened, study)
    if json_:
        print_json(trials_json(trials))
    else:
        make_console().print(trials_table(trials))
