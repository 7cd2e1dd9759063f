"""Kernels of features (Performer, FastFood, generative, Gaussian mixtures) against their equations, slowly and plainly.

arXiv:2009.14794 and arXiv:2110.08323; the Hadamard matrices of FastFood (arXiv:1408.3060) are made whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import scipy.linalg
import torch
from every_pair import every_pair
from phi_attention import LENGTHS, B, D, H, K, Phi, attend, noise, trained
from slow_forms import assert_equal_forms
from torch import Tensor, nn

from ablate.kinds.mixers.attention import AttentionSpec
from ablate.kinds.mixers.feature_maps import FastFoodSpec, PerformerSpec
from ablate.kinds.mixers.generative import GenerativeSpec
from ablate.kinds.mixers.gmm import GmmSpec
from ablate.nn.pack import initialise
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec

FEATURES = 11


def performer(mixer: nn.Module, member: int, kernel: str) -> Phi:
    omega = mixer.features.omega[member]

    def softmax(x: Tensor, head: int) -> Tensor:
        x = x / len(x) ** 0.25
        return torch.exp(omega @ x - (x * x).sum() / 2) / math.sqrt(len(omega))

    def relu(x: Tensor, head: int) -> Tensor:
        return torch.clamp(omega @ x, min=0) / math.sqrt(len(omega)) + 1e-3

    return {"softmax": softmax, "relu": relu}[kernel]


def projection(features: nn.Module, member: int) -> Tensor:
    """V = S·H·G·Π·H·B/√n, [n, n]."""
    S, G, B = (getattr(features, name)[member].diag() for name in ("scaling", "gaussian", "binary"))
    n = len(S)
    hadamard = torch.from_numpy(scipy.linalg.hadamard(n)).double()
    Pi = torch.eye(n, dtype=torch.float64)[features.permutation[member].long()]
    return S @ hadamard @ G @ Pi @ hadamard @ B / math.sqrt(n)


def fastfood(mixer: nn.Module, member: int, form: str) -> Phi:
    V = projection(mixer.features, member)
    n = len(V)

    def rks(x: Tensor, head: int) -> Tensor:
        u = V[:, : len(x)] @ (x / len(x) ** 0.25)
        return torch.cat([torch.cos(u) / math.sqrt(n), torch.sin(u) / math.sqrt(n), torch.ones(1, dtype=x.dtype)])

    def prf(x: Tensor, head: int) -> Tensor:
        x = x / len(x) ** 0.25
        return torch.exp(V[:, : len(x)] @ x - (x * x).sum()) / math.sqrt(n)

    return {"rks": rks, "prf": prf}[form]


def drawn(directions: Callable[[int, str], list[Tensor]], form: str) -> Phi:
    """Features by the directions ω of a head, for `rks` those of both signs."""

    def rks(x: Tensor, head: int) -> Tensor:
        x, omegas = x / len(x) ** 0.25, directions(head, "rks")
        draws = len(directions(head, "prf"))
        entries = [f((omega * x).sum()) / math.sqrt(draws) for omega in omegas for f in (torch.cos, torch.sin)]
        return torch.stack([*entries, torch.ones((), dtype=x.dtype)])

    def prf(x: Tensor, head: int) -> Tensor:
        x, omegas = x / len(x) ** 0.25, directions(head, "prf")
        return torch.stack([torch.exp((w * x).sum() - (x * x).sum()) / math.sqrt(len(omegas)) for w in omegas])

    return {"rks": rks, "prf": prf}[form]


def generative(mixer: nn.Module, member: int, form: str) -> Phi:
    """ω [R, d_h]: tanh(W₂·leaky(BN(W₁·ε + b₁)) + b₂)."""
    made = mixer.features.generator
    z = made.noise[member] @ made.hidden.weight[member] + made.hidden.bias[member]
    z = nn.functional.batch_norm(z, None, None, made.gain[member], made.shift[member], training=True, eps=1e-5)
    z = nn.functional.leaky_relu(z, 0.01)
    omegas = list(torch.tanh(z @ made.directions.weight[member] + made.directions.bias[member]))
    return drawn(lambda head, form: omegas, form)


def gmm(mixer: nn.Module, member: int, form: str) -> Phi:
    noise, sigma, mean = (getattr(mixer.features, name)[member] for name in ("noise", "sigma", "mean"))

    def directions(head: int, form: str) -> list[Tensor]:
        columns = noise.unbind(1)
        if form == "prf":
            return [torch.exp(sigma[head] / 2) * column + mean[head] for column in columns]
        return [sigma[head].mT @ column + sign * mean[head] for sign in (1, -1) for column in columns]

    return drawn(directions, form)


@pytest.mark.independent_check("mixers", "performer fastfood generative gmm", against="the equations of their papers")
@every_pair(
    {
        "length": LENGTHS[:2],
        "causal": [True, False],
        "padded": [False, True],
        "spec, phi, form": [
            *((PerformerSpec(kernel=kernel, features=FEATURES), performer, kernel) for kernel in ("softmax", "relu")),
            *((FastFoodSpec(form=form), fastfood, form) for form in ("rks", "prf")),
            *((GenerativeSpec(form=form, samples=5), generative, form) for form in ("rks", "prf")),
            *((GmmSpec(form=form, samples=3), gmm, form) for form in ("rks", "prf")),
        ],
    }
)
def test_a_kernel_is_its_equation(
    length: int, causal: bool, padded: bool, spec: MixerSpec, phi: Callable[[nn.Module, int, str], Phi], form: str
) -> None:
    mixer = trained(spec, causal, length)
    assert_equal_forms(mixer, lambda m, k, x, real: attend(m, k, phi(m, k, form), causal, x, real), length, D, padded)


@pytest.mark.independent_check("mixers", "performer", against="softmax attention, which it approaches")
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
def test_performer_with_many_features_is_softmax_attention(causal: bool) -> None:
    """With one seed, both kinds start with the same projections, since these have the same names and shapes."""
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


@pytest.mark.parametrize(
    ("spec", "feature"), [(PerformerSpec(), "omega"), (FastFoodSpec(), "permutation")], ids=["performer", "fastfood"]
)
def test_directions_are_of_the_seed(spec: MixerSpec, feature: str) -> None:
    made = []
    for seeds in ([4, 7], [7]):
        mixer = spec.build(LayerContext(len(seeds), 64, 2, depth=1, context=13, causal=False))
        initialise(mixer, seeds)
        made.append(getattr(mixer.features, feature))
    assert torch.equal(made[0][1], made[1][0])
    assert not torch.equal(made[0][0], made[0][1])
    assert f"features.{feature}" not in dict(mixer.named_parameters())
    if feature == "permutation":
        assert sorted(made[1][0].tolist()) == list(range(32))


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


@pytest.mark.parametrize("form", ["rks", "prf"])
def test_training_and_evaluation_are_one(form: str) -> None:
    mixer = trained(GenerativeSpec(form=form), causal=False, length=13)
    x = torch.randn(2, 2, 13, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.equal(mixer.train()(x), mixer.eval()(x))


@pytest.mark.parametrize(
    ("form", "context", "generated", "mixed"),
    [("rks", 4000, 256, 256), ("prf", 4000, 256, 256), ("rks", 100, 50, 25), ("prf", 100, 100, 100)],
)
def test_usual_number_of_draws(form: str, context: int, generated: int, mixed: int) -> None:
    """At d_h = 64: P = 256, and at most as many features as tokens."""
    layer = LayerContext(1, 128, 2, depth=1, context=context, causal=False)
    assert GenerativeSpec(form=form).build(layer).features.generator.noise.shape == (1, generated, 64)
    assert GmmSpec(form=form).build(layer).features.noise.shape == (1, 64, mixed)


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("kind", ["performer", "gmm", "fastfood", "generative"])
def test_positive_features_have_finite_gradients_at_extreme_queries(kind: str, causal: bool) -> None:
    """‖q'‖² from 1e2 to 1e8: outputs and gradients of the input and of all parameters, in single precision."""
    spec = MixerSpec.parse({"kind": kind} | ({} if kind == "performer" else {"form": "prf"}))
    for factor in (10.0, 200.0, 1000.0, 10_000.0):
        mixer = spec.build(LayerContext(1, 32, 2, depth=2, context=64, causal=causal, init_std=0.18))
        initialise(mixer, [0])
        with torch.no_grad():
            mixer.query.weight *= factor
            mixer.key.weight *= factor / 10
        x = noise("x", 1, 2, 64, 32).float().requires_grad_()
        y = mixer(x)
        for values in (y, *torch.autograd.grad(y.sum(), [x, *mixer.parameters()], materialize_grads=True)):
            assert values.isfinite().all()
