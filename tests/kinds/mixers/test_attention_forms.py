"""Grouped heads, query and key norm, rotary and ALiBi positions, cross-attention, against their equations.

Everything in float64, one row at a time. Shapes: K pack, B batch, T tokens, S tokens of the memory, D width, H heads,
G heads of keys and values, d_h = D/H.
"""

from __future__ import annotations

import cmath
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from slow_forms import perturbed
from torch import Tensor

from ablate.kinds.mixers.attention import AttentionSpec
from ablate.kinds.mixers.attention_module import Attention
from ablate.kinds.positions.alibi import AlibiSpec
from ablate.kinds.positions.rotary import RotarySpec
from ablate.nn.kernels.relative_positions import alibi_bias, rotate
from ablate.nn.pack.initial import stream
from ablate.spec.layer import LayerContext, PositionSpec

K, B, T, S, D, H, EPS = 2, 2, 7, 5, 24, 6, 1e-6
CONTEXT = LayerContext(K, D, H, depth=3, context=T, causal=False, init_std=0.5)
ROTARY, ALIBI = RotarySpec(), AlibiSpec()


def attention(settings: dict[str, Any], **context: Any) -> Attention:
    """A mixer in float64 whose every parameter is random."""
    mixer: Attention = perturbed(AttentionSpec.model_validate(settings), replace(CONTEXT, **context))
    return mixer


def noise(name: str, *shape: int) -> Tensor:
    return torch.randn(shape, generator=stream(1, name), dtype=torch.float64).requires_grad_()


def normed(row: Tensor, module: Any, kind: str, k: int) -> Tensor:
    """One query or key [d_h] through its norm."""
    if kind == "none":
        return row
    if kind == "layer":
        centred = row - row.mean()
        return module.weight[k] * centred / (centred.pow(2).mean() + EPS).sqrt() + module.bias[k]
    return module.weight[k] * row / (row.pow(2).mean() + EPS).sqrt()


def turned(row: Tensor, position: int, base: float) -> Tensor:
    """The pair (i, i + d/2) as a complex number, times e^(i·t·θ) with θ = base^(-2i/d)."""
    half = len(row) // 2
    angle = [position * base ** (-2 * i / len(row)) for i in range(half)]
    pairs = torch.complex(row[:half], row[half:]) * torch.tensor(
        [cmath.exp(1j * a) for a in angle], dtype=torch.complex128
    )
    return torch.cat([pairs.real, pairs.imag])


