"""Causal convolutions against their sums and against `conv1d`, outputs and gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ablate.nn.kernels import convolution
from ablate.nn.kernels.convolution import fast_length, fourier_cost
from ablate.nn.pack.initial import stream

K, B, D, E = 2, 6, 5, 4

Convolution = Callable[[Tensor, Tensor], Tensor]

DEPTHWISE = [
    convolution.depthwise_direct,
    convolution.depthwise_fourier,
    convolution.depthwise_pairs,
    convolution.depthwise,
]
FOURIER = [convolution.depthwise_fourier, convolution.depthwise_pairs, convolution.full_fourier]
SHARED = [convolution.shared_direct, convolution.shared]
FULL = [convolution.full_direct, convolution.full_fourier, convolution.full]
LENGTHS = [(1, 1), (7, 7), (13, 13), (33, 33), (33, 3), (13, 20), (1, 4)]  # tokens, lags
SHAPES: dict[str, tuple[int, ...]] = {"depthwise": (D,), "shared": (), "full": (D, E)}
PATHS = [("depthwise", path) for path in DEPTHWISE] + [("shared", path) for path in SHARED]
PATHS += [("full", path) for path in FULL]


def sums(x: Tensor, w: Tensor) -> Tensor:
    """y_t = Σ_{s≤t} x_s · w_{t-s}, term by term."""
    rows = []
    for t in range(x.shape[2]):
        row = torch.zeros((), dtype=x.dtype)
        for s in range(t + 1):
            if t - s >= w.shape[1]:
                continue
            weights = w[:, t - s]
            if weights.dim() == 3:
                row = row + torch.einsum("kbd,kde->kbe", x[:, :, s], weights)
            else:
                row = row + x[:, :, s] * weights.view(w.shape[0], 1, -1)
        rows.append(row)
    return torch.stack(rows, 2)


def noise(name: str, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=stream(0, name), dtype=dtype).requires_grad_()


def gradients(y: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    direction = torch.randn(y.shape, generator=stream(1, "direction"), dtype=y.dtype)
    return torch.autograd.grad((y * direction).sum(), inputs)


@pytest.mark.parametrize(("length", "lags"), LENGTHS)
@pytest.mark.parametrize(("sort", "path"), PATHS, ids=lambda value: getattr(value, "__name__", ""))
def test_convolution_is_its_sum(sort: str, path: Convolution, length: int, lags: int) -> None:
    x, w = noise("x", K, B, length, D), noise("w", K, lags, *SHAPES[sort])
    fast, slow = path(x, w), sums(x, w)
    torch.testing.assert_close(fast, slow, rtol=1e-11, atol=1e-11)
    for ours, theirs in zip(gradients(fast, x, w), gradients(slow, x, w), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("path", FOURIER)
def test_transforms_have_second_derivatives(path: Convolution) -> None:
    shape = SHAPES["full" if path is convolution.full_fourier else "depthwise"]
    x, w = noise("x", 1, 2, 4, D), noise("w", 1, 4, *shape)
    assert torch.autograd.gradgradcheck(path, (x, w))


@pytest.mark.parametrize("path", FOURIER)
def test_only_what_needs_a_gradient_gets_one(path: Convolution) -> None:
    shape = SHAPES["full" if path is convolution.full_fourier else "depthwise"]
    x, w = noise("x", K, B, 7, D), noise("w", K, 7, *shape)
    both = gradients(path(x, w), x, w)
    torch.testing.assert_close(gradients(path(x, w.detach()), x)[0], both[0])
    torch.testing.assert_close(gradients(path(x.detach(), w), w)[0], both[1])


@pytest.mark.parametrize("texts", [1, 2, 3, 6])
@pytest.mark.parametrize("group", [1, 4 * 5 * 64], ids=["pair by pair", "with a rest"])
def test_any_number_of_texts_and_one_weight_for_all_channels(
    texts: int, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convolution, "_GROUP", group)
    x, w = noise("x", K, texts, 33, D), noise("w", K, 33, 1)
    fast, slow = convolution.depthwise(x, w), convolution.shared_direct(x, w[..., 0])
    torch.testing.assert_close(fast, slow, rtol=1e-11, atol=1e-11)
    for ours, theirs in zip(gradients(fast, x, w), gradients(slow, x, w), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("length", [9, 150, 600], ids=["one product", "two products", "many points"])
def test_full_is_its_sum_however_its_points_are_divided(length: int) -> None:
    x, w = noise("x", K, B, length, 2), noise("w", K, length - 3, 2, 2)
    direct = convolution.full_direct(x, w)
    fast = convolution.full_fourier(x, w)
    torch.testing.assert_close(fast, direct, rtol=1e-10, atol=1e-10)
    for mine, reference in zip(gradients(fast, x, w), gradients(direct, x, w), strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("sort", "path"), [("depthwise", convolution.depthwise), ("full", convolution.full)])
def test_half_precision_is_transformed_in_full(sort: str, path: Convolution) -> None:
    x = noise("x", 1, 2, 301, D, dtype=torch.float32).bfloat16()
    w = noise("w", 1, 301, *SHAPES[sort], dtype=torch.float32)
    y = path(x, w)
    assert y.dtype == torch.bfloat16
    exact = path(x.double(), w.double())
    error = (y.double() - exact).norm() / exact.norm()
    assert error < 2**-8, "no more than the rounding of the result"


@given(length=st.integers(1, 40), lags=st.integers(1, 40), sort=st.sampled_from(sorted(SHAPES)))
@settings(max_examples=40, deadline=None)
def test_every_length_chooses_a_right_path(length: int, lags: int, sort: str) -> None:
    x, w = noise("x", 1, 1, length, 3), noise("w", 1, lags, *(3,) * len(SHAPES[sort]))
    torch.testing.assert_close(getattr(convolution, sort)(x, w), sums(x, w))


def test_long_texts_of_one_scalar_a_lag() -> None:
    x, w = noise("x", 1, 1, 301, 2), noise("w", 1, 301)
    torch.testing.assert_close(convolution.shared(x, w), convolution.shared_direct(x, w))


@given(least=st.integers(1, 5000))
def test_fast_length_is_the_first_even_one_of_small_primes(least: int) -> None:
    smooth = {2**a * 3**b * 5**c for a in range(1, 14) for b in range(9) for c in range(7)}
    assert fast_length(least) == min(number for number in smooth if number >= least)


def test_fourier_cost_is_that_of_its_butterflies() -> None:
    """Eight points: three rounds of four butterflies."""
    cost = fourier_cost(8, transforms=5, real=False)
    assert (cost.multiplications, cost.additions) == (5 * 12 * 4, 5 * 12 * 6)
    half = fourier_cost(8, transforms=5, real=True)
    assert (half.multiplications, half.additions) == (5 * 6 * 4, 5 * 6 * 6)
