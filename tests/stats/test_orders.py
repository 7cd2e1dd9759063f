"""Seeds count in the order of their numbers; bounds in words stay true."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from fake_store import fake_store
from hypothesis import assume, given
from hypothesis import strategies as st

from ablate.analysis import read_study
from ablate.stats import (
    Allowance,
    SeedSchedule,
    judge,
    need_more_seeds,
    paired_difference,
    tails_at_looks,
)
from ablate.stats.bounds import at_least, at_most
from ablate.stats.hidden_noise import regret_bound, tuning_noise
from ablate.stats.trend import bends, movements, slopes, steps
from ablate.stats.verdict import Verdict

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


SIZES = st.floats(1e-6, 1e6)


@given(SIZES, SIZES)
def test_a_rounded_bound_stays_true_and_is_not_the_margin(value: float, margin: float) -> None:
    assume(value != margin)
    low, high = float(at_least(value, margin)), float(at_most(value, margin))
    assert low <= value * (1 + 1e-11)
    assert high >= value * (1 - 1e-11)
    assert (low > margin, high > margin) == (value > margin, value > margin)
    assert margin not in (low, high)


@given(st.floats(0.01, 1.0), st.floats(1e-14, 0.05))
def test_a_bound_just_beyond_the_margin_reads_as_beyond_it(margin: float, beyond: float) -> None:
    assert float(at_least(margin * (1 + beyond), margin)) > margin
    assert float(at_most(margin * (1 - beyond), margin)) < margin


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [(0.1571, "0.157", "0.16"), (0.1436, "0.14", "0.144"), (1234.0, "1200", "1300"), (-0.0415, "-0.042", "-0.041"),
     (0.1 + 0.2, "0.3", "0.3"), (0.0, "0", "0")],
)  # fmt: skip
def test_two_digits_unless_these_are_the_margin(value: float, least: str, most: str) -> None:
    margin = 0.15
    assert (at_least(value, margin), at_most(value, margin)) == (least, most)


def _worse(gap: float, margin: float) -> Verdict:
    noise = random.Random(1)
    baseline = {seed: 2.0 + seed / 10 for seed in range(4)}
    return judge(
        {seed: loss + gap + noise.uniform(-0.004, 0.004) for seed, loss in baseline.items()},
        baseline,
        margin=margin,
        direction="minimize",
    )


def test_neither_a_verdict_nor_an_answer_states_the_margin_as_a_bound() -> None:
    needed, fine = _worse(0.161, 0.15), _worse(0.141, 0.15)
    assert (needed.word, fine.word) == ("needed", "not needed")
    assert "worse by at least 0.15" in needed.sentence
    assert "worse by at least 0.15;" not in f"{needed.sentence};"
    assert "at most 0.15 worse" not in fine.sentence
    made = fake_store({"baseline": ({"a": "on"}, 9), "a=off": ({"a": "off"}, 9)}, seeds=4, margin=0.15)
    noise = random.Random(1)
    for seed in range(4):
        made.add("baseline", seed, {"val_loss": 2.0 + seed / 10})
        made.add("a=off", seed, {"val_loss": 2.161 + seed / 10 + noise.uniform(-0.004, 0.004)})
    said = " ".join(read_study(made, "a_study").answer.sentences)
    assert "val_loss at least 0.15" in said
    assert "val_loss at least 0.15 higher" not in said
