"""Movements of differences at the end of training, against simulated truth."""

from __future__ import annotations

import numpy as np
import pytest

from ablate.stats import summarise
from ablate.stats.trend import MOVING, course_word, falling, movements

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
        for last, mean in falling(values.tolist()):
            found += [mean] * (last + 1 - start)
            start = last + 1
        assert found == pytest.approx(slow)
    assert falling([]) == []
    assert falling([3.0, 3.0, 1.0]) == [(0, 3.0), (1, 3.0), (2, 1.0)], "what does not rise is not pooled"
