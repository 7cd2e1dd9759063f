"""Which comparisons of a study need another seed, when seeds are added only where they may still decide something."""

from __future__ import annotations

from collections.abc import Mapping

from ablate.stats.bounds import Allowance
from ablate.stats.schedule import SeedPlan
from ablate.stats.tails import tails_at_looks
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
    worse = {
        name: {seed: sign * (values[seed] - baseline[seed]) for seed in values.keys() & baseline.keys()}
        for name, values in variants.items()
    }
    tails = tails_at_looks(((worse[name], lost.get(name, ())) for name in variants), schedule)
    return tuple(
        name
        for name, values in variants.items()
        if len(worse[name]) < schedule.max
        and judge(
            values,
            baseline,
            margin=margin,
            direction=direction,
            diverged=lost.get(name),
            schedule=schedule,
            allowance=Allowance(tails_at=tails),
        ).word
        == "undecided"
    )
