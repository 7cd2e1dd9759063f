"""The FastFood kernels (arXiv:2110.08323, arXiv:1408.3060) against their equations, every matrix made."""

from __future__ import annotations

import math

import pytest
import scipy.linalg
import torch
from phi_attention import LENGTHS, D, H, Phi, assert_same, attend, trained
from torch import Tensor, nn

from ablate.kinds.mixers.fastfood import FastFoodSpec
from ablate.nn.pack import initialise
from ablate.spec.layer import LayerContext


def projection(features: nn.Module, member: int) -> Tensor:
    """V = S·H·G·Π·H·B/√n, [n, n]."""
    S, G, B = (getattr(features, name)[member].diag() for name in ("scaling", "gaussian", "binary"))
    n = len(S)
    hadamard = torch.from_numpy(scipy.linalg.hadamard(n)).double()
    Pi = torch.eye(n, dtype=torch.float64)[features.permutation[member].long()]
    return S @ hadamard @ G @ Pi @ hadamard @ B / math.sqrt(n)


def phi(mixer: nn.Module, member: int, form: str) -> Phi:
    V = projection(mixer.features, member)
    n = len(V)

    def rks(x: Tensor, head: int) -> Tensor:
        u = V[:, : len(x)] @ (x / len(x) ** 0.25)
        return torch.cat([torch.cos(u) / math.sqrt(n), torch.sin(u) / math.sqrt(n), torch.ones(1, dtype=x.dtype)])

    def prf(x: Tensor, head: int) -> Tensor:
        x = x / len(x) ** 0.25
        return torch.exp(V[:, : len(x)] @ x - (x * x).sum()) / math.sqrt(n)

    return {"rks": rks, "prf": prf}[form]


@pytest.mark.independent_check("mixers", "fastfood", against="the equations, every matrix made")
@pytest.mark.parametrize("form", ["rks", "prf"])
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("length", LENGTHS[:3])
def test_fastfood_is_its_equation(length: int, causal: bool, padded: bool, form: str) -> None:
    mixer = trained(FastFoodSpec(form=form), causal, length)
    assert_same(mixer, lambda m, k, x, real: attend(m, k, phi(m, k, form), causal, x, real), length, padded)


@pytest.mark.parametrize(("heads", "n"), [(H, 4), (2, 8), (4, 4), (D, 1)])
def test_head_width_is_filled_up_to_a_power_of_two(heads: int, n: int) -> None:
    mixer = FastFoodSpec().build(LayerContext(1, D, heads, depth=1, context=7, causal=False))
    initialise(mixer, [0])
    x = torch.randn(1, 1, heads, 7, D // heads, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    V = projection(mixer.double().features, 0)
    assert V.shape == (n, n)
    expected = x @ V[:, : D // heads].mT / (D // heads) ** 0.25
    torch.testing.assert_close(mixer.features.project(x)[0], expected)
    (few,) = mixer.features.project(x[..., :1, :])  # factor by factor
    torch.testing.assert_close(few, expected[..., :1, :])


def test_permutation_is_one_and_of_the_seed() -> None:
    mixer = FastFoodSpec().build(LayerContext(2, 64, 2, depth=1, context=7, causal=False))
    initialise(mixer, [0, 1])
    first, second = mixer.features.permutation
    assert sorted(first.tolist()) == list(range(32))
    assert first.tolist() != second.tolist()
