"""Which comparisons of a study need another seed, when seeds are added only where they may still decide something."""

from __future__ import annotations

from collections.abc import Mapping

from ablate.stats.schedule import SeedSchedule
from ablate.stats.verdict import Direction, judge


def need_more_seeds(
    variants: Mapping[str, Mapping[int, float]],
    baseline: Mapping[int, float],
    *,
    margin: float,
    direction: Direction,
    schedule: SeedSchedule,
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
    return tuple(
        name
        for name, values in variants.items()
        if len(values.keys() & baseline.keys()) < schedule.max
        and judge(
            values,
            baseline,
            margin=margin,
            direction=direction,
            diverged=(diverged or {}).get(name),
            schedule=schedule,
        ).word
        == "undecided"
    )
