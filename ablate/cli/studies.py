"""Commands for studies: write a space, plan it, run it, and see what a store holds."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablate.cli.options import (
    FAILED,
    INTERRUPTED,
    AcceptCodeOption,
    CacheOption,
    DataOption,
    DesignOption,
    DeviceOption,
    JsonOption,
    LongerOption,
    MovedDataOption,
    PluginOption,
    RungOption,
    SeedsOption,
    SpaceArgument,
    StoredOption,
    StoreOption,
    StudyArgument,
    YesOption,
    changed_by,
    data_of_study,
    existing_store,
    load_space,
    load_stored,
    read,
    store_flag,
    with_run_options,
)
from ablate.errors import ArgumentError, StoreError
from ablate.locations import DEFAULT_STORE
from ablate.processes import command, hide_passwords
from ablate.render.terminal.console import make_console, print_json, print_next_steps, say

if TYPE_CHECKING:
    from rich.console import Console

    from ablate.execution.driver import StudyResult
    from ablate.spec.space import SpaceSpec


def new(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the new space; NAME.yaml is written here.")
    ] = None,
    like: Annotated[
        str, typer.Option("--like", metavar="START", help="Starting point, as `--list` names them.")
    ] = "needed",
    list_: Annotated[bool, typer.Option("--list", help="List the starting points by their question.")] = False,
    json_: JsonOption = False,
) -> None:
    """Write a commented space to start from."""
    from rich.table import Table

    from ablate.spec.named import JUDGE_START, starts, write_space

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
    if like == JUDGE_START:
        steps = {command("judge", path): "see the answer; nothing is trained"}
    print_next_steps(console, f"Wrote {path}. Change it to your question, then:", steps)


_PANEL = "Another machine"

OnOption = Annotated[
    str | None,
    typer.Option("--on", metavar="GPU", help="A device, such as h100 or h100x8.", rich_help_panel=_PANEL),
]
FlopsOption = Annotated[
    float | None,
    typer.Option("--flops", metavar="NUMBER", min=1.0, help="Peak FLOP/s of one device.", rich_help_panel=_PANEL),
]
EfficiencyOption = Annotated[
    float | None,
    typer.Option(
        "--efficiency",
        metavar="SHARE",
        min=0.001,
        max=1.0,
        help="Share of the peak that a training step reaches.",
        show_default="0.5 in fp32, 0.2 in tf32 and bf16",
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
    typer.Option(
        "--workers", metavar="N", min=1, help="Trials at once.", show_default="one for each core, or each GPU"
    ),
]


def plan(
    file: SpaceArgument,
    data: DataOption = None,
    seeds: SeedsOption = None,
    design: DesignOption = None,
    rung: RungOption = None,
    longer: LongerOption = None,
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

    Points whose settings are not a valid model are counted with their reasons. The data is prepared, once, as `study`
    does. The time is measured by some steps on the device that `study` would use. With --on, --flops or --doctor the
    time is that of another machine, and it is checked whether each trial fits into its memory.
    """
    from ablate.execution.environment import choose_device, undeclared_code
    from ablate.locations import cache_folder
    from ablate.planning.forecast import Estimate, forecast, settled_trials
    from ablate.planning.other_machine import MachineForecast, find_machine
    from ablate.planning.plan import EarlierTrials
    from ablate.planning.planner import Planner, make_plan
    from ablate.render.terminal.plan import plan_json, print_plan
    from ablate.spec.space import TrainerSpace
    from ablate.trained.weights import weights_folder

    space = load_stored(file, store, plugin) if stored else load_space(file, plugin, data)
    moved = data_of_study(file, space, data if stored else None, store, cache)
    space = changed_by(space, seeds, design, rung, longer)
    gpus = space.resources.gpus
    machine = find_machine(on, flops, efficiency, doctor, workers, space.resources)
    chosen = choose_device("cpu" if machine is not None or (device == "auto" and gpus == 0) else device)
    progress = make_console(stderr=True)
    show_progress = lambda line: say(progress, line, style="dim")  # noqa: E731
    for line in undeclared_code(space.trainer) if isinstance(space, TrainerSpace) else ():
        say(progress, line, style="dim")
    with moved, existing_store(store) as opened:
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
    rung: RungOption = None,
    longer: LongerOption = None,
    store: StoreOption = DEFAULT_STORE,
    json_: JsonOption = False,
    **options: Any,
) -> int:
    """Train what a space asks for and answer its question.

    Run it again to continue where it stopped: finished trials are in the store and are not trained again. With --json
    the progress goes to stderr and the last line of stdout is an object. Exit codes: 0 fine, 2 invalid space or
    options, 3 some trials failed, 130 interrupted.
    """
    _check_store(store)
    space = changed_by(load_space(file, options["plugins"], data), seeds, design, rung, longer)
    return _train(space, store, options, json_=json_)


