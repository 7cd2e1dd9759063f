"""Gated linear attention against its recurrence (arXiv:2312.06635), token by token."""

from __future__ import annotations

import pytest
import torch
from phi_attention import LENGTHS, B, D, H, K, assert_same, noise, trained
from torch import Tensor, nn

from ablate.kinds.mixers.gated_linear_attention import GatedLinearAttentionSpec
from ablate.spec.layer import LayerContext

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
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", SETTINGS)
def test_gated_linear_attention_is_its_recurrence(name: str, length: int, padded: bool) -> None:
    assert_same(trained(SETTINGS[name], True, length), gated, length, padded)


def test_padding_anywhere_is_like_its_absence() -> None:
    """Padded tokens neither add to the state nor decay it: without them the other outputs are the same."""
    mixer = trained(GatedLinearAttentionSpec(), True, 13)
    x = noise("x", K, B, 13, D)
    real = torch.tensor([0, 2, 3, 5, 8, 9])
    padding = torch.zeros(K, B, 13, dtype=torch.bool).index_fill(2, real, True)
    torch.testing.assert_close(mixer(x, padding)[:, :, real], mixer(x[:, :, real]))


def test_strong_gates_are_finite_in_single_precision() -> None:
    mixer = trained(GatedLinearAttentionSpec(temperature=0.01), True, 71).float()
    x = (10 * noise("x", K, B, 71, D).float()).requires_grad_()
    y = mixer(x)
    assert y.isfinite().all()
    for gradient in torch.autograd.grad(y.sum(), [x, *mixer.parameters()]):
        assert gradient.isfinite().all()


def test_parameters_are_those_of_the_paper() -> None:
    """About 4d²: d_k = d/2, d_v = d, and the low-rank gate; here with biases b_r, b_α and the norm."""
    d, h = 64, 4
    context = LayerContext(1, d, h, depth=1, context=7, causal=True)
    maps = 2 * d * d // 2 + 3 * d * d
    gate = d * 16 + 16 * d // 2 + d // 2
    assert GatedLinearAttentionSpec().cost(context, 7).parameters == maps + gate + d + 2 * d // h
