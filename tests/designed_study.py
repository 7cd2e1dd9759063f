"""A study in memory, run by a real design over a landscape whose truth is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
from fake_store import FakeStore, fake_store

from ablate.analysis.runs import VariantRuns, read_runs
from ablate.designs.base import DesignContext, DesignSpec, Point, PointCost
from ablate.roles import TrialRole
from ablate.spec.design import DESIGNS
from ablate.store.records import DesignTraits, PlannedTrial, TrialState, VariantRecord

Landscape = Callable[[Mapping[str, str], Mapping[str, Any]], float | None]
"""Settings and values to the loss without noise; None where training diverges."""


def on_off(*names: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(names, ("on", "off"))


def kept_parameters(settings: Mapping[str, str]) -> int:
    """100, and for each switch that is on 10 times its place in the alphabet."""
    return 100 + sum(10 * (ord(name[0]) - 96) for name, setting in settings.items() if setting == "on")


def run(
    design: dict[str, Any],
    switches: Mapping[str, Sequence[str]],
    landscape: Landscape,
    *,
    noise: float = 0.0,
    draw: int = 0,
    margin: float = 0.1,
    variants: Mapping[str, Mapping[str, str]] | None = None,
    direction: str = "minimize",
    refusal: Callable[[Point], str | None] = lambda point: None,
    most: int = 10_000,
    plain: Mapping[str, float] | None = None,
) -> FakeStore:
    """Run at most so many trials; nothing is confirmed unless the design says so.

    `plain` are the numbers of the baseline by their paths, `{"model.heads": 4}`, of those that a design varies.

    Seeds shift all variants alike; noise is each trial's own.
    """
    kind: type[DesignSpec] = DESIGNS.members()[design["kind"]]  # type: ignore[assignment]
    spec = kind.model_validate({"confirm": 0, **design} if "confirm" in kind.model_fields else design)
    context = DesignContext(
        switches={name: tuple(settings) for name, settings in switches.items()},
        variants=variants or {},
        direction=direction,  # type: ignore[arg-type]
        margin=margin,
        refusal=refusal,
        cost=lambda point: PointCost(kept_parameters(point.settings), 1e6 * kept_parameters(point.settings)),
    )
    rng, found, planned = np.random.default_rng(draw), {}, []
    shifts = rng.normal(0, 1, 4000)
    made = fake_store({"baseline": ({}, 0)}, direction=direction, margin=margin)
    asked = spec.build(context)
    declared = {point.name for point in asked.points()}
    while (proposals := asked.ask()) and len(planned) < most:
        for proposal in proposals:
            point, seed = proposal.point, proposal.seed
            settings = {**point.settings, **{path: str(value) for path, value in point.values.items()}}
            parameters, chosen = kept_parameters(point.settings), point.name not in declared
            found.setdefault(
                point.name,
                VariantRecord(
                    point.name,
                    f"hash {point.name}",
                    settings,
                    _nested({**(plain or {}), **point.values}),
                    parameters,
                    8,
                    chosen,
                ),
            )
            planned.append(PlannedTrial(f"{point.name}/{seed}", point.name, seed, point.role))
            if len(planned) > most:
                continue
            truth = landscape(point.settings, point.values)
            value = None if truth is None else truth + float(shifts[seed]) + float(rng.normal(0, noise))
            state = TrialState.DIVERGED if value is None else TrialState.FINISHED
            flops = 1e6 * kept_parameters(point.settings)
            made.add(point.name, seed, {"val_loss": value} if value is not None else {}, state=state, flops=flops)
            asked.tell(point, seed, value)
    space = {"switches": {name: {one: {} for one in settings} for name, settings in switches.items()}}
    made.record = replace(
        made.record,
        variants=tuple(found.values()),
        planned=tuple(one for one in planned if one.role is TrialRole.COMPARISON),
        confirm_trials=tuple(one for one in planned if one.role is TrialRole.CONFIRMATION),
        baseline=next(iter(found)),
        space=space | {"design": spec.model_dump(mode="json")},
        traits=DesignTraits(spec.chooses, spec.adds_seeds, spec.plans_points, bool(spec.paths()), spec.finds_best),
    )
    return made


def runs_of(made: FakeStore) -> dict[str, VariantRuns]:
    return read_runs(made, made.record, "val_loss")


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    for path, value in values.items():
        *parts, last = path.split(".")
        reduce(lambda inner, part: inner.setdefault(part, {}), parts, spec)[last] = value
    return spec
