"""Fourier transforms by matrices against those of torch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ablate.nn.kernels.fourier import Points, signal, spectrum
from ablate.nn.pack.initial import stream

DIVIDED = [Points(2, 1), Points(34, 1), Points(10, 3), Points(12, 8), Points(4, 32), Points(2, 5)]


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=stream(0, "x"), dtype=torch.float64)


@pytest.mark.parametrize("points", DIVIDED, ids=str)
@pytest.mark.parametrize("part", [1, 2, 3])
def test_spectrum_and_signal(points: Points, part: int) -> None:
    n = points.first * points.second
    rows = max(1, n // part)
    x = noise(2, rows, 3)
    ours = spectrum(x, points)
    theirs = torch.fft.fft(x, n, dim=1)
    halves = points.first // 2 + 1
    order = [f1 + points.first * f2 for f1 in range(halves) for f2 in range(points.second)]
    torch.testing.assert_close(torch.complex(*ours.unbind(2)), theirs[:, order], rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(signal(ours, points, rows), x, rtol=1e-11, atol=1e-11)


def test_the_whole_signal_comes_back_where_only_its_first_rows_were_asked_for() -> None:
    points = Points(12, 8)
    x = noise(2, 96, 3)
    for rows in (1, 8, 13, 96):
        torch.testing.assert_close(signal(spectrum(x, points), points, rows), x[:, :rows], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("points", DIVIDED, ids=str)
def test_gradients(points: Points) -> None:
    rows = max(1, points.first * points.second // 2)
    x = noise(1, min(rows, 20), 1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: spectrum(x, points), x)
    assert torch.autograd.gradcheck(lambda s: signal(s, points, rows), spectrum(x.detach(), points).requires_grad_())


@given(least=st.integers(1, 5000))
@settings(max_examples=200, deadline=None)
def test_there_are_enough_points_and_few_too_many(least: int) -> None:
    points = Points.of(least)
    assert points.first % 2 == 0
    assert least <= points.first * points.second < least + 2 * points.second
