"""`ablate plan`: every trial with its cost, before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ablate.cli.loading import load_space
from ablate.cli.options import (
    DEFAULT_STORE,
    CacheOption,
    DataOption,
    JsonOption,
    PluginOption,
    SpaceArgument,
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
PlannedWorkersOption = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Trials at once.", show_default="one for each core or device"),
]


def plan(
    file: SpaceArgument,
    data: DataOption = None,
    store: StoreOption = DEFAULT_STORE,
    cache: CacheOption = None,
    plugin: PluginOption = None,
    json_: JsonOption = False,
    on: OnOption = None,
    flops: FlopsOption = None,
    efficiency: EfficiencyOption = None,
    workers: PlannedWorkersOption = None,
) -> None:
    """List every trial of a space with its cost and an estimate of time; trains nothing.

    Points whose settings make no model are counted with their reasons. The data is prepared, once, as `study` does.
    With --on or --flops the time is that of another machine, and memory is compared with what that has.
    """
    from ablate.planning.elsewhere import MachineForecast
    from ablate.planning.forecast import forecast
    from ablate.planning.plan import Planner, make_plan
    from ablate.render.terminal.plan import plan_json, print_plan
    from ablate.tasks.cache import default_cache
    from ablate.trained.weights import weights_folder

    machine = _machine(on, flops, efficiency, workers)
    space = load_space(file, plugin, data)
    progress = make_console(stderr=True)
    show_progress = lambda line: say(progress, line, style="dim")  # noqa: E731
    made = make_plan(Planner(space, cache or default_cache(), show_progress, weights=weights_folder(store)))
    estimate = forecast(made, store, workers)
    elsewhere = None if machine is None else MachineForecast(estimate, machine)
    if json_:
        print_json(plan_json(made, elsewhere or estimate, elsewhere))
    else:
        print_plan(made, elsewhere or estimate, make_console(), elsewhere)


def _machine(on: str | None, flops: float | None, efficiency: float | None, workers: int | None) -> Machine | None:
    """The machine that the options name; None if they name none.

    Raises:
        EngineError: The device is not known, or a share of its peak is stated without a device.
    """
    from ablate.devices import find_device, stated_device, with_peak
    from ablate.planning.elsewhere import Machine

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
        return Machine(stated_device(flops), workers or 1, efficiency)
    device, count = find_device(on)
    return Machine(device if flops is None else with_peak(device, flops), workers or count, efficiency)
