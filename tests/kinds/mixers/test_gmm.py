"""The Gaussian mixture kernels (arXiv:2110.08323) against their equations, one draw of noise at a time."""

from __future__ import annotations

import math

import pytest
import torch
from phi_attention import LENGTHS, Phi, assert_same, attend, trained
from torch import Tensor, nn

from ablate.kinds.mixers.gmm import GmmSpec
from ablate.spec.layer import LayerContext

DRAWS = 3


def phi(mixer: nn.Module, member: int, form: str) -> Phi:
    features = mixer.features
    noise, sigma, mean = (getattr(features, name)[member] for name in ("noise", "sigma", "mean"))

    def rks(x: Tensor, head: int) -> Tensor:
        x = x / len(x) ** 0.25
        entries = []
        for sign in (1, -1):
            for r in range(DRAWS):
                omega = sigma[head].mT @ noise[:, r] + sign * mean[head]
                entries += [f((omega * x).sum()) / math.sqrt(DRAWS) for f in (torch.cos, torch.sin)]
        return torch.stack([*entries, torch.ones((), dtype=x.dtype)])

    def prf(x: Tensor, head: int) -> Tensor:
        x = x / len(x) ** 0.25
        entries = []
        for r in range(DRAWS):
            omega = torch.exp(sigma[head] / 2) * noise[:, r] + mean[head]
            entries.append(torch.exp((omega * x).sum() - (x * x).sum()) / math.sqrt(DRAWS))
        return torch.stack(entries)

    return {"rks": rks, "prf": prf}[form]


@pytest.mark.independent_check("mixers", "gmm", against="the equations, one draw of noise at a time")
@pytest.mark.parametrize("form", ["rks", "prf"])
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("length", LENGTHS[:3])
def test_gmm_is_its_equation(length: int, causal: bool, padded: bool, form: str) -> None:
    mixer = trained(GmmSpec(form=form, samples=DRAWS), causal, length)
    assert_same(mixer, lambda m, k, x, real: attend(m, k, phi(m, k, form), causal, x, real), length, padded)


@pytest.mark.parametrize(
    ("form", "context", "draws"), [("rks", 4000, 256), ("prf", 4000, 256), ("rks", 100, 25), ("prf", 100, 100)]
)
def test_usual_number_of_draws(form: str, context: int, draws: int) -> None:
    """At d_h = 64: P = 256, and at most as many features as tokens."""
    mixer = GmmSpec(form=form).build(LayerContext(1, 128, 2, depth=1, context=context, causal=False))
    assert mixer.features.noise.shape == (1, 64, draws)
