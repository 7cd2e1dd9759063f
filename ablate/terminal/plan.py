"""`ablate plan`: every trial with its cost and an estimate of time, and what is left out."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ablate.engine.forecast import Forecast
from ablate.engine.plan import Plan
from ablate.terminal.units import duration, scaled


def plan_json(plan: Plan, forecast: Forecast) -> dict[str, Any]:
    """The plan as plain data."""
    return {
        "study": plan.space.name,
        "variants": [
            {
                "name": variant.name,
                "hash": variant.hash,
                "settings": dict(variant.settings),
                "parameters": variant.cost.parameters,
                "flops": variant.flops,
            }
            for variant in plan.variants
        ],
        "trials": [
            {
                "key": trial.key,
                "variant": trial.variant.name,
                "seed": trial.seed,
                "flops": trial.variant.flops,
                "seconds": round(forecast.seconds(trial), 3),
                "done": trial.key in forecast.done,
            }
            for trial in plan.trials
        ],
        "invalid": [{"name": invalid.point.name, "reason": invalid.reason} for invalid in plan.invalid],
        "same_as": dict(plan.aliases),
        "seconds": round(forecast.total(plan), 3),
        "basis": forecast.basis,
    }


def print_plan(plan: Plan, forecast: Forecast, console: Console) -> None:
    """Print a row for each variant with its trials, then what is left out, then the sum."""
    console.print(Text(plan.space.question, style="bold"))
    console.print()
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("variant", no_wrap=True)
    for title in ("parameters", "FLOP a trial", "seeds", "done", "time a trial"):
        table.add_column(title, justify="right", no_wrap=True)
    for variant in plan.variants:
        trials = [trial for trial in plan.trials if trial.variant is variant]
        table.add_row(
            Text(variant.name),
            f"{variant.cost.parameters:,}",
            scaled(variant.flops).replace(" ", " "),
            _seeds([trial.seed for trial in trials]),
            str(sum(trial.key in forecast.done for trial in trials)),
            duration(forecast.seconds(trials[0])) if trials else "-",
        )
    console.print(table)
    console.print()
    for name, same in plan.aliases.items():
        console.print(Text(f"{name} is the same variant as {same} and is trained once."))
    if plan.invalid:
        console.print(Text(f"{len(plan.invalid)} points make no model and are left out:"))
        for reason, times in Counter(invalid.reason for invalid in plan.invalid).most_common():
            console.print(Text(f"  {times} x {reason}"))
    left = sum(trial.key not in forecast.done for trial in plan.trials)
    console.print(
        Text(
            f"{len(plan.trials)} trials, {left} of them to train: about {duration(forecast.total(plan))} with "
            f"{forecast.workers} workers ({scaled(plan.flops)}FLOP in all; estimated from {forecast.basis})."
        )
    )


def _seeds(seeds: list[int]) -> str:
    return f"{seeds[0]}-{seeds[-1]}" if len(seeds) > 1 and seeds == list(range(seeds[0], seeds[-1] + 1)) else ",".join(
        map(str, seeds)
    )
