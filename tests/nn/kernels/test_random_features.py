"""Random features against their kernels; Fourier transforms by matrices against those of torch."""

from __future__ import annotations

import math

import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ablate.nn.kernels.convolution import Points, signal, spectrum
from ablate.nn.kernels.random_features import (
    fourier,
    hadamard,
    log_positive,
    orthogonal_directions,
    usual_samples,
)
from ablate.nn.pack.initial import stream


@pytest.mark.parametrize("n", [1, 2, 4, 32])
def test_hadamard_is_the_matrix(n: int) -> None:
    x = torch.randn(3, 5, n, generator=stream(0, "x"), dtype=torch.float64)
    matrix = torch.from_numpy(scipy.linalg.hadamard(n)).double()
    torch.testing.assert_close(hadamard(x), x @ matrix)


@pytest.mark.parametrize(("rows", "width"), [(3, 7), (7, 7), (19, 7), (4, 1)])
def test_directions_are_orthogonal_in_blocks(rows: int, width: int) -> None:
    omega = orthogonal_directions(torch.empty(rows, width, dtype=torch.float64), stream(0, "omega"))
    for start in range(0, rows, width):
        block = omega[start : start + width]
        gram = block @ block.mT
        torch.testing.assert_close(gram, gram.diagonal().diag(), atol=1e-10, rtol=0)


def test_directions_are_gaussian_one_by_one() -> None:
    """The mean of ‖ω‖² is d and that of ‖ω‖⁴ is d(d+2), as for N(0, I); all directions are as likely."""
    d = 5
    omega = orthogonal_directions(torch.empty(20_000, d, dtype=torch.float64), stream(0, "omega"))
    square = omega.square().sum(1)
    assert square.mean().item() == pytest.approx(d, rel=0.02)
    assert square.square().mean().item() == pytest.approx(d * (d + 2), rel=0.05)
    torch.testing.assert_close(omega.mean(0), torch.zeros(d, dtype=torch.float64), atol=0.03, rtol=0)
    torch.testing.assert_close(omega.mT @ omega / len(omega), torch.eye(d, dtype=torch.float64), atol=0.03, rtol=0)


def test_fourier_features_of_gaussian_directions_are_the_gaussian_kernel_plus_one() -> None:
    x, y = (0.5 * torch.randn(3, generator=stream(0, name), dtype=torch.float64) for name in "xy")
    omega = torch.randn(3, 200_000, generator=stream(0, "omega"), dtype=torch.float64)
    features = [fourier(z @ omega, 1 / math.sqrt(omega.shape[1])) for z in (x, y)]
    expected = math.exp(-(x - y).square().sum().item() / 2) + 1
    assert (features[0] @ features[1]).item() == pytest.approx(expected, abs=0.01)


def test_fourier_features_have_gradients_and_gradients_of_these() -> None:
    u = torch.randn(2, 3, generator=stream(0, "u"), dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda u: fourier(u, 0.7), u)
    assert torch.autograd.gradgradcheck(lambda u: fourier(u, 0.7), u)


def test_positive_features_of_gaussian_directions_are_the_exponential_of_the_product() -> None:
    x, y = (0.5 * torch.randn(3, generator=stream(0, name), dtype=torch.float64) for name in "xy")
    omega = torch.randn(3, 200_000, generator=stream(0, "omega"), dtype=torch.float64)
    features = [log_positive(z @ omega, z, weight=0.5).exp() for z in (x, y)]
    assert (features[0] @ features[1]).item() == pytest.approx(math.exp((x @ y).item()), rel=0.02)


@pytest.mark.parametrize(
    ("width", "samples"), [(1, 2), (2, 2), (4, 4), (8, 16), (16, 32), (32, 128), (64, 256), (128, 512)]
)
def test_usual_samples_are_those_of_the_released_code(width: int, samples: int) -> None:
    assert usual_samples(width) == samples


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
