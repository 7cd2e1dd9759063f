"""Prints what `validate` checked of a space and what `plan` forecasts for it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ablate.analysis.numbers import duration, listed, plural, scaled
from ablate.planning.forecast import Estimate, further_seconds
from ablate.planning.other_machine import MachineForecast
from ablate.planning.plan import ChangedKind, CheckedPoints, Plan, Trial, Variant, without_effect
from ablate.render.table import in_lines
from ablate.roles import TrialRole
from ablate.spec.design import SeedsSpec
from ablate.spec.paths import value_at
from ablate.spec.space import SpaceSpec
from ablate.trained.transfer import Transfer

if TYPE_CHECKING:
    from ablate.render.terminal.outputs import OtherMachineOutput, PlannedOutput, StartOutput, ValidSpaceOutput


def starts(made: Mapping[str, Transfer]) -> Iterable[str]:
    """What variants take from trained weights, a line for all that take the same."""
    names: dict[str, list[str]] = {}
    for name, one in made.items():
        names.setdefault(one.sentence(), []).append(name)
    for sentence, alike in names.items():
        yield f"{listed(alike)}: {sentence}."


def start_json(made: Transfer) -> StartOutput:
    """What a variant takes from trained weights as plain data."""
    return {"source": made.where, "copied": made.copied, "new": made.new, "unused": made.unused}


def validate_json(space: SpaceSpec, seen: CheckedPoints) -> ValidSpaceOutput:
    """What is known as plain data."""
    return {
        "space": space.name,
        "valid": True,
        "points": seen.points,
        "further": seen.further,
        "invalid": [{"name": name, "reason": reason} for name, reason in seen.reasons.items()],
        "same_as": dict(seen.same_as),
        "without_effect": list(seen.without_effect),
        "doubts": list(seen.warnings),
        "starts": {name: start_json(made) for name, made in seen.starts.items()},
        "missing": seen.missing,
    }


def lines(file: str, space: SpaceSpec, seen: CheckedPoints) -> Iterable[str]:
    """What is known, a line each."""
    points = plural(seen.points, "point") + (f" {seen.further}" if seen.further else "")
    yield f"{file} is a valid space: {points}, each with {_seeds(space.design.seeds)}{_fair(space)}."
    yield from left_out(seen.reasons.values())
    yield from seen.without_effect
    yield from starts(seen.starts)
    yield from seen.warnings
    if seen.missing:
        yield f"Its data is missing: {seen.missing}"


def left_out(reasons: Iterable[str]) -> Iterable[str]:
    """How many points are invalid, and why, the most frequent reason first."""
    counts = Counter(reasons)
    if counts:
        yield f"{plural(counts.total(), 'point')} left out as invalid:"
        yield from (f"  {times} x {reason}" for reason, times in counts.most_common())


def _seeds(seeds: int | SeedsSpec) -> str:
    return plural(seeds, "seed") if isinstance(seeds, int) else f"{seeds.start} to {seeds.max} seeds"


def _fair(space: SpaceSpec) -> str:
    tuned = "" if space.tune is None else f", tuned over {len(list(space.tune.combinations()))} values first"
    return f"{tuned}{'' if space.match.path is None else f', at equal {space.match.equal}'}"


_GIB = 2**30
_MOST_UNFIT = 10
_MOST_ROWS = 200
"""Largest number of variants that are listed one by one."""


def _flops(variant: Variant) -> float | None:
    """The arithmetic of one of its trials; None of the user's trainer, whose model ablate does not know."""
    return variant.flops if variant.spec.builds_model else None


