"""Linear-time attention: kinds against their equations and recurrences, named blocks, and captures."""

from __future__ import annotations

import pytest
import torch
from phi_attention import LENGTHS, B, D, H, K, assert_same, attend, noise, trained
from torch import Tensor, nn

from ablate.kinds.mixers.gated_linear_attention import GatedLinearAttentionSpec
from ablate.kinds.mixers.linear import LinearSpec
from ablate.kinds.mixers.retention import RetentionSpec
from ablate.spec.block import BlockSpec
from ablate.spec.layer import LayerContext
from ablate.spec.named import named_block
from ablate.spec.sublayers import MixerSpec


@pytest.mark.parametrize(
    "kind", ["linear", "performer", "gmm", "fastfood", "generative", "retention", "gated_linear_attention"]
)
def test_named_block_has_the_kind(kind: str) -> None:
    assert BlockSpec.model_validate(named_block(kind).block).mixer.kind_name() == kind


@pytest.mark.parametrize("spec", [RetentionSpec(), GatedLinearAttentionSpec()], ids=lambda spec: spec.kind_name())
def test_kinds_with_decay_have_no_bidirectional_form(spec: MixerSpec) -> None:
    assert spec.causal_form
    assert not spec.bidirectional_form


def phi(x: Tensor, head: int) -> Tensor:
    return torch.where(x > 0, x + 1, torch.exp(torch.clamp(x, max=0)))


@pytest.mark.independent_check("mixers", "linear", against="the whole matrix")
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("length", LENGTHS)
def test_linear_is_its_equation(length: int, causal: bool, padded: bool) -> None:
    mixer = trained(LinearSpec(), causal, length)
    assert_same(mixer, lambda m, k, x, real: attend(m, k, phi, causal, x, real), length, padded)


@pytest.mark.independent_check("mixers", "linear", against="arXiv:2006.16236 eqs 16 to 20, token by token")
def test_causal_linear_is_its_recurrence() -> None:
    """Eqs 16 to 20: s_t = s_{t-1} + φ(k_t)·v_tᵀ, z_t = z_{t-1} + φ(k_t), y_t = φ(q_t)ᵀ·s_t / φ(q_t)ᵀ·z_t."""
    length = 33
    mixer = trained(LinearSpec(), causal=True, length=length, pack=1)
    x = noise("x", 1, B, length, D)
    q, k, v = (m(x)[0].unflatten(-1, (H, -1)) for m in (mixer.query, mixer.key, mixer.value))
    q, k = phi(q, 0), phi(k, 0)
    s, z = torch.zeros(B, H, D // H, D // H, dtype=x.dtype), torch.zeros(B, H, D // H, dtype=x.dtype)
    rows = []
    for t in range(length):
        s, z = s + k[:, t, :, :, None] * v[:, t, :, None, :], z + k[:, t]
        rows.append(torch.einsum("bhd,bhde->bhe", q[:, t], s) / (q[:, t] * z).sum(-1, keepdim=True))
    y = mixer.output(torch.stack(rows, 1).flatten(2)[None])
    torch.testing.assert_close(mixer(x), y, rtol=1e-10, atol=1e-10)


def test_last_causal_row_is_the_last_bidirectional_row() -> None:
    mixers = [trained(LinearSpec(), causal, 13) for causal in (True, False)]
    causal, both = (mixer(noise("x", 2, B, 13, D)) for mixer in mixers)
    torch.testing.assert_close(causal[:, :, -1], both[:, :, -1])


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
