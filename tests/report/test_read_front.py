"""The front of a study against brute force over its stored trials."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping
from typing import Any

import pytest
from designed_study import on_off, run
from fake_store import FakeStore, fake_store

from ablate.errors import AblateError
from ablate.report.pareto import read_front
from ablate.store.records import TrialState

SEARCH = {"kind": "search", "sampler": "nsga2", "points": 24, "seeds": 3, "objectives": ["objective", "parameters"]}


def loss(settings: Mapping[str, str], values: Mapping[str, Any]) -> float | None:
    if settings["e"] == settings["a"] == "off":
        return None
    return 3 + sum(0.1 * "adcbe".index(name) for name, setting in settings.items() if setting == "off")


def brute_force(made: FakeStore) -> set[str]:
    """Names of the variants that no other beats: at most the loss and at most the parameters, and less of one."""
    means = {}
    for variant in made.record.variants:
        trials = [made.trial_records[f"{variant.name}/{seed}"] for seed in range(3)]
        if all(trial.state is TrialState.FINISHED for trial in trials):
            means[variant.name] = (statistics.fmean(t.metrics["val_loss"] for t in trials), variant.parameters)
    return {
        name
        for name, (own, parameters) in means.items()
        if not any(o <= own and p <= parameters and (o, p) != (own, parameters) for o, p in means.values())
    }


@pytest.mark.parametrize("draw", range(3))
def test_against_brute_force(draw: int) -> None:
    made = run(SEARCH, on_off(*"abcde"), loss, noise=0.1, draw=draw)
    front = read_front(made, "a_study")
    assert front is not None
    assert front.quantities == ("val_loss", "parameters")
    assert {point.variant for point in front.points if point.on_front} == brute_force(made)
    by_name = {point.variant: point for point in front.points}
    for point in front.points:
        assert (point.dominated_by is None) == point.on_front
        if point.dominated_by:
            above = by_name[point.dominated_by]
            pairs = [(above.values[name].mean, point.values[name].mean) for name in front.quantities]
            assert all(one <= other for one, other in pairs)  # type: ignore[operator]
    gone = {name for name in (v.name for v in made.record.variants) if name not in by_name}
    assert set(front.left_out) == gone != set()
    means = [point.values["val_loss"].mean or 0.0 for point in front.points]
    assert means == sorted(means)


def test_noise_alone_dominates_not_surely() -> None:
    """Two twins, and one that is plainly worse and larger; over many draws the twin is rarely called sure."""
    sure = {"twin": 0, "worse": 0}
    for draw in range(100):
        made = fake_store({"baseline": ({}, 100), "twin": ({}, 100), "worse": ({}, 120)}, seeds=4)
        rng = __import__("numpy").random.default_rng(draw)
        for seed, (name, effect) in itertools.product(range(4), {"baseline": 0.0, "twin": 0.0, "worse": 1.0}.items()):
            made.add(name, seed, {"val_loss": 3 + effect + float(rng.normal(0, 0.1))})
        front = read_front(made, "a_study", ("objective", "parameters"))
        assert front is not None
        points = {point.variant: point for point in front.points}
        for name in sure:
            sure[name] += points[name].surely
    assert sure["worse"] == 100
    assert sure["twin"] <= 12  # 5 % expected, and three deviations of 100 draws


def test_speed_is_better_when_larger_and_three_quantities_go() -> None:
    made = fake_store({"baseline": ({}, 100), "fast": ({}, 100), "slow": ({}, 100)}, seeds=2)
    for seed, (name, seconds) in itertools.product(range(2), {"baseline": 10.0, "fast": 5.0, "slow": 20.0}.items()):
        made.add(name, seed, {"val_loss": 3.0}, tokens=1000, seconds=seconds + seed / 10, flops=7.0)
    front = read_front(made, "a_study", ("val_loss", "tokens_per_second", "flops"))
    assert front is not None
    assert [point.variant for point in front.points if point.on_front] == ["fast"]
    assert front.directions == ("minimize", "maximize", "minimize")
    fast = front.points[[p.variant for p in front.points].index("fast")]
    assert fast.values["tokens_per_second"].mean == pytest.approx((200 + 1000 / 5.1) / 2)
    assert read_front(made, "a_study") is None, "the variants differ in no cost that follows from the spec"


@pytest.mark.parametrize(
    ("quantities", "message"),
    [
        (("val_loss",), "two or three different quantities"),
        (("val_loss", "objective"), "two or three different quantities"),
        (("parameters", "flops", "seconds", "val_loss"), "two or three different quantities"),
        (("val_loss", "beauty"), "expected one of val_loss, parameters, flops, .*got `beauty`"),
    ],
)
def test_refuses(quantities: tuple[str, ...], message: str) -> None:
    made = run({"kind": "grid", "seeds": 2}, on_off("a", "b"), lambda s, v: 1.0)
    with pytest.raises(AblateError, match=message):
        read_front(made, "a_study", quantities)
