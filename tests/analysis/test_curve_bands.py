"""Curves to be drawn: smoothing, bands and alignment, against numpy, pandas and identities."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.analysis.curves import Line, band, heights, line, share, smooth, versus
from ablate.render.figures.curves import what_is_cut, where_panels_begin
from ablate.store import CurvePoint

VALUES = st.lists(st.floats(-100, 100), min_size=1, max_size=30)


def curve(losses: list[float | None], every: int = 10) -> tuple[CurvePoint, ...]:
    return tuple(CurvePoint(every * n, 0.5 * n, 640 * n, 1e6 * n, None, loss) for n, loss in enumerate(losses))


@given(values=VALUES, weight=st.floats(0, 0.99))
def test_smoothing_is_the_debiased_average_of_pandas(values: list[float], weight: float) -> None:
    expected = pd.Series(values).ewm(alpha=1 - weight, adjust=True).mean()
    np.testing.assert_allclose(smooth(values, weight), expected, rtol=1e-9, atol=1e-9)


def test_a_line_leaves_out_what_is_no_loss() -> None:
    one = line(curve([5.0, None, float("inf"), 3.0]), "tokens")
    assert one == Line((0, 30), (0.0, 1920.0), (5.0, 3.0))
    assert line(curve([1.0, 2.0]), "seconds", "train_loss") == Line((), (), ())


@given(st.lists(st.lists(st.floats(0, 9), min_size=4, max_size=4), min_size=2, max_size=6))
def test_a_band_is_the_mean_and_the_extremes(losses: list[list[float]]) -> None:
    found = band([line(curve(list(values))) for values in losses])
    np.testing.assert_allclose(found.mean, np.mean(losses, axis=0), atol=1e-12)
    assert found.low == tuple(np.min(losses, axis=0))
    assert found.high == tuple(np.max(losses, axis=0))
    assert (found.x, found.n) == ((0.0, 10.0, 20.0, 30.0), len(losses))


def test_an_interval_is_that_of_t() -> None:
    from scipy.stats import t

    values = [1.0, 2.0, 4.0]
    found = band([line(curve([value])) for value in values], "interval")
    low, high = t.interval(0.95, 2, np.mean(values), np.std(values, ddof=1) / np.sqrt(3))
    assert (found.low[0], found.high[0]) == pytest.approx((low, high))


def test_a_band_keeps_to_the_steps_that_all_have() -> None:
    found = band([line(curve([5.0, 4.0, 3.0])), line(curve([5.0, None, 2.0])), Line((), (), ())])
    assert found.x == (0.0, 20.0)
    assert band([]).mean == ()


def test_another_line_is_taken_at_the_same_place_and_not_beyond_its_ends() -> None:
    one = Line((1, 2, 3), (5.0, 15.0, 25.0), (1.0, 1.0, 1.0))
    other = Line((0, 1, 2), (0.0, 10.0, 20.0), (3.0, 1.0, 0.0))
    expected = 1.0 - np.interp([5.0, 15.0], other.x, other.y)
    assert versus(one, other) == Line((1, 2), (5.0, 15.0), tuple(expected))


def test_shares_end_at_one() -> None:
    assert share(Line((0, 3, 4), (0.0, 3.0, 4.0), (1.0, 1.0, 1.0))).x == (0.0, 0.75, 1.0)
    assert share(Line((0,), (0.0,), (1.0,))).x == (0.0,)


def test_heights_cut_off_the_first_fall_only() -> None:
    bands = [band([line(curve([10.0, second, 4.0, 3.0, last]))]) for second, last in ((4.0, 2.0), (5.0, 3.0))]
    low, high = heights(bands) or (0, 0)
    assert low < 2.0 < 5.0 < high < 10.0
    assert "cut off" in what_is_cut(bands)
    few = [band([line(curve([10.0, 4.0, 3.0, 2.0]))])]
    low, high = heights(few) or (0, 0)
    assert low < 2.0 < 10.0 < high, "of four points the first is shown, too"
    assert heights([]) is None
    for flat, room in ((4.0, 0.2), (-4.0, 0.2), (0.0, 1.0)):  # of curves without a height
        assert heights([band([line(curve([flat] * 6))])]) == (flat - room, flat + room)
    assert what_is_cut(few) == what_is_cut([]) == where_panels_begin({"a": few[0]}) == ""
    long = {"a": band([line(curve([9.0 - step for step in range(9)]))])}
    assert where_panels_begin(long).startswith("Panels begin at 40 of 80"), "the later part, where curves differ"
    slow = [10.0, 9.0, 8.0, *(3.0 - 0.1 * step for step in range(9))]  # two of the first fifth's points fall
    low, high = heights([band([line(curve(slow))])]) or (0, 0)
    assert low < min(slow)
    assert 3.0 < high < 8.0, "the fall is a share of the way, however many points it has"
