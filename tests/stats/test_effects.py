"""Effects against statsmodels, against simulated truth, and against the aliases of a fraction."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from scipy import stats

from ablate.stats.effects import Effects, Observation, estimate_effects, narrowing, terms_of

TWO = {"a": ["on", "off"], "b": ["on", "off"], "c": ["on", "off"]}
MIXED = {"a": ["on", "off"], "b": ["x", "y", "z"], "c": ["on", "off"]}


def observe(
    switches: Mapping[str, Sequence[str]],
    truth: Callable[[Mapping[str, str]], float],
    seeds: int,
    noise: float,
    draw: int,
) -> list[Observation]:
    generator = np.random.default_rng(draw)
    shifts = generator.normal(size=seeds)
    corners = [dict(zip(switches, run, strict=True)) for run in itertools.product(*switches.values())]
    return [
        Observation(corner, seed, truth(corner) + shifts[seed] + noise * generator.normal())
        for seed in range(seeds)
        for corner in corners
    ]


def by_name(effects: Effects) -> dict[str, float]:
    return {effect.term.name: effect.estimate for effect in effects.effects}


def test_estimates_match_statsmodels_and_intervals_are_those_of_a_mean_over_seeds() -> None:
    observations = observe(MIXED, lambda row: 1.5 * (row["a"] == "off") - (row["b"] == "z"), 4, 0.4, 0)
    ours = estimate_effects(observations, MIXED, confidence=0.9)
    frame = pd.DataFrame([{**one.settings, "seed": one.seed, "value": one.value} for one in observations])
    # The same centred indicators, written as a formula.
    for switch, settings in MIXED.items():
        for setting in settings[1:]:
            frame[f"{switch}_{setting}"] = (frame[switch] == setting) - 1 / len(settings)
    a, b, c = "a_off", "(b_y + b_z)", "c_off"
    terms = f"{a} + {b} + {c} + {a}:{b} + {a}:{c} + {b}:{c}"
    fit = smf.ols(f"value ~ C(seed) + {terms}", frame).fit()
    alone = [smf.ols(f"value ~ {terms}", part).fit().params for _, part in frame.groupby("seed")]
    assert ours.degrees == fit.df_resid
    assert ours.sd == pytest.approx(np.sqrt(fit.scale))
    assert ours.seeds == 4
    assert len(ours.effects) == 4 + 2 + 1 + 2
    for effect in ours.effects:
        name = ":".join(f"{switch}_{setting}" for switch, setting in effect.term.settings)
        assert effect.estimate == pytest.approx(fit.params[name])
        over_seeds = stats.ttest_1samp([params[name] for params in alone], 0.0)
        assert (effect.low, effect.high) == pytest.approx(tuple(over_seeds.confidence_interval(0.9)))


def test_seeds_that_lack_trials_give_no_interval_but_count_where_no_seed_is_whole() -> None:
    observations = observe(TWO, lambda row: 1.0 * (row["a"] == "off"), 3, 0.1, 7)
    missing = [one for one in observations if one.seed or one.settings["a"] == "on"]
    effects = estimate_effects(missing, TWO)
    assert effects.seeds == 2
    assert {tuple(effect.by_seed) for effect in effects.effects} == {(1, 2)}
    spread = [one for index, one in enumerate(observations) if index % 8 not in (one.seed, one.seed + 3)]
    effects = estimate_effects(spread, TWO)
    assert effects.seeds == 0
    assert all(effect.low is None for effect in effects.effects)
    assert by_name(effects)["a=off"] == pytest.approx(1.0, abs=0.3)


@pytest.mark.parametrize("seeds", [3, 6])
def test_intervals_hold_where_a_switch_does_something_else_at_each_seed(seeds: int) -> None:
    """All trials of a seed share what a switch does there, which residuals of least squares take for independent."""
    hits, trials, rng = 0, 0, np.random.default_rng(8)
    for draw in range(250):
        own = rng.normal(0, 1.0, (seeds, 3))
        observations = [
            Observation(one.settings, one.seed, one.value + sum(
                by for by, setting in zip(own[one.seed], one.settings.values(), strict=True) if setting == "off"
            ))
            for one in observe(TWO, lambda row: 0.0, seeds, 0.3, draw)
        ]  # fmt: skip
        for effect in estimate_effects(observations, TWO).effects:
            if len(effect.term.settings) == 1:
                assert effect.low is not None
                assert effect.high is not None
                hits += effect.low <= 0.0 <= effect.high
                trials += 1
    assert abs(hits / trials - 0.95) < 4 * np.sqrt(0.95 * 0.05 / trials)


def test_effects_mean_what_they_say() -> None:
    """Without noise: average change over the other switches, and difference of differences."""

    def truth(row: Mapping[str, str]) -> float:
        off, z, c = row["a"] == "off", row["b"] == "z", row["c"] == "off"
        return 2.0 * off + 3.0 * (off and z) + 0.5 * c

    effects = by_name(estimate_effects(observe(MIXED, truth, 2, 0.0, 1), MIXED))
    assert effects["a=off"] == pytest.approx(2.0 + 3.0 / 3)  # b is at z in a third of the grid
    assert effects["b=z"] == pytest.approx(3.0 / 2)
    assert effects["b=y"] == pytest.approx(0, abs=1e-9)
    assert effects["a=off:b=z"] == pytest.approx(3.0)
    assert effects["a=off:b=y"] == pytest.approx(0, abs=1e-9)
    assert effects["c=off"] == pytest.approx(0.5)


def test_values_that_may_be_lower_move_effects_as_far_as_the_worst_of_them() -> None:
    """Of all ways in which some of the values are as low as they may be."""
    observations = observe(TWO, lambda row: 1.0 * (row["a"] == "off"), 2, 0.4, 9)
    slack = [0.0, 0.3, 0.0, 1.7, 0.4] + [0.0] * 7 + [0.2, 0.0, 2.5, 0.0]
    found = estimate_effects(observations, TWO, slack=slack)
    moves = []
    for at in itertools.product((0.0, 1.0), repeat=len(slack) - slack.count(0.0)):
        shares, lowered = iter(at), []
        for one, by in zip(observations, slack, strict=True):
            lowered.append(replace(one, value=one.value - (next(shares) * by if by else 0.0)))
        moved = by_name(estimate_effects(lowered, TWO))
        moves.append([moved[effect.term.name] - effect.estimate for effect in found.effects])
    assert [-effect.fall for effect in found.effects] == pytest.approx(np.min(moves, axis=0))
    assert [effect.rise for effect in found.effects] == pytest.approx(np.max(moves, axis=0))


def test_half_fraction_names_its_aliases() -> None:
    observations = observe(TWO, lambda row: 1.0 * (row["a"] == "off"), 3, 0.1, 3)
    half = [one for one in observations if sum(setting == "off" for setting in one.settings.values()) % 2 == 0]
    effects = estimate_effects(half, TWO)
    assert [effect.term.name for effect in effects.effects] == ["a=off", "b=off", "c=off"]
    assert effects.aliased == {"a=off:b=off": ("c=off",), "a=off:c=off": ("b=off",), "b=off:c=off": ("a=off",)}


def test_as_many_seeds_again_narrow_an_interval_of_the_same_spread() -> None:
    """By tabulated 97.5 % quantiles of Student's t with 1 and 3, and with 4 and 9 degrees of freedom."""
    assert narrowing(2) == pytest.approx(3.1824 / 12.7062 / 2**0.5, rel=1e-4)
    assert narrowing(5) == pytest.approx(2.2622 / 2.7764 / 2**0.5, rel=1e-4)


