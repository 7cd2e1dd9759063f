"""The token-mixing MLP against its equation, and its causal form against dense triangular matrices."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.kinds.mixers.mlp_mixer import CausalLinear, MLPMixer, MLPMixerSpec
from ablate.nn.pack import initialise
from ablate.nn.pack.initial import stream
from ablate.spec.layer import LayerContext

K, B, D, S = 2, 2, 6, 13
CONTEXT = LayerContext(K, D, heads=1, depth=3, context=S, causal=False, init_std=0.5)


def mlp_mixer(causal: bool, ratio: float = 1.5) -> MLPMixer:
    mixer = MLPMixerSpec(ratio=ratio).build(replace(CONTEXT, causal=causal)).double()
    initialise(mixer, list(range(K)))
    with torch.no_grad():
        for name, parameter in mixer.named_parameters():
            parameter += 0.5 * torch.randn(parameter.shape, generator=stream(9, name), dtype=torch.float64)
    return mixer


def dense(linear: torch.nn.Module, k: int) -> Tensor:
    """The whole matrix [in, out] of member k, entry by entry."""
    if not isinstance(linear, CausalLinear):
        return linear.weight[k]
    rows, columns = linear.shape
    matrix = torch.zeros(rows, columns, dtype=torch.float64)
    entries = iter(linear.weight[k])
    for i in range(rows):
        for j in range(columns):
            if i // (rows // S) <= j // (columns // S):
                matrix[i, j] = next(entries)
    assert next(entries, None) is None
    return matrix


def equation(mixer: MLPMixer, k: int, x: Tensor, real: Tensor) -> Tensor:
    """Channel by channel; what is not there is 0."""
    whole = torch.zeros(S, D, dtype=x.dtype)
    whole[: len(x)] = x * real[:, None]
    W_1, W_2 = dense(mixer.up, k), dense(mixer.down, k)
    columns = [F.gelu(whole[:, c] @ W_1 + mixer.up.bias[k]) @ W_2 + mixer.down.bias[k] for c in range(D)]
    return torch.stack(columns, 1)[: len(x)]


@pytest.mark.independent_check("mixers", "mlp_mixer", against="arXiv:2105.01601 eq. 1, with dense triangular matrices")
@pytest.mark.parametrize("length", [1, 7, 13])
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_mlp_mixer_is_its_equation(causal: bool, padded: bool, length: int) -> None:
    mixer = mlp_mixer(causal)
    x = torch.randn(K, B, length, D, generator=stream(1, "x"), dtype=torch.float64).requires_grad_()
    real = torch.ones(K, B, length, dtype=torch.bool)
    if padded:
        real = torch.arange(length) < torch.tensor([[1, 3], [length, 2]])[..., None]
    fast = mixer(x, real if padded else None)
    with torch.no_grad():
        slow = torch.stack([torch.stack([equation(mixer, k, x[k, b], real[k, b]) for b in range(B)]) for k in range(K)])
    torch.testing.assert_close(fast, slow)


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_gradients_are_those_of_the_equation(causal: bool) -> None:
    mixer = mlp_mixer(causal)
    x = torch.randn(K, B, 7, D, generator=stream(1, "x"), dtype=torch.float64).requires_grad_()
    direction = torch.randn(x.shape, generator=stream(1, "direction"), dtype=torch.float64)
    whole = torch.ones(7, dtype=torch.bool)
    slow = torch.stack([torch.stack([equation(mixer, k, x[k, b], whole) for b in range(B)]) for k in range(K)])
    inputs = [x, *mixer.parameters()]
    ours, theirs = (torch.autograd.grad((y * direction).sum(), inputs) for y in (mixer(x), slow))
    for mine, his in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, his)


def test_hidden_width_is_half_the_models_as_in_the_paper() -> None:
    context = replace(CONTEXT, width=512, context=196)  # Mixer-S/16: C 512, D_S 256
    assert MLPMixerSpec().hidden(context) == 256
    assert MLPMixerSpec().cost(context, 196).parameters == 2 * 196 * 256 + 196 + 256


def test_causal_form_gives_every_token_as_many_hidden_units() -> None:
    context = replace(CONTEXT, causal=True)
    for ratio, hidden in ((0.1, 13), (13 / D, 13), (14 / D, 26)):
        assert MLPMixerSpec(ratio=ratio).hidden(context) == hidden
