"""Curves to be drawn: smoothing, bands and alignment, against numpy, pandas and identities."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.analysis.curves import AXES, Band, Line, band, band_at, heights, line, share, smooth, versus
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
    ends = {"steps": 10.0, "tokens": 640.0, "seconds": 0.5, "flops": 1e6}
    assert {axis: line(curve([5.0, 4.0]), axis).x[1] for axis in AXES} == ends


@given(st.lists(st.lists(st.floats(0, 9), min_size=4, max_size=4), min_size=2, max_size=6))
def test_a_band_is_the_mean_and_the_extremes(losses: list[list[float]]) -> None:
    found = band([line(curve(list(values), every=7), "seconds") for values in losses])
    np.testing.assert_allclose(found.mean, np.mean(losses, axis=0), atol=1e-12)
    assert found.low == tuple(np.min(losses, axis=0))
    assert found.high == tuple(np.max(losses, axis=0))
    assert (found.x, found.n) == ((0.0, 0.5, 1.0, 1.5), len(losses))


def test_an_interval_is_that_of_t() -> None:
    from scipy.stats import t

    values = [1.0, 2.0, 4.0]
    found = band([line(curve([value])) for value in values], "interval")
    low, high = t.interval(0.95, 2, np.mean(values), np.std(values, ddof=1) / np.sqrt(3))
    assert (found.low[0], found.high[0]) == pytest.approx((low, high))
    assert band([line(curve([2.0]))], "interval") == Band((0.0,), (2.0,), (2.0,), (2.0,), 1), "one has no interval"


def test_a_band_keeps_to_the_steps_that_all_have() -> None:
    found = band([line(curve([5.0, 4.0, 3.0])), line(curve([5.0, None, 2.0])), Line((), (), ())])
    assert found.x == (0.0, 20.0)
    assert band([]).mean == ()


def test_another_line_is_taken_at_the_same_place_and_not_beyond_its_ends() -> None:
    one = Line((1, 2, 3), (5.0, 15.0, 25.0), (1.0, 1.0, 1.0))
    other = Line((0, 1, 2), (0.0, 10.0, 20.0), (3.0, 1.0, 0.0))
    expected = 1.0 - np.interp([5.0, 15.0], other.x, other.y)
    assert versus(one, other) == Line((1, 2), (5.0, 15.0), tuple(expected))
    assert versus(other, other) == replace(other, y=(0.0, 0.0, 0.0))
    assert versus(one, Line((), (), ())) == versus(Line((), (), ()), one) == Line((), (), ())
    known = Band(other.x, other.y, (2.0, 1.0, 0.0), (4.0, 2.0, 1.0), 2)
    at = {x: band_at(known, x) for x in (-0.1, 0.0, 5.0, 20.0, 20.1)}
    assert at == {-0.1: None, 0.0: (3.0, 2.0, 4.0), 5.0: (2.0, 1.5, 3.0), 20.0: (0.0, 0.0, 1.0), 20.1: None}
    assert band_at(band([]), 0.0) is None


def test_shares_end_at_one() -> None:
    assert share(Line((0, 3, 4), (0.0, 3.0, 4.0), (1.0, 1.0, 1.0))).x == (0.0, 0.75, 1.0)
    for x in ((0.0,), ()):
        assert share(Line((0,), x, (1.0,))).x == x


def test_heights_cut_off_the_first_fall_only() -> None:
    bands = [band([line(curve([10.0, second, 4.0, 3.0, last]))]) for second, last in ((4.0, 2.0), (5.0, 3.0))]
    assert heights(bands) == pytest.approx((2.0 - 0.18, 5.0 + 0.18)), "with 6 % of room"
    assert "cut off" in what_is_cut(bands)
    few = [band([line(curve([10.0, 4.0, 3.0, 2.0]))])]
    assert heights(few) == pytest.approx((2.0 - 0.48, 10.0 + 0.48)), "of four points the first is shown, too"
    later = Band((10, 19, 20, 40, 50, 60), (9, 5.5, 4.5, 3.5, 2.5, 1.5), (9, 5, 4, 3, 2, 1), (10, 6, 5, 4, 3, 2), 2)
    assert heights([later]) == pytest.approx((1.0 - 0.24, 5.0 + 0.24)), "a fifth of the way ends at 20"
    assert heights([]) is None
    for flat, room in ((4.0, 0.2), (-4.0, 0.2), (0.0, 1.0)):  # of curves without a height
        assert heights([band([line(curve([flat] * 6))])]) == (flat - room, flat + room)
    assert what_is_cut(few) == what_is_cut([]) == where_panels_begin({"a": few[0]}) == ""
    long = {"a": band([line(curve([9.0 - step for step in range(9)]))])}
    assert where_panels_begin(long).startswith("Panels begin at 40 of 80"), "the later part, where curves differ"
    slow = [10.0, 9.0, 8.0, *(3.0 - 0.1 * step for step in range(9))]  # two of the first fifth's points fall
    assert heights([band([line(curve(slow))])]) == pytest.approx((2.2 - 0.048, 3.0 + 0.048)), "however many points"