def plan_json(
    plan: Plan,
    forecast: Estimate,
    on_machine: MachineForecast | None = None,
    changed: Sequence[ChangedKind] = (),
) -> PlannedOutput:
    """The plan as plain data; with another machine, what the plan needs there; with the kinds whose code changed."""
    planned: PlannedOutput = {
        "study": plan.space.name,
        "variants": [
            {
                "name": variant.name,
                "hash": variant.hash,
                "settings": dict(variant.settings),
                "parameters": variant.cost.parameters if variant.spec.builds_model else None,
                "flops": _flops(variant),
                "steps": variant.spec.training.steps,
                "width": variant.spec.model.width if variant.spec.builds_model else None,
                "frozen": variant.frozen,
                "start": None if variant.transfer is None else start_json(variant.transfer),
            }
            for variant in plan.variants
        ],
        "trials": [
            {
                "key": trial.key,
                "variant": trial.variant.name,
                "seed": trial.seed,
                "flops": _flops(trial.variant),
                "seconds": _round(forecast.seconds(trial)),
                "done": trial.key in forecast.done,
            }
            for trial in plan.trials
        ],
        "scouts": [
            {"name": variant.name, "hash": variant.hash, "flops": _flops(variant), "steps": variant.spec.training.steps}
            for variant in plan.scouts
        ],
        "later": [
            {
                "variant": trial.variant.name,
                "seed": trial.seed,
                "flops": _flops(trial.variant),
                "seconds": _round(forecast.seconds(trial)),
            }
            for trial in plan.later
        ],
        "invalid": [{"name": invalid.point.name, "reason": invalid.reason} for invalid in plan.invalid],
        "same_as": dict(plan.aliases),
        "without_effect": list(without_effect(plan.aliases, len(plan.variants), plan.same_because)),
        "warnings": list(plan.warnings),
        "doubts": list(plan.space.warnings()),
        "changed_code": [
            {"kind": one.change.kind, "what": one.change.what, "trials": one.trials, "accepted": one.accepted}
            for one in changed
        ],
        "seconds": _round(forecast.total(plan)),
        "basis": forecast.basis,
        "further_trials": plan.further,
    }
    if on_machine is not None:
        planned["machine"] = _machine_json(plan, on_machine)
    return planned


def _round(seconds: float) -> float | None:
    return round(seconds, 3) if math.isfinite(seconds) else None


def _machine_json(plan: Plan, forecast: MachineForecast) -> OtherMachineOutput:
    machine = forecast.machine
    return {
        "device": machine.device.name,
        "count": machine.count,
        "devices_of_a_trial": machine.each,
        "hours": round(forecast.total(plan) / 3600, 4),
        "device_hours": round(forecast.device_seconds(plan) / 3600, 4),
        "memory_bytes": machine.device.memory if math.isfinite(machine.device.memory) else None,
        "variants": [
            {
                "name": variant.name,
                "hours": round(machine.seconds(variant) / 3600, 4),
                "efficiency": machine.share(variant.spec.training),
                "memory_bytes": machine.needed(variant),
                "fits": machine.fits(variant),
                "micro_batch": None if (smaller := machine.smaller(variant)) is None else smaller.micro_batch,
            }
            for variant in plan.variants
        ],
    }


def print_plan(
    plan: Plan,
    forecast: Estimate,
    console: Console,
    on_machine: MachineForecast | None = None,
    changed: Sequence[ChangedKind] = (),
) -> None:
    """Print a row for each variant with its trials, then the excluded points, then the totals.

    Args:
        forecast: How long it takes.
        console: Where to print.
        on_machine: The same forecast if it is of another machine.
        changed: Kinds of which the store holds trials of another version.
    """
    console.print(Text(plan.space.question, style="bold"))
    console.print()
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("variant", overflow="fold")
    solved = plan.space.match.path
    models = bool(plan.built)
    titles = [
        *(["parameters"] if models else []),
        *([solved.rpartition(".")[2]] if solved else []),
        *(["FLOP/trial"] if models else []),
        "seeds",
        "done",
        "time/trial",
        *(["GiB"] if on_machine is not None else []),
    ]
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    room = console.width - sum(len(title) + 2 for title in titles)  # numbers are hardly longer than their titles
    by_variant: dict[str, list[Trial]] = {}
    for trial in (trial for trial in (*plan.trials, *plan.later) if not trial.role.scouts):
        by_variant.setdefault(trial.variant.hash, []).append(trial)
    for variant in plan.variants[:_MOST_ROWS]:
        trials = by_variant.get(variant.hash, [])
        table.add_row(
            Text(in_lines(variant.name, room)),
            *([f"{variant.cost.parameters:,}"] if models else []),
            *([f"{value_at(variant.spec.model_dump(mode='json'), solved):,.5g}"] if solved else []),
            *([scaled(variant.flops).replace(" ", " ")] if models else []),
            _seed_list([trial.seed for trial in trials]),
            str(sum(trial.key in forecast.done for trial in trials)),
            duration(forecast.seconds(trials[0])) if trials and math.isfinite(forecast.seconds(trials[0])) else "-",
            *([f"{on_machine.machine.needed(variant) / _GIB:.1f}"] if on_machine is not None else []),
        )
    console.print(table)
    if len(plan.variants) > _MOST_ROWS:
        _print(console, f"and {len(plan.variants) - _MOST_ROWS:,} variants more; --json lists them all.")
    console.print()
    warnings = (
        *(f"{one.sentence}." for one in changed),
        *without_effect(plan.aliases, len(plan.variants), plan.same_because),
        *plan.warnings,
        *left_out(invalid.reason for invalid in plan.invalid),
        *starts({variant.name: variant.transfer for variant in plan.variants if variant.transfer is not None}),
        *plan.space.warnings(),
    )
    for line in warnings:
        _print(console, line)
    left = sum(trial.key not in forecast.done for trial in (*plan.trials, *plan.later))
    if plan.scouts:
        before = [trial for trial in (*plan.trials, *plan.later) if trial.role.scouts]
        _print(
            console,
            f"{plural(len(before), 'trial')} of {plural(len(plan.scouts), 'variant')} {_purposes(before)} these first "
            f"({scaled(sum(trial.variant.flops for trial in before))}FLOP); what follows is an estimate.",
        )
    _print(
        console,
        f"{plural(len(plan.trials) + len(plan.later), 'trial')}, {left} of them to train: "
        f"{_about(forecast.total(plan))} with {plural(forecast.workers, 'worker')} "
        f"({f'{scaled(plan.flops)}FLOP in all; ' if models else ''}estimated from {forecast.basis}); "
        + ("starting" if forecast.counts_evaluations else "evaluations and starting")
        + f" workers come{'s' * forecast.counts_evaluations} on top."
        if math.isfinite(forecast.total(plan))
        else f"{plural(len(plan.trials) + len(plan.later), 'trial')}, {left} of them to train, with "
        f"{plural(forecast.workers, 'worker')}; how long one takes is known when the first has ended.",
    )
    if said := further_trials(plan, forecast):
        _print(console, said)
    for line in _on_machine(plan, on_machine) if on_machine is not None else ():
        _print(console, line)


