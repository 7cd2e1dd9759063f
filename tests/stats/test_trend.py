"""Slopes, movements at the end of training and the noise of validation data, at simulated truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from ablate.stats import summarise
from ablate.stats.hidden_noise import draw_variance
from ablate.stats.trend import MOVING, bends, course_word, fit_non_increasing, movements, slopes, steps


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
    wrong = seen = seen_by_two = 0
    for _ in range(studies):
        level, slope = rng.normal(0, 0.1, 5), rng.normal(0.05, 0.02, 5)
        gaps = {
            at: dict(enumerate((level + slope * np.log2(at) + rng.normal(0, 0.01, 5)).tolist())) for at in positions
        }
        wrong += bends(gaps)
        bent = {at: {seed: gap - 0.1 * (at >= 4) for seed, gap in of.items()} for at, of in gaps.items()}
        seen += bends(bent)
        two = {at: {seed: of[seed] for seed in (0, 1)} for at, of in bent.items()}
        assert not bends({at: {0: of[0]} for at, of in bent.items()}), "one seed shows no spread"
        seen_by_two += bends(two)
    assert seen_by_two > 0.1 * studies
    assert stats.binomtest(wrong, studies, 0.05, alternative="greater").pvalue > 0.01
    assert seen > 0.8 * studies


def test_two_positions_and_equal_changes_never_bend() -> None:
    assert not bends({1.0: {0: 1.0, 1: 2.0}, 2.0: {0: 3.0, 1: 3.0}})
    assert not bends({at: {0: np.log2(at), 1: 2 * np.log2(at)} for at in (1.0, 2.0, 4.0)})


@pytest.mark.parametrize(("of_draw", "of_seeds", "within"), [(0.02, 0.05, 0.01), (0.02, 0.0, 0.05), (0.0, 0.05, 0.05)])
def test_it_is_the_variance_that_other_draws_show(of_draw: float, of_seeds: float, within: float) -> None:
    """Each draw has 8 parts with an effect of their own; seeds shift all parts alike, and noise is within parts."""
    rng = np.random.default_rng(3)
    seeds, parts, studies = 4, 8, 3000
    effects = rng.normal(0, of_draw, (studies, 1, parts))
    tables = effects + rng.normal(0, of_seeds, (studies, seeds, 1)) + rng.normal(0, within, (studies, seeds, parts))
    found = [draw_variance(table.tolist()) for table in tables]
    truth = np.var(effects.mean(axis=(1, 2))) if of_draw else 0.0
    assert np.mean([one for one in found if one is not None]) == pytest.approx(truth, rel=0.06, abs=3e-6)


def test_too_few_windows_for_an_estimate() -> None:
    assert draw_variance([]) is None
    assert draw_variance([[1.0, 2.0]]) is None
    assert draw_variance([[1.0], [2.0]]) is None
    assert draw_variance([[1.0, 2.0], [1.0]]) is None
    assert draw_variance([[1.0, 2.0], [3.0, 5.0]]) == pytest.approx((2 * 1.5**2 / 2 - 0.25) / 4), "two of two"


STEPS = [100.0 * n for n in range(1, 13)]


def wander(rng: np.random.Generator, seeds: int, kept: float) -> np.ndarray:
    """Differences without a trend: an offset for each seed, and autoregressive noise."""
    noise = np.zeros((seeds, len(STEPS)))
    for at in range(len(STEPS)):
        noise[:, at] = (kept * noise[:, at - 1] if at else 0.0) + rng.normal(0, 0.01, seeds)
    return np.asarray(0.03 + rng.normal(0, 0.02, (seeds, 1)) + noise)


def test_a_movement_is_the_slope_of_the_last_third_times_its_length() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(0, 1, (4, len(STEPS)))
    late = [at for at, step in enumerate(STEPS) if step >= 800]
    slopes = [np.polyfit([STEPS[at] for at in late], row[late], 1)[0] for row in rows]
    found = movements(STEPS, dict(enumerate(rows.tolist())))
    assert found is not None
    assert found.values == pytest.approx([slope * 400 for slope in slopes])
    assert movements(STEPS[:1], {0: [1.0]}) is None
    assert movements([100.0, 300.0], {0: [1.0, 2.0]}) is None, "a single point in the last third has no slope"
    two = movements([100.0, 280.0, 300.0], {0: [5.0, 1.0, 2.0]})
    assert two is not None
    assert two.difference == pytest.approx(100 * 1 / 20)


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("kept", [0.0, 0.9])
def test_noise_that_has_settled_is_rarely_said_to_move(seeds: int, kept: float) -> None:
    """At a margin of nearly nothing, where the word rests on the interval alone: at most once in twenty."""
    rng = np.random.default_rng([seeds, int(10 * kept)])
    words = []
    for _ in range(1500):
        found = movements(STEPS, dict(enumerate(wander(rng, seeds, kept).tolist())))
        assert found is not None
        words.append(course_word(found, 0.03, 1e-9))
    share = np.mean([word in MOVING for word in words])
    assert share < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 1500)
    assert share > 0.02, "it is as sure as it says, not more"


@pytest.mark.parametrize("seeds", [3, 5])
def test_what_moves_by_the_margin_is_rarely_said_to_have_settled(seeds: int) -> None:
    rng = np.random.default_rng(seeds)
    trend = 0.05 * np.array(STEPS) / (STEPS[-1] / 3)  # 0.05 in the last third
    settled = 0
    for _ in range(1500):
        found = movements(STEPS, dict(enumerate((wander(rng, seeds, 0.5) + trend).tolist())))
        assert found is not None
        settled += course_word(found, 0.2, 0.05) == "settled"
    assert settled / 1500 < 0.025 + 3 * np.sqrt(0.025 * 0.975 / 1500)


def test_words() -> None:
    up, down, still = (
        summarise([0.05, 0.051, 0.049]),
        summarise([-0.05, -0.051, -0.049]),
        summarise([0.0, 0.001, -0.001]),
    )
    assert [course_word(up, end, 0.02) for end in (0.1, -0.1)] == ["growing", "shrinking"]
    assert [course_word(down, end, 0.02) for end in (0.1, -0.1)] == ["shrinking", "growing"]
    assert [course_word(up, end, 0.02) for end in (0.02, 0.04)] == ["crossing", "crossing"], "from -0.03 and from -0.01"
    assert [course_word(down, end, 0.02) for end in (-0.02, -0.04)] == ["crossing", "crossing"]
    assert course_word(up, 0.049, 0.02) == "growing", "from as good as zero"
    assert course_word(up, 0.001, 0.02) == "shrinking", "from -0.049 to as good as zero"
    assert course_word(still, 0.1, 0.02) == "settled"
    assert course_word(still, 0.1, 0.0005) == "unclear"
    assert course_word(summarise([0.05]), 0.1, 0.02) == "unclear", "one seed shows no spread"
    assert course_word(up, 0.1, 1.0) == "settled", "it moves, but by less than a tenth of the margin"


def test_the_falling_curve_is_the_nearest_one() -> None:
    # The min-max formula of isotonic regression, which pools nothing.
    rng = np.random.default_rng(2)
    for size in (1, 2, 7, 11):
        values = rng.normal(0, 1, size)
        slow = [
            min(max(values[first : last + 1].mean() for last in range(at, size)) for first in range(at + 1))
            for at in range(size)
        ]
        found, start = [], 0
        for last, mean in fit_non_increasing(values.tolist()):
            found += [mean] * (last + 1 - start)
            start = last + 1
        assert found == pytest.approx(slow)
    assert fit_non_increasing([]) == []
    assert fit_non_increasing([3.0, 3.0, 1.0]) == [(0, 3.0), (1, 3.0), (2, 1.0)], "what does not rise is not pooled"