@with_run_options
def resume(
    study: StudyArgument,
    data: MovedDataOption = None,
    seeds: SeedsOption = None,
    design: DesignOption = None,
    rung: RungOption = None,
    longer: LongerOption = None,
    store: StoreOption = DEFAULT_STORE,
    json_: JsonOption = False,
    **options: Any,
) -> int:
    """Continue a study with the space that the store keeps: train what is missing, or more seeds, and answer.

    It needs no space file. If the data has moved, --data says where it is; it must have the content that the stored
    trials saw. Exit codes as of `study`.
    """
    _check_store(store)
    space = load_stored(study, store, options["plugins"])
    with data_of_study(study, space, data, store, options["cache"]):
        return _train(changed_by(space, seeds, design, rung, longer), store, options, json_=json_)


def _check_store(store: str) -> None:
    from ablate.store.database import in_memory

    if in_memory(store):
        remedy = "Name a file with --store, or leave it out."
        raise StoreError("a store in memory is gone when the command ends", where=f"--store {store}", remedy=remedy)


def _train(space: SpaceSpec, store: str, options: dict[str, Any], *, json_: bool) -> int:
    """Train what a space asks for, and print its answer."""
    from ablate.analysis.answer import answer_of
    from ablate.api import run
    from ablate.render.answer import print_answer
    from ablate.render.terminal.live import Display

    console, plugins = make_console(stderr=json_), [*(options["plugins"] or ()), *space.plugins]
    with Display(console) as display:
        result = run(space, store=store, observer=display, **options).result
    assert result is not None, "a study that was run says how that ended"
    if json_:
        counts = {key: value for key, value in asdict(result).items() if key != "interrupted"}
        report = read(store, result.study)
        verdicts = {row.name: row.verdict.word for row in report.variants if row.verdict is not None}
        ended = {"interrupted": result.interrupted, "seconds": round(result.seconds, 3)}
        headline = list(answer_of(report).headline)
        print_json(counts | ended | {"verdicts": verdicts, "headline": headline}, indent=None)
    elif not result.interrupted:
        console.print()
        answer = answer_of(read(store, result.study))
        print_answer(answer, console, store=store_flag(store), plugins=[f"--plugin={name}" for name in plugins])
    _print_ending(result, console)
    return INTERRUPTED if result.interrupted else FAILED if result.failed else 0


def _print_ending(result: StudyResult, console: Console) -> None:
    """The command that continues, while something is left to do."""
    from ablate.analysis.numbers import plural

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
    from ablate.analysis.status import status_of
    from ablate.render.terminal.studies import print_status, status_json
    from ablate.store.records import Activity

    with existing_store(store) as opened:
        nothing = Activity(datetime.now(UTC), (), ())
        running = status_of(nothing if opened is None else opened.activity())
    if json_:
        print_json(status_json(running))
    else:
        print_status(running, make_console())


def list_(store: StoreOption = DEFAULT_STORE, json_: JsonOption = False) -> None:
    """List the studies of the store."""
    from ablate.render.terminal.studies import studies_json, studies_table

    with existing_store(store) as opened:
        studies = [] if opened is None else opened.studies()
    console = make_console()
    if json_:
        print_json(studies_json(studies))
    elif studies:
        console.print(studies_table(studies, console))
    else:
        steps = {
            command("study", "simplify_block", *store_flag(store)): "a ready study, a few minutes",
            command("new", "my_question"): "a space of your own",
        }
        print_next_steps(console, f"No study yet in {hide_passwords(store)}. Type one of:", steps)


def rename(
    study: StudyArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new name.")],
    store: StoreOption = DEFAULT_STORE,
    json_: JsonOption = False,
) -> None:
    """Give a study another name. Its trials, claims and marks stay; a space file keeps the old name.

    `ablate study` with that file starts a study of the old name, which shares the trials.
    """
    from ablate.execution.checkpoint import checkpoints_folder
    from ablate.spec.annotations import STUDY_NAME
    from ablate.store import open_store

    if not STUDY_NAME.fits(name):
        raise ArgumentError(f"this is not a name for a study: {STUDY_NAME.rule}", where=name)
    with open_store(store, create=False) as opened:
        opened.study(study)  # says which studies there are
    with open_store(store) as opened, opened.lease(study), opened.lease(name):
        opened.rename_study(study, name)
        checkpoints = checkpoints_folder(opened.where)
        if (checkpoints / study).is_dir() and not (checkpoints / name).exists():
            (checkpoints / study).rename(checkpoints / name)
    if json_:
        print_json({"study": name, "before": study}, indent=None)
    else:
        say(make_console(), f"{study} is now {name}.")


