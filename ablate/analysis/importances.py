"""How much of the spread of a study each switch and each numeric axis explains by itself, by fANOVA.

A trial that diverged counts as the worst value that a trial of the study finished with (`ablate.analysis.effects`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ablate.analysis.effects import counted_values, worst_value
from ablate.analysis.factors import Factors, crosses, factors_of, is_logarithmic, place
from ablate.analysis.runs import StudyReader, VariantRuns, read_runs
from ablate.analysis.scaling import at_own_length
from ablate.extras import require
from ablate.stats import Configuration, Factor, Importance, importances
from ablate.store.records import StudyRecord, VariantRecord

LEAST = 4
"""Minimum number of variants for importances."""


@dataclass(frozen=True, slots=True)
class StudyImportances:
    """The importances of a study.

    Attributes:
        factors: Of each switch and numeric axis, the most important first.
        rest: What no factor explains by itself: interactions and noise; between 0 and 1.
        variants: How many variants they rest on.
        seeds: How many seeds.
        diverged: How many trials diverged and counted as the worst value.
        pruned: How many trials were stopped early; they have no final value and are left out.
    """

    factors: tuple[Importance, ...]
    rest: float
    variants: int
    seeds: int
    diverged: int
    pruned: int


def read_importances(store: StudyReader, name: str) -> StudyImportances | None:
    """The importances of a study; None if it does not cross at least two things, or fewer than four variants ended.

    Takes about 2 s for 64 variants, 25 s for 1,000.

    Raises:
        NotFoundError: The store holds no such study.
        MissingPackageError: Optuna or scikit-learn is not installed.
    """
    record = store.study(name)
    return importances_of(record, read_runs(store, record, record.objective["metric"]))


def importances_of(record: StudyRecord, runs: Mapping[str, VariantRuns]) -> StudyImportances | None:
    """The same, of what was read already.

    Args:
        record: The study.
        runs: Variant name to its trials.

    Raises:
        MissingPackageError: Optuna or scikit-learn is not installed.
    """
    record = at_own_length(record)
    varying, worst = factors_of(record), worst_value(record, runs)
    factors = _factors(varying)
    if worst is None or len(factors) < 2:
        return None
    metric = record.objective["metric"]
    used, configurations, diverged = [], [], 0
    for variant in record.variants:
        places = _places(variant, varying)
        values = counted_values(runs[variant.name], metric, worst)
        if places is not None and values:
            used.append(variant)
            configurations.append(Configuration(places, values))
            diverged += len(runs[variant.name].diverged)
    if len(used) < LEAST or not crosses(used, varying.switches, list(varying.axes)):
        return None
    require("search", "the importance of a switch (fANOVA)")
    shares = importances(configurations, factors)
    if not shares:
        return None
    return StudyImportances(
        factors=tuple(sorted(shares, key=lambda one: -one.share)),
        rest=max(0.0, 1.0 - math.fsum(one.share for one in shares)),
        variants=len(configurations),
        seeds=len({seed for one in configurations for seed in one.values}),
        diverged=diverged,
        pruned=sum(len(run.pruned) for run in runs.values()),
    )


def _factors(varying: Factors) -> dict[str, Factor]:
    switches = {switch: Factor(settings=len(settings)) for switch, settings in varying.switches.items()}
    axes = {}
    for axis, values in varying.axes.items():
        low, high = (_scaled(value, values) for value in (values[0], values[-1]))
        axes[axis] = Factor(low=low, high=high)
    return switches | axes


def _places(variant: VariantRecord, varying: Factors) -> dict[str, float] | None:
    """The place of a variant on each factor; None if it is outside of a numeric axis."""
    places: dict[str, float] = {
        switch: settings.index(variant.settings[switch]) for switch, settings in varying.switches.items()
    }
    for axis, values in varying.axes.items():
        at = place(variant, axis)
        if at is None or not values[0] <= at <= values[-1]:
            return None
        places[axis] = _scaled(at, values)
    return places


def _scaled(value: float, values: tuple[float, ...]) -> float:
    return math.log(value) if is_logarithmic(values) else value