def slow(mixer: Attention, k: int, x: Tensor, memory: Tensor, real: list[bool]) -> Tensor:
    """One sequence [T, D] that reads `memory` [S, D]; `real` marks its visible positions."""
    spec, d_h = mixer.spec, mixer.query.weight.shape[-1] // H
    base = None if mixer.positions is None else mixer.positions.base
    window = mixer.window or T
    group = H // mixer.kv_heads
    itself = memory is x
    Q, K_, V = x @ mixer.query.weight[k], memory @ mixer.key.weight[k], memory @ mixer.value.weight[k]

    def placed(rows: Tensor, norm: Any) -> list[Tensor]:
        """Queries or keys [d_h] of one head, normed and turned."""
        each = [normed(row, norm, spec.query_key_norm.kind, k) for row in rows]
        return [turned(row, i, base) for i, row in enumerate(each)] if base else each

    heads = []
    for h in range(H):
        own, shared = (slice(at * d_h, (at + 1) * d_h) for at in (h, h // group))
        queries, keys = placed(Q[:, own], mixer.query_norm), placed(K_[:, shared], mixer.key_norm)
        slope = 2 ** (-8 * (h + 1) / H) if mixer.bias is not None else 0.0
        rows = []
        for i in range(len(x)):
            seen = [j for j in range(len(memory)) if (real[j] or (itself and i == j)) and (j <= i or not mixer.causal)]
            seen = [j for j in seen if not itself or abs(i - j) < window]
            logits = [queries[i] @ keys[j] / math.sqrt(d_h) - slope * abs(i - j) for j in seen]
            rows.append(torch.stack(logits).softmax(0) @ V[seen, shared])
        heads.append(torch.stack(rows))
    return torch.cat(heads, 1) @ mixer.output.weight[k]


FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "as many groups as heads": ({"kv_heads": H}, {}),
    "groups": ({"kv_heads": 2}, {}),
    "multi-query": ({"kv_heads": 1}, {}),
    "rms norm of queries and keys": ({"query_key_norm": "rms"}, {}),
    "layer norm of queries and keys": ({"query_key_norm": "layer", "kv_heads": 3}, {}),
    "rotary": ({}, {"positions": ROTARY}),
    "alibi": ({}, {"positions": ALIBI}),
    "rotary, groups, norm": ({"kv_heads": 2, "query_key_norm": "rms"}, {"positions": ROTARY}),
    "alibi, multi-query, norm": ({"kv_heads": 1, "query_key_norm": "rms"}, {"positions": ALIBI}),
    "rotary, another base": ({}, {"positions": RotarySpec(base=7.0)}),
    "window": ({}, {"window": 3}),
    "window of one token, groups": ({"kv_heads": 2}, {"window": 1}),
    "window, alibi": ({}, {"window": 4, "positions": ALIBI}),
    "wide heads": ({}, {"head_width": 10}),
    "narrow heads, groups, rotary, window": ({"kv_heads": 2}, {"head_width": 2, "positions": ROTARY, "window": 2}),
}


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("form", FORMS)
def test_it_is_its_equation(form: str, causal: bool, padded: bool) -> None:
    settings, context = FORMS[form]
    mixer = attention(settings, causal=causal, **context)
    x = noise("x", K, B, T, D)
    lengths = torch.tensor([[3, 7], [1, 5]]) if padded else torch.full((K, B), T)
    real = torch.arange(T) < lengths[..., None]
    y = mixer(x, real if padded else None)
    rows = [[slow(mixer, k, row, row, real[k, b].tolist()) for b, row in enumerate(x[k])] for k in range(K)]
    same(mixer, y, torch.stack([torch.stack(row) for row in rows]), [x], real)
    by_matrix = mixer.matrix(x, real if padded else None) @ heads_of(mixer, mixer.value(x))
    joined = mixer.output(by_matrix.transpose(2, 3).flatten(3))
    torch.testing.assert_close(joined[real], y[real], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("settings", [{}, {"kv_heads": 2, "query_key_norm": "rms"}], ids=["plain", "groups and norm"])
def test_cross_attention_reads_the_memory(settings: dict[str, Any], padded: bool) -> None:
    mixer = attention(settings, cross=True)
    x, memory = noise("x", K, B, T, D), noise("memory", K, B, S, D)
    lengths = torch.tensor([[3, 5], [1, 4]]) if padded else torch.full((K, B), S)
    real = torch.arange(S) < lengths[..., None]
    y = mixer(x, None, memory, real if padded else None)
    rows = [[slow(mixer, k, x[k, b], memory[k, b], real[k, b].tolist()) for b in range(B)] for k in range(K)]
    same(mixer, y, torch.stack([torch.stack(row) for row in rows]), [x, memory], None)


@pytest.mark.parametrize("order", ["qk_first", "kv_first"])
def test_cross_attention_without_softmax_takes_the_length_of_the_memory(order: str) -> None:
    """SimpleTRON's (1/√S)·Q·(Kᵀ·V), S being the real tokens that are read, the padded ones apart."""
    mixer = attention({"softmax": False, "scale": "length", "matmul_order": order}, cross=True, pack=1)
    x, memory = noise("x", 1, B, T, D), noise("memory", 1, B, S, D)
    real = (torch.arange(S) < 3).expand(1, B, S)
    Q, K_, V = (
        heads_of(mixer, m(source)) for m, source in ((mixer.query, x), (mixer.key, memory), (mixer.value, memory))
    )
    y = Q @ K_[..., :3, :].mT @ V[..., :3, :] / math.sqrt(3)
    torch.testing.assert_close(mixer(x, None, memory, real), mixer.output(y.transpose(2, 3).flatten(3)))


def heads_of(mixer: Attention, values: Tensor) -> Tensor:
    """[K, B, S, G·d_h] to [K, B, H, S, d_h], each head of values for its group."""
    apart = values.unflatten(-1, (mixer.kv_heads, -1)).transpose(2, 3)
    return apart.repeat_interleave(H // apart.shape[2], 2)


def same(mixer: Attention, ours: Tensor, slowly: Tensor, inputs: list[Tensor], real: Tensor | None) -> None:
    """Outputs at real tokens and all gradients."""
    where = slice(None) if real is None else real
    torch.testing.assert_close(ours[where], slowly[where], rtol=1e-9, atol=1e-9)
    direction = torch.randn(ours[where].shape, generator=stream(0, "direction"), dtype=torch.float64)
    given = [*inputs, *mixer.parameters()]
    for left, right in zip(
        *(torch.autograd.grad((y[where] * direction).sum(), given) for y in (ours, slowly)), strict=True
    ):
        torch.testing.assert_close(left, right, rtol=1e-8, atol=1e-8)


def test_half_precision_distinguishes_distant_positions() -> None:
    """bfloat16 counts to 256 only."""
    q = torch.ones(600, 8, dtype=torch.bfloat16)
    exact = rotate(q.double())
    assert (rotate(q).double() - exact).abs().max() < 0.02
    bias = alibi_bias(2, 600, torch.device("cpu"), torch.bfloat16)[1, 599]
    expected = -(2.0**-8) * torch.arange(599, -1, -1)
    torch.testing.assert_close(bias.float(), expected, rtol=2**-8, atol=0)


def test_slopes_of_alibi_are_geometric() -> None:
    """8 heads: 1/2, 1/4 ... 1/256, as the paper prints."""
    bias = alibi_bias(8, 3, torch.device("cpu"), torch.float64)
    assert bias[:, 2, 1].tolist() == [-(2.0**-h) for h in range(1, 9)]
    torch.testing.assert_close(bias, bias.mT)
    torch.testing.assert_close(bias[:, 2, 0], 2 * bias[:, 1, 0])


@pytest.mark.parametrize(("positions", "multiplications", "additions"), [(ROTARY, 4, 2), (ALIBI, 0, 0)])
def test_positions_cost_what_they_take(positions: PositionSpec, multiplications: int, additions: int) -> None:
    """Rotary: a complex product for each pair of queries and keys. ALiBi: a sum for each logit."""
    spec = AttentionSpec(kv_heads=2)
    plain, placed = (spec.cost(replace(CONTEXT, positions=p, causal=True), T) for p in (None, positions))
    pairs = T * (D + 2 * D // H) // 2
    logits = H * T * (T + 1) // 2 if positions == ALIBI else 0
    assert placed.multiplications - plain.multiplications == multiplications * pairs
    assert placed.additions - plain.additions == additions * pairs + logits
    assert placed.parameters == plain.parameters
