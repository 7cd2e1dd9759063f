"""Which comparisons of a study need another seed, when seeds are added only where they may still decide something."""

from __future__ import annotations

from collections.abc import Mapping

from ablate.stats.bounds import Allowance
from ablate.stats.paired import paired_difference
from ablate.stats.schedule import SeedPlan
from ablate.stats.tails import tails_of
from ablate.stats.verdict import Direction, judge


def need_more_seeds(
    variants: Mapping[str, Mapping[int, float]],
    baseline: Mapping[int, float],
    *,
    margin: float,
    direction: Direction,
    schedule: SeedPlan,
    diverged: Mapping[str, Mapping[int, int | None]] | None = None,
) -> tuple[str, ...]:
    """Names of the variants that want another trial, in the order given.

    A variant wants one while its verdict is undecided and it has fewer pairs than `schedule.max`. One that is decided,
    or has diverged, never wants one again. The baseline wants a trial of a seed as soon as any variant does.

    Args:
        variants: Variant to seed to final metric, of the trials that finished; the baseline left out.
        baseline: Seed to final metric of the baseline.
        margin: How much worse matters, in the unit of the metric, above 0.
        direction: Whether a smaller or a larger metric is better.
        schedule: The looks.
        diverged: Variant to seed to step (None if unknown) of trials that diverged.

    Raises:
        ValueError: The margin is not above 0, or a metric is not finite.
    """
    sign, lost = 1.0 if direction == "minimize" else -1.0, diverged or {}
    differences = {name: paired_difference(values, baseline).values for name, values in variants.items()}
    # A decided comparison gets no further seeds, and a tail in another comparison does not reopen it.
    most = max(map(len, differences.values()), default=0)
    active = {name for name, pairs in differences.items() if len(pairs) == most and name not in lost}
    tails = tails_of([sign * one for one in pairs] for name, pairs in differences.items() if name in active)
    return tuple(
        name
        for name, values in variants.items()
        if len(values.keys() & baseline.keys()) < schedule.max
        and judge(
            values,
            baseline,
            margin=margin,
            direction=direction,
            diverged=lost.get(name),
            schedule=schedule,
            allowance=Allowance(tails=tails if name in active else None),
        ).word
        == "undecided"
    )