def delete(
    study: StudyArgument,
    yes: YesOption = False,
    store: StoreOption = DEFAULT_STORE,
    json_: JsonOption = False,
) -> None:
    """Delete a study, and the trials that no other study uses, with their curves, weights and checkpoints.

    It says what goes, and asks. Deleted trials cannot be restored; the space file is not touched.
    """
    import shutil

    from ablate.analysis.numbers import plural
    from ablate.execution.checkpoint import checkpoints_folder, trainer_folders
    from ablate.store import open_store
    from ablate.trained.weights import held_by_other_stores, weights_file

    with open_store(store, create=False) as opened:
        own, shared = opened.own_trials(study)
        where = opened.where
    weights = {key: file for key in own if (file := Path(weights_file(key, where))).exists()}
    elsewhere = held_by_other_stores(weights, where)
    weights = {key: file for key, file in weights.items() if key not in elsewhere}
    goes = [plural(len(own), "trial"), *([f"saved weights of {len(weights)}"] if weights else [])]
    stays = f" {plural(shared, 'trial')} that other studies use will stay." if shared else ""
    if elsewhere:
        stays += f" Weights of {plural(len(elsewhere), 'trial')} that another store of this folder has will stay."
    told = f"this deletes {study} from {where}, with {' and '.join(goes)}.{stays}"
    if not yes:
        if json_ or not sys.stdin.isatty():
            remedy = f"Write `{command('delete', study, '--yes', *store_flag(store))}`."
            raise ArgumentError(told.removesuffix("."), where="ablate delete", expected="--yes", remedy=remedy)
        say(make_console(), told[0].upper() + told[1:])
        if not typer.confirm("Go on?"):
            raise typer.Exit(INTERRUPTED)
    with open_store(store) as opened, opened.lease(study):
        removed = opened.delete_study(study)
    for key in removed:
        trainer_folders(where, key).remove_checkpoint()
        if key not in elsewhere:
            Path(weights_file(key, where)).unlink(missing_ok=True)
    shutil.rmtree(checkpoints_folder(where) / study, ignore_errors=True)
    if json_:
        print_json({"deleted": study, "trials": len(removed), "kept": shared}, indent=None)
    else:
        say(make_console(), f"Deleted {study} and {plural(len(removed), 'trial')}.")


def export_study(
    study: StudyArgument,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The new file.", show_default="STUDY.study.zip")
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    json_: JsonOption = False,
) -> None:
    """Write a study with its trials, curves and recordings to one file, which `import-study` reads into another store.

    Trials that still run are written as planned. Saved weights are not in the file.
    """
    from ablate.analysis.numbers import plural
    from ablate.store import open_store

    file = out or Path(f"{study}.study.zip")
    with open_store(store, create=False) as opened:
        rows = opened.export_study(study, file)
    if json_:
        print_json({"study": study, "file": str(file), "trials": rows["trials"]}, indent=None)
    else:
        say(make_console(), f"Wrote {study} with {plural(rows['trials'], 'trial')} to {file}.")


def import_study(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of `export-study`.")],
    store: StoreOption = DEFAULT_STORE,
    json_: JsonOption = False,
) -> None:
    """Add the study of a file to a store, whole or not at all; its trials count as if they had been trained here.

    A damaged file is refused, and one that contradicts the store: another study of this name, or other results of the
    same trial.
    """
    from ablate.analysis.numbers import plural
    from ablate.store import open_store

    _check_store(store)
    with open_store(store) as opened:
        study, new, known = opened.import_study(file)
    if json_:
        print_json({"study": study, "trials": new, "known": known}, indent=None)
        return
    also = f"; {plural(known, 'trial')} were here already" if known else ""
    say(make_console(), f"Added {study} with {plural(new, 'trial')}{also}.")
    print_next_steps(make_console(), "\nSee the answer:", {command("show", study, *store_flag(store)): ""})


def check_store(
    store: StoreOption = DEFAULT_STORE,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write all readable rows to this new store."),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Check that every row of a store can be read; with --out, save what can be read to a new store.

    The store itself is not changed. Exit codes: 0 it is whole, 2 it is damaged.
    """
    from ablate.store.check import check_store as check

    damage = check(store, out)
    console = make_console()
    if json_:
        print_json(asdict(damage), indent=None)
    else:
        for table in damage.tables:
            reached = "" if table.complete else ", and some cannot be reached"
            say(console, f"{table.name}: {table.whole:,} rows can be read, {table.damaged:,} cannot{reached}")
        for finding in damage.findings:
            say(console, finding)
    if out is not None:
        say(make_console(stderr=True), f"Wrote what can be read to {out}")
    if damage.findings:
        remedy = None if out else "`ablate check-store --out FILE` saves what can be read to a new store."
        raise StoreError("the database file is damaged", where=damage.where, remedy=remedy)
