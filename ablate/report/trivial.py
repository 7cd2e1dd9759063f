"""The best trivial baseline of a study: what its objective's metric is without learning, and which models beat it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ablate.report.text import listed, plural
from ablate.stats import Direction, SeedPlan, bounds, summarise
from ablate.stats.bounds import LEAST_PAIRS
from ablate.stats.verdict import at_least


@dataclass(frozen=True, slots=True)
class TrivialBaseline:
    """A rule that learns nothing, such as always the most frequent label.

    Attributes:
        name: What the task calls it.
        metric: The objective's.
        value: Of the metric.
    """

    name: str
    metric: str
    value: float


def best_trivial(
    trivial: Mapping[str, Mapping[str, float]], metric: str, direction: Direction
) -> TrivialBaseline | None:
    """The best of the trivial baselines that have the metric; None if none has (or an older ablate stored none)."""
    found = [TrivialBaseline(name, metric, metrics[metric]) for name, metrics in trivial.items() if metric in metrics]
    if not found:
        return None
    best = min if direction == "minimize" else max
    return best(found, key=lambda baseline: baseline.value)


@dataclass(frozen=True, slots=True)
class Standing:
    """How one variant stands to the best trivial baseline.

    Attributes:
        name: Of the variant.
        mean: Of the objective's metric over its seeds.
        ahead: By how much it is surely better, with 95 % confidence; None where it is not, or where nothing is sure.
        seeds: Over how many seeds.
    """

    name: str
    mean: float
    ahead: float | None
    seeds: int


def standing_of(
    name: str, values: Sequence[float], best: TrivialBaseline, direction: Direction, schedule: SeedPlan | None
) -> Standing | None:
    """How a variant with these values, one for each seed, stands to a trivial baseline; None without values.

    It is held against the one-sided 95 % bound of its mean. Values that are all the same have no bound; there the value
    itself counts, as an accuracy of 1 at every seed is no accident.
    """
    if not values:
        return None
    gains = [best.value - value if direction == "minimize" else value - best.value for value in values]
    mean = math.fsum(values) / len(values)
    lows = [bound.low for bound in bounds(gains, schedule)]
    if not lows and len(gains) >= LEAST_PAIRS and summarise(gains).is_flat:
        lows = [min(gains)]
    ahead = max(lows, default=0.0)
    return Standing(name, mean, ahead if ahead > 0 else None, len(values))


def trivial_caveats(standings: Sequence[Standing], best: TrivialBaseline) -> Iterator[str]:
    """A sentence if some variants do not surely beat the best trivial baseline."""
    behind = [one for one in standings if one.ahead is None]
    if not behind:
        return
    shown = [f"{one.name} ({one.mean:.4g}{', one seed' if one.seeds == 1 else ''})" for one in behind]
    which = "the only model" if len(standings) == 1 else f"{len(behind)} of {len(standings)} models"
    do = "does" if len(behind) == 1 else "do"
    yield (
        f"{which[0].upper()}{which[1:]} {do} not surely beat the best trivial baseline, {best.name} ({best.metric} "
        f"{best.value:.4g}): {listed(shown)}. Where models have learnt so little, differences between them say little."
    )


def trivial_sentences(standings: Sequence[Standing], best: TrivialBaseline) -> Iterator[str]:
    """By how much the variants beat the best trivial baseline, those that do."""
    ahead = [one.ahead for one in standings if one.ahead is not None]
    if not ahead:
        return
    if len(ahead) < len(standings):
        who = f"The other {plural(len(ahead), 'model')} {'beats' if len(ahead) == 1 else 'beat'} {best.name}"
    else:
        models = "The model beats" if len(ahead) == 1 else f"All {len(ahead)} models beat"
        who = f"{models} the best trivial baseline, {best.name} ({best.metric} {best.value:.4g}),"
    each = "" if len(ahead) == 1 else " for each"
    yield f"{who} by at least {at_least(min(ahead))} (one-sided 95 % bound{each})."
