"""Simplify on simulated landscapes whose truth is known, against a search by brute force."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping

import pytest
from design_contexts import a_context, drive, on_off
from pydantic import ValidationError

from ablate.designs.base import Point, PointCost
from ablate.designs.simplify import SimplifyDesign, SimplifySpec
from ablate.errors import SpaceError

Loss = Callable[[Mapping[str, str]], float]


def noisy(loss: Loss, noise: float = 1e-8, draw: int = 0) -> Callable[[Point, int], float]:
    """Trials of a loss: a shift for each seed, shared by all variants, and noise of each trial."""
    shifts = [random.Random(f"{draw}").gauss(0, 1) for _ in range(100)]

    def trial(point: Point, seed: int) -> float:
        own = random.Random(f"{draw} {seed} {sorted(point.settings.items())}")
        return loss(point.settings) + shifts[seed] + own.gauss(0, noise)

    return trial


def additive(**prices: float) -> Loss:
    return lambda settings: sum(price for switch, price in prices.items() if settings[switch] != "on")


def run(spec: SimplifySpec, context, trial, reverse: bool = False) -> SimplifyDesign:  # type: ignore[no-untyped-def]
    design = spec.removing(context)
    drive(design, trial, reverse)
    return design


def removed(design: SimplifyDesign) -> list[str]:
    return [step.switch for step in design.path]


def costs(**parameters: int) -> Callable[[Point], PointCost]:
    """Parameters of each component; FLOPs fall the other way round."""

    def cost(point: Point) -> PointCost:
        kept = [count for switch, count in parameters.items() if point.settings[switch] == "on"]
        return PointCost(1000 + sum(kept), 1e6 - sum(kept) - 100.0 * len(point.settings) + 200.0 * len(kept))

    return cost


def test_removes_what_is_free_the_most_expensive_first_and_keeps_what_is_needed() -> None:
    context = a_context(on_off(*"abcd"), cost=costs(a=10, b=30, c=20, d=40), margin=0.1)
    design = run(SimplifySpec(seeds=3), context, noisy(additive(a=0.01, b=0.02, c=0.01, d=0.5)))
    assert removed(design) == ["b", "c", "a"]
    assert [step.cost.parameters for step in design.path] == [1070, 1050, 1040]
    assert [step.value for step in design.path] == sorted(step.value for step in design.path)
    assert design.rounds[-1].kept == ()
    assert all(step.acceptable for step in design.path)


def test_cost_may_be_flops() -> None:
    context = a_context(on_off(*"ab"), cost=costs(a=10, b=30), margin=0.1)
    assert removed(run(SimplifySpec(cost="flops"), context, noisy(additive(a=0, b=0)))) == ["a", "b"]
    assert removed(run(SimplifySpec(cost="parameters"), context, noisy(additive(a=0, b=0)))) == ["b", "a"]


def test_losses_add_up_against_the_baseline() -> None:
    """Each step alone is within the margin, all of them together are not."""
    context = a_context(on_off(*"abcd"), margin=0.1)
    design = run(SimplifySpec(), context, noisy(additive(a=0.04, b=0.04, c=0.04, d=0.04)))
    assert len(design.path) == 2


def test_a_larger_objective_may_be_better() -> None:
    context = a_context(on_off(*"ab"), margin=0.1, direction="maximize")
    assert removed(run(SimplifySpec(), context, noisy(additive(a=-0.5, b=0.1)))) == ["b"]


def greedy_fails(settings: Mapping[str, str]) -> float:
    """Without `a` (the most expensive) nothing else can go; with it, both others can."""
    gone = {switch for switch, setting in settings.items() if setting != "on"}
    return 1.0 if "a" in gone and len(gone) > 1 else 0.0


def test_a_beam_gets_past_an_interaction_that_greedy_does_not() -> None:
    context = a_context(on_off(*"abc"), cost=costs(a=30, b=20, c=20), margin=0.1)
    greedy = run(SimplifySpec(beam=1), context, noisy(greedy_fails))
    beam = run(SimplifySpec(beam=2), context, noisy(greedy_fails))
    assert removed(greedy) == ["a"]
    assert sorted(removed(beam)) == ["b", "c"]
    assert beam.path[-1].cost.parameters == 1030 < greedy.path[-1].cost.parameters


def test_two_parts_that_can_only_go_together_need_a_common_switch() -> None:
    """Steps are single removals: what is acceptable only as a pair is not found, whatever the beam."""
    context = a_context(on_off(*"ab"), margin=0.1)
    design = run(SimplifySpec(beam=9), context, noisy(lambda s: float((s["a"] == "on") != (s["b"] == "on"))))
    assert design.path == ()


@pytest.mark.parametrize("draw", range(20))
def test_a_wide_beam_finds_the_cheapest_reachable_variant(draw: int) -> None:
    """Random landscapes without noise: the optimum by brute force over all chains of acceptable removals."""
    chance = random.Random(draw)
    names = "abcde"
    losses = {gone: chance.choice([0.0, 0.05, 0.5]) for n in range(6) for gone in itertools.combinations(names, n)}
    losses[()] = 0.0
    weights = {name: chance.randrange(1, 100) for name in names}
    context = a_context(on_off(*names), cost=costs(**weights), margin=0.1)
    design = run(
        SimplifySpec(beam=100), context, noisy(lambda s: losses[tuple(n for n in names if s[n] == "off")], draw=draw)
    )
    reachable = {()}
    for n in range(1, 6):
        reachable |= {
            gone
            for gone in itertools.combinations(names, n)
            if losses[gone] < 0.1 and any(tuple(g for g in gone if g != out) in reachable for out in gone)
        }
    best = max(sum(weights[name] for name in gone) for gone in reachable)
    assert sum(weights[step.switch] for step in design.path) == best
    for before, after in itertools.pairwise(design.path):
        assert after.parent == before.point.name


def test_noise_does_not_let_needed_parts_go() -> None:
    """Over 200 studies, a part that costs just the margin goes at most as often as the verdict's 5 % allow."""
    context = a_context(on_off("free", "needed"), cost=costs(free=1, needed=2), margin=0.1)
    lost = sum(
        "needed" in removed(run(SimplifySpec(seeds=5), context, noisy(additive(free=0.0, needed=0.1), 0.03, draw)))
        for draw in range(200)
    )
    # Two looks (alone, and after the free part went): at most 10 %, and three deviations of 200 draws.
    assert lost / 200 < 0.10 + 3 * (0.1 * 0.9 / 200) ** 0.5


