"""The generative kernels (arXiv:2110.08323) against their equations, the network written with torch's own layers."""

from __future__ import annotations

import math

import pytest
import torch
from phi_attention import LENGTHS, D, H, Phi, assert_same, attend, trained
from torch import Tensor, nn

from ablate.kinds.mixers.generative import GenerativeSpec
from ablate.spec.layer import LayerContext

DRAWS = 5


def directions(generator: nn.Module, member: int) -> Tensor:
    """ω [R, d_h]: tanh(W₂·leaky(BN(W₁·ε + b₁)) + b₂)."""
    z = generator.noise[member] @ generator.hidden.weight[member] + generator.hidden.bias[member]
    z = nn.functional.batch_norm(
        z, None, None, generator.gain[member], generator.shift[member], training=True, eps=1e-5
    )
    z = nn.functional.leaky_relu(z, 0.01)
    return torch.tanh(z @ generator.directions.weight[member] + generator.directions.bias[member])


def phi(mixer: nn.Module, member: int, form: str) -> Phi:
    omegas = directions(mixer.features.generator, member)

    def rks(x: Tensor, head: int) -> Tensor:
        x = x / len(x) ** 0.25
        entries = [f((omega * x).sum()) / math.sqrt(DRAWS) for omega in omegas for f in (torch.cos, torch.sin)]
        return torch.stack([*entries, torch.ones((), dtype=x.dtype)])

    def prf(x: Tensor, head: int) -> Tensor:
        x = x / len(x) ** 0.25
        return torch.stack([torch.exp((omega * x).sum() - (x * x).sum()) / math.sqrt(DRAWS) for omega in omegas])

    return {"rks": rks, "prf": prf}[form]


@pytest.mark.independent_check("mixers", "generative", against="the equations, with torch's own layers")
@pytest.mark.parametrize("form", ["rks", "prf"])
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("length", LENGTHS[:3])
def test_generative_is_its_equation(length: int, causal: bool, padded: bool, form: str) -> None:
    mixer = trained(GenerativeSpec(form=form, samples=DRAWS), causal, length)
    assert_same(mixer, lambda m, k, x, real: attend(m, k, phi(m, k, form), causal, x, real), length, padded)


@pytest.mark.parametrize("form", ["rks", "prf"])
def test_training_and_evaluation_are_one(form: str) -> None:
    mixer = trained(GenerativeSpec(form=form), causal=False, length=13)
    x = torch.randn(2, 2, 13, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.equal(mixer.train()(x), mixer.eval()(x))


@pytest.mark.parametrize(
    ("form", "context", "draws"), [("rks", 4000, 256), ("prf", 4000, 256), ("rks", 100, 50), ("prf", 100, 100)]
)
def test_usual_number_of_draws(form: str, context: int, draws: int) -> None:
    """At d_h = 64: P = 256, and at most as many features as tokens."""
    mixer = GenerativeSpec(form=form).build(LayerContext(1, 64 * H, H, depth=1, context=context, causal=False))
    assert mixer.features.generator.noise.shape == (1, draws, 64)
