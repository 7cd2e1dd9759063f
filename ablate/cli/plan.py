"""`ablate plan`: every trial with its cost, before anything runs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablate.cli.loading import existing_store, load_asked
from ablate.cli.options import (
    DEFAULT_STORE,
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
)
from ablate.errors import EngineError
from ablate.render.terminal.console import make_console, print_json, say

if TYPE_CHECKING:
    from ablate.planning.elsewhere import Machine

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
    from ablate.planning.elsewhere import MachineForecast
    from ablate.planning.forecast import Estimate, forecast, settled_trials
    from ablate.planning.plan import make_plan
    from ablate.planning.planner import Planner
    from ablate.render.terminal.plan import plan_json, print_plan
    from ablate.trained.weights import weights_folder

    space = load_asked(file, store, plugin, data, seeds, design, stored=stored)
    gpus = space.resources.gpus
    machine = _machine(on, flops, efficiency, doctor, workers, gpus or 1.0)
    if machine is not None:
        machine = replace(machine, shard=space.resources.shard)
        _ = machine.at_once  # refuses fewer devices than a trial asks for
    chosen = choose_device("cpu" if machine is not None or (device == "auto" and gpus == 0) else device)
    progress = make_console(stderr=True)
    show_progress = lambda line: say(progress, line, style="dim")  # noqa: E731
    with existing_store(store) as opened:
        earlier = EarlierTrials(opened, accept=accept_changed_code)
        planner = Planner(space, cache or cache_folder(), show_progress, weights=weights_folder(store), earlier=earlier)
        made = make_plan(planner)
        changed = earlier.changed(made.trials)
    elsewhere: MachineForecast | None = None
    estimate: Estimate
    if machine is None:
        estimate = forecast(made, store, workers, device=chosen, tasks=planner.prepare)
    else:
        estimate = elsewhere = MachineForecast(frozenset(trial.key for trial in settled_trials(made, store)), machine)
    if json_:
        print_json(plan_json(made, estimate, elsewhere, changed))
    else:
        print_plan(made, estimate, make_console(), elsewhere, changed)


def _machine(
    on: str | None, flops: float | None, efficiency: float | None, doctor: Path | None, workers: int | None, each: float
) -> Machine | None:
    """The machine that the options name; None if they name none.

    Raises:
        EngineError: The device is not known, a share of its peak is stated without a device, or options contradict.
    """
    from ablate.devices import find_device, stated_device, with_peak
    from ablate.planning.elsewhere import Machine
    from ablate.planning.examined import read_doctor

    if doctor is not None and (efficiency is not None or flops is not None):
        raise EngineError(
            "the file says what this machine has reached",
            where="--doctor",
            remedy=f"Leave out {'--efficiency' if efficiency is not None else '--flops'}, or --doctor.",
        )
    examined = None if doctor is None else read_doctor(doctor)
    if examined is not None and on is None:
        count = max(examined.count, int(each * (workers or 1)))
        return Machine(examined.device, count, each=each, measured=examined.shares)
    if on is None and flops is None:
        if efficiency is not None:
            raise EngineError(
                "this is a share of the peak of a device, and none is named",
                where="--efficiency",
                remedy="Name one with --on, or state its peak with --flops.",
            )
        return None
    if on is None:
        assert flops is not None, "one of them is given"
        return Machine(stated_device(flops), max(1, math.ceil((workers or 1) * each)), efficiency, each)
    if examined is not None and not examined.known:
        raise EngineError(
            "the machine of this file has no device of the table, so a share of its peak is not known",
            where=f"--doctor {doctor}",
            remedy="Leave out --on to plan for that machine, or state a share with --efficiency.",
        )
    device, count = find_device(on)
    if workers is not None:
        count = max(1, math.ceil(workers * each))
    shares = {} if examined is None else examined.shares
    return Machine(device if flops is None else with_peak(device, flops), count, efficiency, each, shares)