def test_several_removing_settings_and_those_left_out() -> None:
    switches = {"skip": ("kept", "naive", "shaped"), "norm": ("rms", "none")}
    loss = {"kept": 0.0, "naive": 0.5, "shaped": 0.0, "rms": 0.0, "none": 0.0}
    trial = noisy(lambda settings: sum(loss[setting] for setting in settings.values()))
    context = a_context(switches, margin=0.1)
    assert run(SimplifySpec(), context, trial).path[-1].point.settings == {"skip": "shaped", "norm": "none"}
    design = run(SimplifySpec(removals={"skip": ("naive",)}), context, trial)
    assert design.path[-1].point.settings == {"skip": "kept", "norm": "none"}
    design = run(SimplifySpec(removals={"skip": ()}), context, trial)
    assert all(candidate.switch == "norm" for tried in design.rounds for candidate in tried.candidates)


def test_what_diverges_stays() -> None:
    trial = noisy(additive(a=0, b=0))
    context = a_context(on_off(*"ab"))
    design = run(
        SimplifySpec(), context, lambda p, seed: None if p.settings["a"] == "off" and seed == 1 else trial(p, seed)
    )
    assert removed(design) == ["b"]
    assert {one.verdict.word for one in design.rounds[0].candidates} == {"diverged", "not needed"}


def test_order_of_results_changes_nothing() -> None:
    context = a_context(on_off(*"abcd"), margin=0.1)
    trial = noisy(additive(a=0.02, b=0.03, c=0.5, d=0.01), 0.02)
    assert run(SimplifySpec(beam=2), context, trial).path == run(SimplifySpec(beam=2), context, trial, True).path


def test_refuses() -> None:
    with pytest.raises(ValidationError, match="variance between seeds"):
        SimplifySpec(seeds=1)
    with pytest.raises(SpaceError, match="no such switch"):
        SimplifySpec(removals={"z": ()}).build(a_context(on_off("a")))
    with pytest.raises(SpaceError, match="`on` is not a removing setting"):
        SimplifySpec(removals={"a": ("on",)}).build(a_context(on_off("a")))
    with pytest.raises(SpaceError, match="no switch has a removing setting"):
        SimplifySpec(removals={"a": ()}).build(a_context(on_off("a")))