def further_trials(plan: Plan, forecast: Estimate) -> str:
    """A sentence on the trials that results may add to the planned ones; empty if they add none."""
    if plan.further is None:
        return "Results decide on further trials, which these numbers do not count."
    if not plan.further:
        return ""
    seconds = further_seconds(plan, forecast)
    time = f", {_about(seconds)} of training if they take as long as the planned ones" if math.isfinite(seconds) else ""
    return f"Results add at most {plural(plan.further, 'further trial')}{time}."


def _on_machine(plan: Plan, forecast: MachineForecast) -> Iterator[str]:
    """What the plan needs on another machine, and the variants that do not fit."""
    machine = forecast.machine
    device, hours = machine.device, forecast.device_seconds(plan) / 3600
    assumed = ", ".join(
        f"{machine.share(training):.3g} in {training.precision} ({machine.source(training)})"
        for training in {v.spec.training.precision: v.spec.training for v in plan.variants}.values()
    )
    usual = any(machine.source(variant.spec.training) == "which is usual" for variant in plan.variants)
    hint = "; --efficiency states another share, and --doctor takes a measured one" if usual else ""
    each = "" if machine.each == 1 else f", {machine.each:g} for each trial"
    yield (
        f"On {machine.count} x {device.name}{each}: {hours:,.1f} device-hours, at a share of the peak of {assumed}, "
        f"or at the speed of its memory if that is slower{hint}."
    )
    unfit = [variant for variant in plan.variants if not machine.fits(variant)]
    for variant in unfit[:_MOST_UNFIT]:
        smaller = machine.smaller(variant)
        needed = f"{variant.name} needs {machine.needed(variant) / _GIB:.1f} GiB of {device.memory / _GIB:g}"
        if smaller is None:
            yield f"{needed}: no micro-batch fits."
        else:
            also = ", `training.recompute: blocks`" if smaller.recompute != variant.spec.training.recompute else ""
            yield f"{needed}: set `training.micro_batch: {smaller.micro_batch}`{also}."
    if len(unfit) > _MOST_UNFIT:
        yield f"and {len(unfit) - _MOST_UNFIT} variants more do not fit; --json lists them."
    if not unfit and math.isfinite(device.memory):
        yield f"Every trial fits into its {device.memory / _GIB:g} GiB."


def _purposes(trials: Sequence[Trial]) -> str:
    roles = {trial.role for trial in trials}
    ends = {TrialRole.TUNING: "tune", TrialRole.TIMING: "time", TrialRole.STAGE: "give weights to"}
    return " or ".join(word for role, word in ends.items() if role in roles)


def _about(seconds: float) -> str:
    return duration(seconds) if seconds < 1 else f"about {duration(seconds)}"


def _print(console: Console, line: str) -> None:
    console.print(Text(line), soft_wrap=not console.is_terminal)  # a pipe gets whole lines


def _seed_list(seeds: list[int]) -> str:
    """`0-2` for 0, 1, 2; else one by one."""
    if len(seeds) > 1 and seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]}-{seeds[-1]}"
    return ",".join(map(str, seeds))
