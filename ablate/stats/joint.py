"""Several comparisons together: which verdicts hold jointly, which need another seed, which points are on a front.

Each verdict answers a question of its own, declared with its margin, with an error rate of 5 %. A sentence that joins
several ("a, b and c can be removed") is wrong if one of them is. So the verdicts of a study form three families: all
its comparisons with the baseline tested for `needed` (or `worse`), all tested for `not needed` (or `not worse`), and
all tested for `better`. In each family Holm's procedure determines which verdicts hold jointly: it bounds the
family-wise error rate by 5 %, whatever the truth and however the comparisons depend on one another (they share the
baseline's trials).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from ablate.stats.bounds import Allowance
from ablate.stats.hidden_noise import tails_at_looks
from ablate.stats.schedule import ERROR, SeedPlan
from ablate.stats.verdict import Direction, Verdict, judge

Name = TypeVar("Name", bound=Hashable)


def holm(p_values: Mapping[Name, float], family: int | None = None) -> dict[Name, float]:
    """Holm's adjusted p-values: reject where they lie below an error rate, and it holds for the family.

    Args:
        p_values: By the name of each comparison.
        family: How many comparisons there are, where some that cannot be rejected (p-value 1) are not among these.
    """
    size, least = len(p_values) if family is None else family, 0.0
    adjusted: dict[Name, float] = {}
    for rank, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        least = max(least, min(1.0, (size - rank) * p_values[name]))
        adjusted[name] = least
    return {name: adjusted[name] for name in p_values}


def hold_together(verdicts: Mapping[str, Verdict], error: float = ERROR) -> frozenset[str]:
    """Names of the decided verdicts that hold together, over all comparisons of a study.

    Comparisons that are undecided or diverged count as members of every family.
    """
    worse = holm({name: verdict.p_needed for name, verdict in verdicts.items()})
    acceptable = holm({name: verdict.p_not_needed for name, verdict in verdicts.items()})
    better = holm({name: verdict.p_better for name, verdict in verdicts.items()})

    def adjusted(name: str, verdict: Verdict) -> float:
        if verdict.word == "better":
            return better[name]
        return worse[name] if verdict.is_worse else acceptable[name] if verdict.is_acceptable else 1.0

    return frozenset(name for name, verdict in verdicts.items() if adjusted(name, verdict) <= error)


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


def dominators(points: Sequence[Sequence[float]], directions: Sequence[Direction]) -> list[list[int]]:
    """For each point the others that dominate it; none for a point on the front. Equal points do not dominate each
    other.

    Args:
        points: A row of finite numbers for each point, a column for each direction.
        directions: Whether a smaller or a larger number is better.
    """
    if not points:
        return []
    signs = np.array([1.0 if direction == "minimize" else -1.0 for direction in directions])
    costs = np.asarray(points, dtype=np.float64) * signs
    dominating = []
    for cost in costs:
        dominates = (costs <= cost).all(axis=1) & (costs < cost).any(axis=1)
        dominating.append([int(index) for index in np.flatnonzero(dominates)])
    return dominating
