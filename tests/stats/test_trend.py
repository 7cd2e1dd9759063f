"""Slopes against numpy's fit and a simulated truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from ablate.stats import summarise
from ablate.stats.trend import bends, slopes, steps


def test_agrees_with_numpy() -> None:
    rng = np.random.default_rng(0)
    axis = [64.0, 128.0, 512.0, 700.0]
    gaps = {x: {seed: float(rng.normal()) for seed in (1, 4, 7)} for x in axis}
    found = slopes(gaps)
    for seed in (1, 4, 7):
        slope, _ = np.polyfit(np.log2(axis), [gaps[x][seed] for x in axis], 1)
        assert found[seed] == pytest.approx(slope)


def test_only_seeds_at_every_position_count() -> None:
    assert slopes({1.0: {0: 1.0, 1: 0.0}, 4.0: {1: 6.0, 2: 9.0}}) == {1: 3.0}
    with pytest.raises(ValueError, match="two positions"):
        slopes({1.0: {0: 1.0}})
    with pytest.raises(ValueError, match="above 0"):
        slopes({0.0: {0: 1.0}, 2.0: {0: 1.0}})


def test_a_gap_that_does_not_grow_is_said_to_grow_five_times_in_a_hundred() -> None:
    # The points of one seed depend on one another, as those of a shared baseline do; the slopes of seeds do not.
    rng, wrong = np.random.default_rng(1), 0
    for _ in range(2000):
        shared = rng.normal(0, 0.05, 4)
        noise = {x: {seed: shared[seed] + rng.normal(0, 0.01) for seed in range(4)} for x in (1.0, 2.0, 4.0, 8.0)}
        wrong += summarise(list(slopes(noise).values())).p_above(0.0) < 0.05
    assert stats.binomtest(wrong, 2000, 0.05).pvalue > 0.001


def test_steps_are_the_changes_between_neighbours() -> None:
    gaps = {4.0: {0: 3.0, 1: 5.0}, 1.0: {0: 1.0, 1: 1.5, 2: 9.0}, 2.0: {0: 2.5, 1: 2.0}}
    assert steps(gaps) == [{0: 1.5, 1: 0.5}, {0: 0.5, 1: 3.0}]


@pytest.mark.parametrize("positions", [(1.0, 2.0, 4.0), (1.0, 3.0, 4.0, 16.0, 20.0)])
def test_a_line_seldom_bends_and_a_bend_is_seen(positions: tuple[float, ...]) -> None:
    """Lines in the logarithm, whose slopes and noise differ by seed, and the same with a bend."""
    rng, studies = np.random.default_rng(0), 400
    wrong, seen = 0, 0
    for _ in range(studies):
        level, slope = rng.normal(0, 0.1, 5), rng.normal(0.05, 0.02, 5)
        gaps = {
            at: dict(enumerate((level + slope * np.log2(at) + rng.normal(0, 0.01, 5)).tolist())) for at in positions
        }
        wrong += bends(gaps)
        bent = {at: {seed: gap - 0.1 * (at >= 4) for seed, gap in of.items()} for at, of in gaps.items()}
        seen += bends(bent)
    assert stats.binomtest(wrong, studies, 0.05, alternative="greater").pvalue > 0.01
    assert seen > 0.8 * studies


def test_two_positions_and_equal_changes_never_bend() -> None:
    assert not bends({1.0: {0: 1.0, 1: 2.0}, 2.0: {0: 3.0, 1: 3.0}})
    assert not bends({at: {0: np.log2(at), 1: 2 * np.log2(at)} for at in (1.0, 2.0, 4.0)})
