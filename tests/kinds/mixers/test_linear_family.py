"""Linear-time attention: kinds against their equations and recurrences, named blocks, and captures."""

from __future__ import annotations

import pytest
import torch
from every_pair import every_pair
from phi_attention import LENGTHS, B, D, H, K, attend, noise, trained
from slow_forms import assert_equal_forms
from torch import Tensor, nn

from ablate.kinds.mixers.feature_maps import LinearSpec
from ablate.kinds.mixers.gated_linear_attention import GatedLinearAttentionSpec


def phi(x: Tensor, head: int) -> Tensor:
    return torch.where(x > 0, x + 1, torch.exp(torch.clamp(x, max=0)))


@pytest.mark.independent_check("mixers", "linear", against="the whole matrix")
@every_pair({"length": LENGTHS, "causal": [True, False], "padded": [False, True]})
def test_linear_is_its_equation(length: int, causal: bool, padded: bool) -> None:
    mixer = trained(LinearSpec(), causal, length)
    assert_equal_forms(mixer, lambda m, k, x, real: attend(m, k, phi, causal, x, real), length, D, padded)


SETTINGS = {
    "paper": GatedLinearAttentionSpec(),
    "fast_fading": GatedLinearAttentionSpec(temperature=0.5, gate_rank=3),
}


def gated(mixer: nn.Module, member: int, x: Tensor, real: list[bool]) -> Tensor:
    """One sequence [T, D] to the same."""
    d_v, d_k = D // H, D // H // 2

    def weight(name: str) -> Tensor:
        return getattr(mixer, name).weight[member]

    Q, K_, V = (x @ weight(name) for name in ("query", "key", "value"))
    z = x @ weight("fade_down") @ weight("fade_up") + mixer.fade_up.bias[member]
    alpha = torch.sigmoid(z) ** (1 / mixer.spec.temperature)
    heads = []
    for h in range(H):
        narrow, wide = slice(h * d_k, (h + 1) * d_k), slice(h * d_v, (h + 1) * d_v)
        S = torch.zeros(d_k, d_v, dtype=x.dtype)
        rows = []
        for t in range(len(x)):
            if real[t]:
                S = alpha[t, narrow].diag() @ S + K_[t, narrow][:, None] * V[t, wide][None]
            rows.append(Q[t, narrow] @ S)
        o = torch.stack(rows)
        o = (o - o.mean(1, keepdim=True)) / torch.sqrt(o.var(1, correction=0, keepdim=True) + 1e-5)
        heads.append(o * mixer.norm.weight[member] + mixer.norm.bias[member])
    r = x @ weight("gate") + mixer.gate.bias[member]
    return (r * torch.sigmoid(r) * torch.cat(heads, 1)) @ weight("output")


@pytest.mark.independent_check("mixers", "gated_linear_attention", against="the recurrence, token by token")
@every_pair({"name": SETTINGS, "length": LENGTHS, "padded": [False, True]})
def test_gated_linear_attention_is_its_recurrence(name: str, length: int, padded: bool) -> None:
    assert_equal_forms(trained(SETTINGS[name], True, length), gated, length, D, padded)


def test_strong_gates_are_finite_in_single_precision() -> None:
    mixer = trained(GatedLinearAttentionSpec(temperature=0.01), True, 71).float()
    x = (10 * noise("x", K, B, 71, D).float()).requires_grad_()
    y = mixer(x)
    assert y.isfinite().all()
    for gradient in torch.autograd.grad(y.sum(), [x, *mixer.parameters()]):
        assert gradient.isfinite().all()
