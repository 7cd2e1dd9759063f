"""FNet against the sums of its two Fourier transforms."""

from __future__ import annotations

import cmath

import pytest
import torch
from torch import Tensor

from ablate.kinds.mixers.token_mixing import FNetSpec
from ablate.nn.pack.initial import stream
from ablate.spec.layer import LayerContext

K, B, D = 2, 2, 5
CONTEXT = LayerContext(K, D, heads=1, depth=3, context=33, causal=False)


def transform(size: int) -> Tensor:
    """F with F_{mn} = e^{-2πi·mn/size}."""
    entries = [[cmath.exp(-2j * cmath.pi * m * n / size) for n in range(size)] for m in range(size)]
    return torch.tensor(entries, dtype=torch.complex128)


@pytest.mark.parametrize("length", [1, 7, 13, 33])
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
def test_fnet_is_the_real_part_of_two_transforms(length: int, padded: bool) -> None:
    x = torch.randn(K, B, length, D, generator=stream(0, "x"), dtype=torch.float64).requires_grad_()
    direction = torch.randn(x.shape, generator=stream(0, "direction"), dtype=torch.float64)
    real = torch.arange(length) < (length + 1) // 2 if padded else torch.ones(length, dtype=torch.bool)
    fast = FNetSpec().build(CONTEXT)(x, real.expand(K, B, length) if padded else None)
    seen = (x * real[:, None]).to(torch.complex128)
    slow = (transform(length) @ seen @ transform(D)).real
    torch.testing.assert_close(fast, slow)
    ours, theirs = (torch.autograd.grad((y * direction).sum(), x)[0] for y in (fast, slow))
    torch.testing.assert_close(ours, theirs)


def test_half_precision_is_transformed_in_full() -> None:
    x = torch.randn(1, 2, 33, D, generator=stream(0, "x")).bfloat16()
    mixer = FNetSpec().build(CONTEXT)
    assert mixer(x).dtype == torch.bfloat16
    exact = mixer(x.double())
    assert (mixer(x).double() - exact).norm() / exact.norm() < 2**-8
