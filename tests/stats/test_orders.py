"""Seeds count in the order of their numbers, wherever they begin and however they were stored.

A set of 6 to 9 iterates as 8, 9, 6, 7, and one of 28 to 35 begins with 32: small seeds alone hide a missing `sorted`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from ablate.stats import (
    Allowance,
    SeedSchedule,
    judge,
    need_more_seeds,
    paired_difference,
    tails_at_looks,
)
from ablate.stats.hidden_noise import regret_bound, tuning_noise
from ablate.stats.trend import bends, movements, slopes, steps

BySeed = Mapping[int, float]
SCHEDULE, RULE = SeedSchedule(3, 20), {"margin": 0.05, "direction": "minimize"}


def verdict(schedule: SeedSchedule | None) -> Callable[[BySeed, BySeed], object]:
    def of(variant: BySeed, baseline: BySeed) -> object:
        tails = tails_at_looks([(_gap(variant, baseline), ())] * 5, SCHEDULE)
        allowance = Allowance(tails_at=tails)
        return judge(variant, baseline, schedule=schedule, allowance=allowance, **RULE)  # type: ignore[arg-type]

    return of


def _gap(variant: BySeed, baseline: BySeed) -> dict[int, float]:
    return {seed: variant[seed] - baseline[seed] for seed in variant if seed in baseline}


FUNCTIONS: dict[str, Callable[[BySeed, BySeed], Any]] = {
    "paired_difference": paired_difference,
    "judge": verdict(None),
    "judge at looks": verdict(SCHEDULE),
    "need_more_seeds": lambda variant, baseline: need_more_seeds(
        {"z": variant, "a": {seed: value + 0.03 for seed, value in variant.items()}},
        baseline,
        schedule=SCHEDULE,
        **RULE,
    ),  # type: ignore[arg-type]
    "tails_at_looks": lambda variant, baseline: tails_at_looks([(_gap(variant, baseline), ())] * 5, SCHEDULE),
    "slopes": lambda variant, baseline: list(slopes({1: variant, 2: baseline}).values()),
    "steps": lambda variant, baseline: [list(one.values()) for one in steps({1: variant, 2: baseline})],
    "bends": lambda variant, baseline: bends({1: variant, 2: baseline, 4: variant}),
    "movements": lambda variant, baseline: movements(
        [float(step) for step in range(9)], {seed: [variant[seed] * step for step in range(9)] for seed in variant}
    ),
    "tuning_noise": lambda variant, baseline: tuning_noise([[variant, baseline]]),
    "regret_bound": lambda variant, baseline: regret_bound([variant, baseline], 0, 0.1, 3),
}


@pytest.mark.parametrize(("first", "count"), [(6, 4), (28, 8), (60, 12)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_renumbered_seeds_give_the_same(name: str, first: int, count: int) -> None:
    rng, chance = np.random.default_rng(count), random.Random(0)
    told = set()
    for _ in range(12):
        baseline = rng.normal(3.0, 0.1, count)
        variant = baseline + rng.uniform(-0.1, 0.2) + rng.gamma(0.4, 0.1, count)
        results = []
        for start in (0, first):
            order = [*range(count)]
            chance.shuffle(order)
            sides = [{start + place: float(side[place]) for place in order} for side in (variant, baseline)]
            results.append(FUNCTIONS[name](*sides))
        assert results[0] == results[1]
        told.add(str(results[0]))
    assert len(told) > 1, "not all studies are alike"
