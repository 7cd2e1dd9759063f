"""FAVOR+ against its equations (arXiv:2009.14794), and against the softmax attention that it approximates."""

from __future__ import annotations

import math

import pytest
import torch
from phi_attention import LENGTHS, B, D, H, K, Phi, assert_same, attend, noise, trained
from torch import Tensor, nn

from ablate.kinds.mixers.attention import AttentionSpec
from ablate.kinds.mixers.performer import PerformerSpec
from ablate.nn.pack import initialise
from ablate.spec.layer import LayerContext

FEATURES = 11


def phi(mixer: nn.Module, member: int, kernel: str) -> Phi:
    omega = mixer.features.omega[member]

    def softmax(x: Tensor, head: int) -> Tensor:
        x = x / len(x) ** 0.25
        return torch.exp(omega @ x - (x * x).sum() / 2) / math.sqrt(len(omega))

    def relu(x: Tensor, head: int) -> Tensor:
        return torch.clamp(omega @ x, min=0) / math.sqrt(len(omega)) + 1e-3

    return {"softmax": softmax, "relu": relu}[kernel]


@pytest.mark.independent_check("mixers", "performer", against="arXiv:2009.14794, the whole matrix")
@pytest.mark.parametrize("kernel", ["softmax", "relu"])
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("length", LENGTHS[:3])
def test_performer_is_its_equation(length: int, causal: bool, padded: bool, kernel: str) -> None:
    mixer = trained(PerformerSpec(kernel=kernel, features=FEATURES), causal, length)
    assert_same(mixer, lambda m, k, x, real: attend(m, k, phi(m, k, kernel), causal, x, real), length, padded)


@pytest.mark.independent_check("mixers", "performer", against="softmax attention, which it approaches")
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
def test_performer_with_many_features_is_softmax_attention(causal: bool) -> None:
    """With one seed, both kinds start with the same maps, since these have the same names and shapes."""
    context = LayerContext(1, 4 * H, H, depth=1, context=13, causal=causal, init_std=0.15)
    mixers = [spec.build(context) for spec in (PerformerSpec(features=20_000), AttentionSpec())]
    for mixer in mixers:
        initialise(mixer, [3])
    x = torch.randn(1, B, 13, 4 * H, generator=torch.Generator().manual_seed(0))
    performer, softmax = (mixer(x) for mixer in mixers)
    gap = (performer - softmax).norm() / softmax.norm()
    assert gap < 0.03
    few = PerformerSpec(features=4).build(context)
    initialise(few, [3])
    assert (few(x) - softmax).norm() / softmax.norm() > 10 * gap


def test_large_keys_neither_overflow_nor_leak() -> None:
    """Keys of very different length, where the features of one alone are 0 or infinite in single precision."""
    mixer = trained(PerformerSpec(features=FEATURES), causal=True, length=33).float()
    x = noise("x", K, B, 33, D).float() * torch.logspace(-1, 2, 33)[:, None]
    y = mixer(x)
    assert y.isfinite().all()
    assert (y != 0).any(-1).all()
    changed = x.clone()
    changed[:, :, 20:] *= 100
    assert torch.equal(mixer(changed)[:, :, :20], y[:, :, :20])


def test_directions_are_of_the_seed() -> None:
    context = LayerContext(2, D, H, depth=1, context=13, causal=True)
    mixer = PerformerSpec().build(context)
    initialise(mixer, [4, 7])
    alone = PerformerSpec().build(LayerContext(1, D, H, depth=1, context=13, causal=True))
    initialise(alone, [7])
    assert torch.equal(mixer.features.omega[1], alone.features.omega[0])
    assert not torch.equal(mixer.features.omega[0], mixer.features.omega[1])
    assert "features.omega" not in dict(mixer.named_parameters())
