"""Retention against its equations (arXiv:2307.08621), with complex numbers: the whole matrix, and the recurrence."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from every_pair import every_pair
from phi_attention import LENGTHS, D, H, noise, trained
from slow_forms import assert_equal_forms
from torch import Tensor, nn

from ablate.kinds.mixers.retention import RetentionSpec, _rotate

SETTINGS = {
    "paper": RetentionSpec(),
    "single_decay": RetentionSpec(decay="single"),
    "no_decay": RetentionSpec(decay="none"),
    "no_norm": RetentionSpec(norm=False),
    "no_gate": RetentionSpec(gate=False),
    "narrow": RetentionSpec(value_ratio=1),
}


def gamma(spec: RetentionSpec, h: int) -> float:
    return {"multi_scale": 1 - 2.0 ** (-5 - h), "single": 127 / 128, "none": 1.0}[spec.decay]


def turned(x: Tensor, n: int) -> Tensor:
    """x·e^(inθ) of one vector [d_h], as d_h/2 complex numbers."""
    d_h = len(x)
    theta = torch.tensor([10000 ** (-2 * i / d_h) for i in range(d_h // 2)], dtype=torch.float64)
    return torch.complex(x[0::2], x[1::2]) * torch.exp(1j * n * theta)


def retention(mixer: nn.Module, member: int, x: Tensor, real: list[bool]) -> Tensor:
    """One sequence [T, D] to the same."""
    length, d_h, e = len(x), D // H, mixer.spec.value_ratio * D // H
    Q, K_, V = (x @ getattr(mixer, name).weight[member] for name in ("query", "key", "value"))
    heads = []
    for h in range(H):
        columns, wide = slice(h * d_h, (h + 1) * d_h), slice(h * e, (h + 1) * e)
        q, k = ([turned(row[columns], n) for n, row in enumerate(rows)] for rows in (Q, K_))
        rows = []
        for n in range(length):
            seen = [m for m in range(n + 1) if real[m]]
            if not seen:
                rows.append(x.new_zeros(e))
                continue
            decays = [gamma(mixer.spec, h) ** (n - m) for m in seen]
            scores = [(q[n] * k[m].conj()).sum().real / math.sqrt(d_h) for m in seen]
            R = torch.stack([s * d / math.sqrt(sum(decays)) for s, d in zip(scores, decays, strict=True)])
            R = R / torch.clamp(R.sum().abs(), min=1)
            rows.append(R @ V[seen, wide])
        y = torch.stack(rows)
        if mixer.spec.norm:
            y = (y - y.mean(1, keepdim=True)) / torch.sqrt(y.var(1, correction=0, keepdim=True) + 1e-5)
        heads.append(y)
    y = torch.cat(heads, 1)
    if mixer.gate is not None:
        g = x @ mixer.gate.weight[member]
        y = g * torch.sigmoid(g) * y
    return y @ mixer.output.weight[member]


@pytest.mark.independent_check("mixers", "retention", against="arXiv:2307.08621, with complex numbers")
@every_pair({"name": SETTINGS, "length": LENGTHS[:2], "padded": [False, True]})
def test_retention_is_its_equation(name: str, length: int, padded: bool) -> None:
    assert_equal_forms(trained(SETTINGS[name], True, length), retention, length, D, padded)


def test_retention_beyond_a_chunk_is_its_recurrence() -> None:
    """S_n = γ·S_{n-1} + K_nᵀ·V_n, head_n = Q_n·S_n; the norm of each head makes its divisors matter through ε alone."""
    length = 71
    mixer = trained(RetentionSpec(gate=False), True, length, pack=1)
    x = noise("x", 1, 1, length, D)
    Q, K_, V = (m(x)[0, 0].unflatten(-1, (H, -1)) for m in (mixer.query, mixer.key, mixer.value))
    heads = []
    for h in range(H):
        S = torch.zeros(D // H // 2, V.shape[-1], dtype=torch.complex128)
        rows = []
        for n in range(length):
            S = gamma(mixer.spec, h) * S + turned(K_[n, h], n).conj()[:, None] * V[n, h]
            rows.append((turned(Q[n, h], n) @ S).real)
        heads.append(F.layer_norm(torch.stack(rows), (V.shape[-1],), eps=0))
    y = mixer.output(torch.cat(heads, 1)[None, None])
    torch.testing.assert_close(mixer(x), y, rtol=1e-2, atol=1e-2)


def test_last_channel_of_an_odd_head_is_not_rotated() -> None:
    x = torch.randn(1, 1, 3, 7, 7, generator=torch.Generator().manual_seed(0))
    angle = torch.arange(7.0)[:, None] * torch.tensor([1.0, 0.3, 0.1])
    turned_x = _rotate(x, angle.cos(), angle.sin())
    assert torch.equal(turned_x[..., -1], x[..., -1])
    torch.testing.assert_close(turned_x.norm(dim=-1), x.norm(dim=-1))
