"""Fractional designs over spaces: effects recovered, constraints kept, too few runs refused."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from design_contexts import a_context, on_off
from pydantic import ValidationError

from ablate.designs.base import Point
from ablate.designs.fractional import FractionalSpec
from ablate.errors import SpaceError
from ablate.stats.effects import Observation, estimate_effects

SEVEN = on_off(*"abcdefg")
MIXED = {"a": ("on", "off"), "b": ("x", "y", "z"), "c": ("on", "off"), "d": ("on", "off")}


def forbid(**pair: str):  # type: ignore[no-untyped-def]
    def refusal(point: Point) -> str | None:
        return "cannot be" if all(point.settings[switch] == setting for switch, setting in pair.items()) else None

    return refusal


@pytest.mark.parametrize(("resolution", "runs"), [("III", 8), ("IV", 16), ("V", 64)])
def test_regular_where_it_can_be(resolution: str, runs: int) -> None:
    design = FractionalSpec(resolution=resolution, seeds=2).build(a_context(SEVEN))
    assert len(design.points()) == runs
    assert f"{runs} of 128 combinations, a regular fraction" in design.warnings()[0]
    mains_aliased = any(":" not in effect for group in design.aliases for effect in group)
    assert mains_aliased == (resolution == "III")
    assert bool(design.aliases) == (resolution != "V")
    assert len(design.warnings()) == 1 + len(design.aliases)


def test_more_runs_give_a_higher_resolution() -> None:
    assert "resolution VII" in FractionalSpec(resolution="III", runs=64).build(a_context(SEVEN)).warnings()[0]
    assert "full factorial" in FractionalSpec(resolution="III", runs=128).build(a_context(SEVEN)).warnings()[0]


@pytest.mark.parametrize(
    ("resolution", "switches", "needed"),
    [
        ("III", SEVEN, 8),
        ("IV", SEVEN, 14),
        ("V", SEVEN, 29),
        ("III", MIXED, 6),
        ("V", MIXED, 1 + 5 + 9),
        ("V", on_off("a", "b"), 4),
        ("IV", on_off("a", "b"), 4),
    ],
)
def test_too_few_runs_are_refused_with_the_number_needed(resolution: str, switches: dict, needed: int) -> None:
    with pytest.raises(SpaceError, match=f"needs {needed} runs.*got {needed - 1}.*`runs` between {needed} and"):
        FractionalSpec(resolution=resolution, runs=needed - 1).build(a_context(switches))
    design = FractionalSpec(resolution=resolution, runs=needed).build(a_context(switches))
    assert len(design.points()) == needed


@pytest.mark.parametrize("resolution", ["III", "IV", "V"])
@pytest.mark.parametrize("switches", [SEVEN, MIXED])
def test_forbidden_combinations_are_left_out_and_effects_recovered(resolution: str, switches: dict) -> None:
    """Without noise the estimates are exact if the model is right: additive, or with interactions for V."""
    context = a_context(switches, refusal=forbid(a="off", c="off"))
    design = FractionalSpec(resolution=resolution, seeds=2).build(context)
    points = design.points()
    assert all(context.refusal(point) is None for point in points)
    assert len({tuple(point.settings.items()) for point in points}) == len(points)
    generator = np.random.default_rng(0)
    weights = {(switch, s): generator.normal() for switch, settings in switches.items() for s in settings[1:]}
    both = 1.3 if resolution == "V" else 0.0

    def truth(point: Point) -> float:
        together = both * (point.settings["c"] == point.settings["d"] == "off")
        return sum(weight for one, weight in weights.items() if one in point.settings.items()) + together

    observations = [Observation(point.settings, seed, truth(point) + seed) for point in points for seed in range(2)]
    effects = estimate_effects(observations, switches, interactions=resolution == "V")
    estimates = {effect.term.name: effect.estimate for effect in effects.effects}
    for (switch, setting), weight in weights.items():
        average = both / 2 if switch in "cd" else 0.0
        assert estimates[f"{switch}={setting}"] == pytest.approx(weight + average)
    if resolution == "V":
        assert estimates["c=off:d=off"] == pytest.approx(both)
        # What never goes together cannot be seen together: the design said so, and the estimates do.
        assert "a=off:c=off" in effects.aliased
        assert "no valid combinations estimate a=off:c=off" in design.warnings()[0]


def test_resolution_iv_keeps_main_effects_clear_of_interactions() -> None:
    """With one forbidden corner, main effects are still barely moved by an interaction that the model leaves out."""
    switches = on_off(*"abcde")
    context = a_context(switches, refusal=forbid(a="off", b="off", c="off"))

    def bias(resolution: str) -> float:
        points = FractionalSpec(resolution=resolution, runs=16).build(context).points()
        worst = 0.0
        for left, right in itertools.combinations(switches, 2):
            observations = [Observation(p.settings, 0, float(p.settings[left] != p.settings[right])) for p in points]
            effects = estimate_effects(observations, switches, interactions=False)
            worst = max(worst, *(abs(effect.estimate) for effect in effects.effects))
        return worst

    assert bias("IV") < 0.5 * bias("III")


def test_aliases_of_a_subset_are_named() -> None:
    design = FractionalSpec(resolution="III", runs=8).build(a_context(MIXED))
    assert any(group[0].count(":") == 1 for group in design.aliases)
    assert "D-optimal subset" in design.warnings()[0]


def turned(point: Point, switch: str) -> bool:
    return point.settings[switch] != MIXED[switch][0]


@pytest.mark.parametrize(("runs", "clear"), [(None, True), (8, False)])
def test_a_subset_says_whether_interactions_shift_its_main_effects(runs: int | None, clear: bool) -> None:
    count = math.prod(len(settings) for settings in MIXED.values())
    design = FractionalSpec(resolution="III", runs=runs or count).build(a_context(MIXED))
    others = 0.0  # the most that an interaction moves the main effect of a switch that has no part in it
    for left, right in itertools.combinations(MIXED, 2):
        truth = [Observation(p.settings, 0, float(turned(p, left) and turned(p, right))) for p in design.points()]
        for effect in estimate_effects(truth, MIXED, interactions=False).effects:
            if effect.term.settings[0][0] not in (left, right):
                others = max(others, abs(effect.estimate))
    assert (others < 1e-9) == clear
    assert ("main effects not aliased with" in design.warnings()[0]) == clear


def test_one_seed_shows_no_noise() -> None:
    with pytest.raises(ValidationError, match="noise of effects is estimated between seeds"):
        FractionalSpec(seeds=1)


def test_refuses_when_too_little_is_possible() -> None:
    only_baseline = a_context(SEVEN, refusal=lambda point: None if "off" not in point.settings.values() else "no")
    with pytest.raises(SpaceError, match=r"cannot estimate a=off, b=off.*and 2 more"):
        FractionalSpec(resolution="III").build(only_baseline)
    many = a_context({f"s{index}": ("x", "y", "z") for index in range(12)})
    with pytest.raises(SpaceError, match="531,441 combinations are too many"):
        FractionalSpec(resolution="III").build(many)
