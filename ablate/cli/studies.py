"""Commands for studies: write a space, plan it, run it, and see what a store holds."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablate.cli.loading import existing_store, load_asked, read
from ablate.cli.options import (
    FAILED,
    INTERRUPTED,
    AcceptCodeOption,
    CacheOption,
    DataOption,
    DesignOption,
    DeviceOption,
    JsonOption,
    PluginOption,
    SeedsOption,
    SpaceArgument,
    StoredOption,
    StoreOption,
    store_flag,
    with_run_options,
)
from ablate.command_line import command
from ablate.errors import ArgumentError, StoreError
from ablate.locations import DEFAULT_STORE
from ablate.render.terminal.console import make_console, print_json, print_next_steps, say

if TYPE_CHECKING:
    from rich.console import Console

    from ablate.execution.driver import StudyResult


def new(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the new space; NAME.yaml is written here.")
    ] = None,
    like: Annotated[str, typer.Option(metavar="START", help="Starting point, as `--list` names them.")] = "needed",
    list_: Annotated[bool, typer.Option("--list", help="List the starting points by their question.")] = False,
    json_: JsonOption = False,
) -> None:
    """Write a commented space to start from."""
    from rich.table import Table

    from ablate.cli.starting_points import starts, write_space

    console = make_console()
    if list_:
        questions = {start: file.read_text(encoding="utf-8")[2:].partition("\n")[0] for start, file in starts().items()}
        if json_:
            print_json({"starts": questions})
            return
        table = Table.grid(padding=(0, 2))
        for start, question in questions.items():
            table.add_row(start, question)
        console.print(table)
        print_next_steps(console, "\nTake one:", {command("new", "my_question", "--like", like): "a space of your own"})
        return
    if name is None:
        raise ArgumentError("this is missing", where="NAME", remedy="Name the new space, or use `--list`.")
    path = str(write_space(name, Path(), like))
    if json_:
        print_json({"space": path}, indent=None)
        return
    steps = {
        command("plan", path): "what it would train, and how long that takes",
        command("study", path): "train it and see the answer",
    }
    print_next_steps(console, f"Wrote {path}. Change it to your question, then:", steps)


_PANEL = "Another machine"

OnOption = Annotated[
    str | None,
    typer.Option("--on", metavar="DEVICE", help="A device, such as h100 or h100x8.", rich_help_panel=_PANEL),
]
FlopsOption = Annotated[
    float | None,
    typer.Option("--flops", min=1.0, help="Peak FLOP/s of one device.", rich_help_panel=_PANEL),
]
EfficiencyOption = Annotated[
    float | None,
    typer.Option(
        "--efficiency",
        min=0.001,
        max=1.0,
        help="Share of the peak that a training step reaches.",
        show_default="0.5 in fp32, 0.25 in bf16",
        rich_help_panel=_PANEL,
    ),
]
DoctorOption = Annotated[
    Path | None,
    typer.Option(
        "--doctor",
        metavar="FILE",
        help="The file that `ablate doctor` wrote on that machine: the speed that a small trial has reached.",
        rich_help_panel=_PANEL,
    ),
]
PlannedWorkersOption = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Trials at once.", show_default="one for each core or device"),
]


def plan(
    file: SpaceArgument,
    data: DataOption = None,
    seeds: SeedsOption = None,
    design: DesignOption = None,
    stored: StoredOption = False,
    store: StoreOption = DEFAULT_STORE,
    cache: CacheOption = None,
    plugin: PluginOption = None,
    json_: JsonOption = False,
    on: OnOption = None,
    flops: FlopsOption = None,
    efficiency: EfficiencyOption = None,
    doctor: DoctorOption = None,
    workers: PlannedWorkersOption = None,
    device: DeviceOption = "auto",
    accept_changed_code: AcceptCodeOption = False,
) -> None:
    """List every trial of a space with its cost and an estimate of time; trains nothing.

    Points whose settings make no model are counted with their reasons. The data is prepared, once, as `study` does.
    The time is measured by some steps on the device that `study` would use. With --on, --flops or --doctor the time is
    that of another machine, and memory is compared with what that has.
    """
    from ablate.execution.environment import choose_device
    from ablate.locations import cache_folder
    from ablate.planning.earlier import EarlierTrials
    from ablate.planning.forecast import Estimate, forecast, settled_trials
    from ablate.planning.other_machine import MachineForecast, find_machine
    from ablate.planning.planner import Planner, make_plan
    from ablate.render.terminal.plan import plan_json, print_plan
    from ablate.trained.weights import weights_folder

    space = load_asked(file, store, plugin, data, seeds, design, stored=stored)
    gpus = space.resources.gpus
    machine = find_machine(on, flops, efficiency, doctor, workers, space.resources)
    chosen = choose_device("cpu" if machine is not None or (device == "auto" and gpus == 0) else device)
    progress = make_console(stderr=True)
    show_progress = lambda line: say(progress, line, style="dim")  # noqa: E731
    with existing_store(store) as opened:
        earlier = EarlierTrials(opened, accept=accept_changed_code)
        planner = Planner(space, cache or cache_folder(), show_progress, weights=weights_folder(store), earlier=earlier)
        made = make_plan(planner)
        changed = earlier.changed(made.trials)
    on_machine: MachineForecast | None = None
    estimate: Estimate
    if machine is None:
        estimate = forecast(made, store, workers, device=chosen, tasks=planner.costs.prepare)
    else:
        estimate = on_machine = MachineForecast(frozenset(trial.key for trial in settled_trials(made, store)), machine)
    if json_:
        print_json(plan_json(made, estimate, on_machine, changed))
    else:
        print_plan(made, estimate, make_console(), on_machine, changed)


@with_run_options
def study(
    file: SpaceArgument,
    data: DataOption = None,
    seeds: SeedsOption = None,
    design: DesignOption = None,
    stored: StoredOption = False,
    store: StoreOption = DEFAULT_STORE,
    json_: JsonOption = False,
    **options: Any,
) -> int:
    """Train what a space asks for and answer its question.

    Run it again to continue where it stopped: finished trials are in the store and are not trained again. With --json
    the progress goes to stderr and the last line of stdout is an object. Exit codes: 0 fine, 2 invalid space or
    options, 3 some trials failed, 130 interrupted.
    """
    from ablate.analysis.answer import answer_of
    from ablate.api import run
    from ablate.render.answer import print_answer
    from ablate.render.terminal.live import Display
    from ablate.store.database import in_memory

    if in_memory(store):
        remedy = "Name a file with --store, or leave it out."
        raise StoreError("a store in memory is gone when the command ends", where=f"--store {store}", remedy=remedy)
    plugins = options["plugins"]
    space = load_asked(file, store, plugins, data, seeds, design, stored=stored)
    console = make_console(stderr=json_)
    with Display(console) as display:
        result = run(space, store=store, observer=display, **options).result
    assert result is not None, "a study that was run says how that ended"
    if json_:
        counts = {key: value for key, value in asdict(result).items() if key != "interrupted"}
        print_json(counts | {"seconds": round(result.seconds, 3)}, indent=None)
    elif not result.interrupted:
        console.print()
        answer = answer_of(read(store, result.study))
        print_answer(answer, console, store=store_flag(store), plugins=[f"--plugin={name}" for name in plugins or ()])
    _print_ending(result, console)
    return INTERRUPTED if result.interrupted else FAILED if result.failed else 0


def _print_ending(result: StudyResult, console: Console) -> None:
    """The command that continues, while something is left to do."""
    from ablate.analysis.text import plural

    again, all_of = {command(*sys.argv[1:]): ""}, plural(result.trials, "trial")
    if result.interrupted:
        done = result.trained + result.reused + result.diverged + result.pruned
        print_next_steps(console, f"\nStopped with {done} of {all_of} done; they are stored. Continue:", again)
    elif result.failed:
        print_next_steps(console, f"\n{result.failed} of {all_of} failed. Retry:", again)


def status(store: StoreOption = DEFAULT_STORE, json_: JsonOption = False) -> None:
    """Show what runs where, how fast, what failed or was tried again, and the time left.

    It is read from the store: while `ablate study` runs, type it in another terminal, or on another machine that
    reaches the store.
    """
    from ablate.analysis.status import status_json, status_of
    from ablate.render.terminal.status import print_status
    from ablate.store import open_store

    with open_store(store, create=False) as opened:
        running = status_of(opened.activity())
    if json_:
        print_json(status_json(running))
    else:
        print_status(running, make_console())


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
