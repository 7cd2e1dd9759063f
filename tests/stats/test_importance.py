"""fANOVA importances against the variance decomposition of landscapes that are known."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from ablate.stats import Configuration, Factor, importances
from ablate.stats.effects import shrunk

THREE = {"a": Factor(settings=2), "b": Factor(settings=3), "c": Factor(settings=2)}
GRID = [dict(zip(THREE, map(float, places), strict=True)) for places in itertools.product(range(2), range(3), range(2))]
Truth = Callable[[dict[str, float]], float]


@pytest.fixture
def without_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hardly any simulated studies: they take most of the time, and change nothing but the intervals."""
    monkeypatch.setattr("ablate.stats.effects.RESAMPLES", 2)


def study(truth: Truth, seeds: int = 3, noise: float = 0.0, draw: int = 0) -> list[Configuration]:
    rng = np.random.default_rng(draw)
    return [
        Configuration(at, {seed: truth(at) + seed + float(rng.normal(0, noise)) for seed in range(seeds)})
        for at in GRID
    ]


def anova(truth: Truth) -> dict[str, float]:
    """Share of the variance over the grid of the mean at each place of a factor."""
    values = np.array([truth(at) for at in GRID])
    shares = {}
    for name in THREE:
        places = np.array([at[name] for at in GRID])
        means = [values[places == place].mean() for place in set(places)]
        shares[name] = float(np.var(means) / values.var())
    return shares


@pytest.mark.usefixtures("without_intervals")
@pytest.mark.parametrize(
    "truth",
    [
        lambda at: 2 * at["a"] + at["c"],
        lambda at: [0.0, 1.0, 0.2][int(at["b"])] + 0.5 * at["a"],
        lambda at: at["a"] * at["c"] + 0.3 * (at["b"] == 2),
    ],
)
def test_shares_are_those_of_the_analysis_of_variance(truth: Truth) -> None:
    expected = anova(truth)
    found = {one.factor: one.share for one in importances(study(truth), THREE)}
    assert list(found) == list(THREE)
    for name, share in expected.items():
        assert found[name] == pytest.approx(share, abs=0.08), name
    assert sum(found.values()) <= 1 + 1e-9


@pytest.mark.usefixtures("without_intervals")
def test_small_differences_have_the_shares_of_large_ones() -> None:
    truth = lambda at: 2 * at["a"] + at["c"]  # noqa: E731
    large = {one.factor: one.share for one in importances(study(truth), THREE)}
    small = {one.factor: one.share for one in importances(study(lambda at: 5e-9 * truth(at)), THREE)}
    assert small == pytest.approx(large, abs=0.02)


def test_an_axis_counts_as_evenly_as_it_is_drawn() -> None:
    rng = np.random.default_rng(1)
    places = [{"a": float(rng.integers(2)), "x": float(rng.uniform(-0.9, 0))} for _ in range(80)]
    truth = [at["a"] + np.sqrt(12) / 0.9 * at["x"] / 2 for at in places]  # variances 1/4 and 1/4
    found = importances(
        [Configuration(at, {0: value}) for at, value in zip(places, truth, strict=True)],
        {"a": Factor(settings=2), "x": Factor(low=-0.9, high=0.0)},
    )
    assert [one.share for one in found] == pytest.approx([0.5, 0.5], abs=0.1)
    assert all(one.low is one.high is None for one in found), "one seed shows no spread"


def test_intervals_widen_with_noise_and_hold_the_point() -> None:
    def truth(at: dict[str, float]) -> float:
        return at["a"]

    widths = []
    for noise in (0.0, 0.03, 1.0):
        found = importances(study(truth, 4, noise), THREE)
        assert all(one.low <= one.share <= one.high for one in found)  # type: ignore[operator]
        widths.append(sum(one.high - one.low for one in found) / 3)  # type: ignore[operator]
    assert widths[0] < widths[1] < 0.05 < widths[2]


@pytest.mark.usefixtures("without_intervals")
def test_what_no_seed_has_is_left_out_and_a_flat_landscape_has_no_importances() -> None:
    configurations = [*study(lambda at: at["a"], noise=0.3), Configuration({"a": 0.0, "b": 0.0, "c": 0.0}, {})]
    assert importances(configurations, THREE) == importances(configurations[:-1], THREE)
    assert importances(study(lambda at: 1.0, seeds=1), THREE) == ()


def test_intervals_hold_the_share_without_noise() -> None:
    def truth(at: dict[str, float]) -> float:
        return at["a"] + 0.5 * at["c"] + 0.4 * at["a"] * at["c"]

    expected, held = anova(truth), []
    for draw in range(5):
        for one in importances(study(truth, 3, noise=0.3, draw=draw), THREE):
            assert one.low is not None
            assert one.high is not None
            held.append(one.low - 1e-3 <= expected[one.factor] <= one.high + 1e-3)
    # Resampling the seeds, which is the usual way, holds fewer than half.
    assert np.mean(held) >= 0.8


def test_shrunk_means_vary_by_as_much_less_as_noise_adds() -> None:
    rng = np.random.default_rng(5)
    means = rng.normal(0, 1, 4) + 3.0
    assert shrunk(means, 0.3).var(ddof=1) == pytest.approx(means.var(ddof=1) - 0.3)
    assert shrunk(means, 100.0) == pytest.approx([means.mean()] * 4)


def test_variants_that_differ_by_noise_alone_have_shares_near_nothing_in_their_intervals() -> None:
    found = importances(study(lambda at: 0.0, 3, noise=1.0), THREE)
    assert max(one.low or 0.0 for one in found) < 0.05


@pytest.mark.usefixtures("without_intervals")
@pytest.mark.parametrize(("twice", "known"), [(0, False), (1, False), (2, True)])
def test_one_degree_of_freedom_suffices_for_intervals(twice: int, known: bool) -> None:
    """Of the second values one tells what the seed shifts alike."""
    whole = study(lambda at: at["a"] + 0.2 * at["b"], seeds=2, noise=0.1)
    some = [one if place < twice else Configuration(one.places, {0: one.values[0]}) for place, one in enumerate(whole)]
    assert [one.low is not None for one in importances(some, THREE)] == [known] * 3