def test_a_switch_that_never_varies_has_no_effect() -> None:
    observations = [one for one in observe(TWO, lambda row: 0.0, 2, 1.0, 4) if one.settings["c"] == "on"]
    effects = estimate_effects(observations, TWO, interactions=False)
    assert effects.aliased == {"c=off": ()}


def test_one_seed_and_as_many_terms_as_runs_has_no_interval() -> None:
    observations = observe({"a": TWO["a"], "b": TWO["b"]}, lambda row: 1.0, 1, 1.0, 5)
    effects = estimate_effects(observations, {"a": TWO["a"], "b": TWO["b"]})
    assert effects.degrees == 0
    assert effects.sd is None
    assert all(effect.low is effect.high is effect.standard_error is None for effect in effects.effects)


def test_order_of_trials_makes_no_difference() -> None:
    observations = observe(MIXED, lambda row: float(row["b"] == "y"), 2, 1.0, 6)
    assert by_name(estimate_effects(observations, MIXED)) == pytest.approx(
        by_name(estimate_effects(observations[::-1], MIXED))
    )


@pytest.mark.parametrize("values", [[], [float("nan")], [1.0, float("inf")]])
def test_refuses_what_has_no_effects(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"observation|finite"):
        estimate_effects([Observation({"a": "on"}, 0, value) for value in values], {"a": ["on", "off"]})


def test_terms() -> None:
    assert [term.name for term in terms_of(MIXED, interactions=True)] == [
        "a=off", "b=y", "b=z", "c=off", "a=off:b=y", "a=off:b=z", "a=off:c=off", "b=y:c=off", "b=z:c=off",
    ]  # fmt: skip
