"""Gated DeltaNet, Kimi Delta Attention, Mamba-2, RWKV-7 and mLSTM against their recurrences, token by token.

Each is written again for one sequence in the symbols of its paper; outputs and gradients in float64, at odd lengths,
with padding on the left and on the right. Shapes: K pack, B batch, T tokens, D width.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from slow_forms import perturbed
from torch import Tensor

from ablate.kinds.mixers.channel_mixing import ChannelMixingSpec
from ablate.kinds.mixers.gated_deltanet import GatedDeltaNetSpec
from ablate.kinds.mixers.kimi_delta_attention import KimiDeltaAttentionSpec
from ablate.kinds.mixers.mamba2 import Mamba2Spec
from ablate.kinds.mixers.mamba3 import Mamba3Spec
from ablate.kinds.mixers.mlstm import MLSTMSpec
from ablate.kinds.mixers.rwkv7 import RWKV7Spec, _decay_bias, _removal_bias
from ablate.nn.kernels.flash_linear import installed
from ablate.nn.pack import initialise
from ablate.nn.pack.initial import stream
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec

K, B, D, H = 2, 3, 12, 3
CONTEXT = LayerContext(K, D, H, depth=5, context=64, causal=True, init_std=0.4)


def noise(name: str, *shape: int) -> Tensor:
    return torch.randn(shape, generator=stream(1, name), dtype=torch.float64)


def convolved(x: Tensor, convolution: Any, k: int) -> Tensor:
    """SiLU of a causal convolution of each channel, [T, C]."""
    weight, taps = convolution.weight[k], convolution.taps
    rows = []
    for t in range(len(x)):
        y = sum(weight[:, taps - 1 - lag] * x[t - lag] for lag in range(taps) if t >= lag)
        if convolution.bias is not None:
            y = y + convolution.bias[k]
        rows.append(y * torch.sigmoid(y))
    return torch.stack(rows)


def split(x: Tensor, heads: int, h: int) -> Tensor:
    """The channels of head h."""
    width = x.shape[-1] // heads
    return x[..., h * width : (h + 1) * width]


def unit(x: Tensor) -> Tensor:
    return x / (x @ x + 1e-6).sqrt()


def rms(x: Tensor, eps: float) -> Tensor:
    return x / (x.pow(2).mean() + eps).sqrt()


def delta(q: list[Tensor], k: list[Tensor], v: list[Tensor], beta: list[Tensor], g: list[Tensor]) -> list[Tensor]:
    """S ← diag(e^g)·S; S ← S + k·(β·(v - Sᵀ·k))ᵀ; o = Sᵀ·q."""
    S, rows = torch.zeros(len(k[0]), len(v[0]), dtype=torch.float64), []
    for t in range(len(q)):
        S = g[t].exp().expand(len(k[t]))[:, None] * S
        S = S + torch.outer(k[t], beta[t] * (v[t] - S.mT @ k[t]))
        rows.append(S.mT @ q[t])
    return rows


def gated_deltanet(mixer: Any, k: int, x: Tensor, real: list[bool], shared: tuple[Tensor, ...]) -> Tensor:
    """As flash-linear-attention's naive form of DeltaProduct: one decay, then n corrections, then one reading."""
    x = x * torch.tensor(real)[:, None]
    heads, groups, d_k, d_v = mixer.spec.sizes(replace(CONTEXT, pack=1))
    n = mixer.spec.writes
    Q, K_, V = (convolved(x @ getattr(mixer, name).weight[k], getattr(mixer, f"{name}_convolution"), k)
                for name in ("query", "key", "value"))  # fmt: skip
    betas = torch.sigmoid(x @ mixer.strength.weight[k]) * (2 if mixer.spec.negative_eigenvalues else 1)
    made = []
    for h in range(heads):
        g = h // (heads // groups)
        step = F.softplus((x @ mixer.fade.weight[k])[:, h] + mixer.decay.bias[k, h])
        S, rows = torch.zeros(d_k, d_v, dtype=torch.float64), []
        for t in range(len(x)):
            S = (-mixer.decay.rate[k, h].exp() * step[t]).exp() * S
            for j in range(n):
                key = unit(K_[t, (j * groups + g) * d_k : (j * groups + g + 1) * d_k])
                value = V[t, (j * heads + h) * d_v : (j * heads + h + 1) * d_v]
                S = S + torch.outer(key, betas[t, j * heads + h] * (value - S.mT @ key))
            rows.append(rms(S.mT @ (unit(split(Q, groups, g)[t]) / math.sqrt(d_k)), 1e-6) * mixer.norm.weight[k])
        z = split(x @ mixer.gate.weight[k], heads, h)
        made.append(torch.stack(rows) * z * torch.sigmoid(z))
    return torch.cat(made, 1) @ mixer.output.weight[k]


def kimi(mixer: Any, k: int, x: Tensor, real: list[bool], shared: tuple[Tensor, ...]) -> Tensor:
    x = x * torch.tensor(real)[:, None]
    Q, K_, V = (convolved(x @ getattr(mixer, name).weight[k], getattr(mixer, f"{name}_convolution"), k)
                for name in ("query", "key", "value"))  # fmt: skip
    made = []
    for h in range(H):
        q, key, v = (split(one, H, h) for one in (Q, K_, V))
        beta = torch.sigmoid(x @ mixer.strength.weight[k])[:, h]
        raw = x @ mixer.fade_down.weight[k] @ mixer.fade_up.weight[k] + mixer.decay.bias[k]
        g = -mixer.decay.rate[k, h].exp() * F.softplus(split(raw, H, h))
        o = delta(
            [unit(row) / math.sqrt(len(row)) for row in q], [unit(row) for row in key], list(v), list(beta), list(g)
        )
        normed = torch.stack([rms(row, 1e-5) * mixer.norm.weight[k] for row in o])
        if mixer.spec.gate != "none":
            gate = x @ mixer.gate_down.weight[k] @ mixer.gate_up.weight[k]
            if mixer.gate_up.bias is not None:
                gate = gate + mixer.gate_up.bias[k]
            gate = split(gate, H, h)
            normed = normed * torch.sigmoid(gate) * (gate if mixer.spec.gate == "silu" else 1)
        made.append(normed)
    return torch.cat(made, 1) @ mixer.output.weight[k]


def mamba2(mixer: Any, k: int, x: Tensor, real: list[bool], shared: tuple[Tensor, ...]) -> Tensor:
    mask = torch.tensor(real)[:, None]
    x = x * mask
    wide, heads, P = mixer.spec.sizes(replace(CONTEXT, pack=1))
    G, N = mixer.spec.groups, mixer.spec.state
    made = convolved(x @ mixer.inputs.weight[k], mixer.convolution, k) * mask
    values, keys, queries = made[:, :wide], made[:, wide : wide + G * N], made[:, wide + G * N :]
    rows = []
    for h in range(heads):
        g = h // (heads // G)
        u, Bs, Cs = split(values, heads, h), split(keys, G, g), split(queries, G, g)
        dt = F.softplus((x @ mixer.step_size.weight[k])[:, h] + mixer.space.bias[k, h])
        A = -mixer.space.rate[k, h].exp()
        S, y = torch.zeros(P, N, dtype=torch.float64), []
        for t in range(len(x)):
            S = (dt[t] * A).exp() * S + dt[t] * torch.outer(u[t], Bs[t])
            y.append(S @ Cs[t] + mixer.space.skip[k, h] * u[t])
        rows.append(torch.stack(y))
    z = x @ mixer.gate.weight[k]
    gated = torch.cat(rows, 1) * z * torch.sigmoid(z)
    normed = torch.cat([torch.stack([rms(row, 1e-5) for row in split(gated, G, g)]) for g in range(G)], 1)
    return (normed * mixer.norm.weight[k]) @ mixer.output.weight[k]


def mamba3(mixer: Any, k: int, x: Tensor, real: list[bool], shared: tuple[Tensor, ...]) -> Tensor:
    """The two inputs of a trapezoidal step are added to the state one after the other."""
    mask, spec = torch.tensor(real)[:, None], mixer.spec
    x = x * mask
    wide, heads, P = spec.sizes(replace(CONTEXT, pack=1))
    G, N, R = spec.groups, spec.state, spec.ranks
    made = x @ mixer.inputs.weight[k]
    if spec.taps:
        made = convolved(made, mixer.convolution, k) * mask
    values, keys, queries = made[:, :wide], made[:, wide : wide + R * G * N], made[:, wide + R * G * N :]
    numbers, z = x @ mixer.numbers.weight[k], x @ mixer.gate.weight[k]

    def turned(row: Tensor, angles: Tensor) -> Tensor:
        head = torch.view_as_complex(row[: 2 * len(angles)].reshape(-1, 2).contiguous()) if len(angles) else row[:0]
        spun = head * torch.polar(torch.ones_like(angles), angles) if len(angles) else head
        return torch.cat([torch.view_as_real(spun).flatten() if len(angles) else row[:0], row[2 * len(angles) :]])

    outputs = []
    for h in range(heads):
        g = h // (heads // G)
        u, zs = split(values, heads, h), split(z, heads, h)
        dt = F.softplus(numbers[:, h] + mixer.step_bias[k, h])
        A = -F.softplus(numbers[:, heads + h]).clamp(min=1e-4)
        lam = torch.sigmoid(numbers[:, 2 * heads + h]) if spec.trapezoid else torch.ones(len(x), dtype=x.dtype)
        S, phi = torch.zeros(P, N, dtype=torch.float64), torch.zeros(0, dtype=torch.float64)
        before: tuple[list[Tensor], list[Tensor]] | None = None
        rows = []
        for t in range(len(x)):
            if mixer.turn is not None:
                turn = math.pi * torch.tanh(x[t] @ mixer.turn.weight[k]) * dt[t]
                phi = turn if t == 0 else phi + turn
            B: list[Tensor] = []
            C: list[Tensor] = []
            ins: list[Tensor] = []
            for r in range(R):
                place = slice((r * G + g) * N, (r * G + g + 1) * N)
                for rows_of, source, norm, bias in (
                    (B, keys, mixer.key_norm, "key_bias"),
                    (C, queries, mixer.query_norm, "query_bias"),
                ):
                    row = rms(source[t, place], 1e-5) * norm.weight[k]
                    rows_of.append(turned(row + (getattr(mixer, bias)[k, h, r] if spec.bias != "none" else 0), phi))
                ins.append(u[t] * (mixer.input_gain[k, h, r] if R > 1 else 1))
            fade = (dt[t] * A[t]).exp()
            S = fade * S
            for r in range(R):
                if before is not None:
                    S = S + (1 - lam[t]) * dt[t] * fade * torch.outer(before[1][r], before[0][r])
                S = S + lam[t] * dt[t] * torch.outer(ins[r], B[r])
            before = (B, ins)
            total = torch.zeros(P, dtype=torch.float64)
            for r in range(R):
                gate = zs[t] * (mixer.gate_gain[k, h, r] if R > 1 else 1)
                y = (S @ C[r] + mixer.skip[k, h] * ins[r]) * gate * torch.sigmoid(gate)
                total = total + y * (mixer.output_gain[k, h, r] if R > 1 else 1)
            rows.append(total)
        outputs.append(torch.stack(rows))
    return torch.cat(outputs, 1) @ mixer.output.weight[k]


def rwkv7(mixer: Any, k: int, x: Tensor, real: list[bool], shared: tuple[Tensor, ...]) -> Tensor:
    mask = torch.tensor(real)[:, None]
    x = x * mask
    before = torch.cat([torch.zeros_like(x[:1]), x[:-1]])

    def mixed(name: str) -> Tensor:
        return x + (before - x) * getattr(mixer.shift, f"share_{name}")[k]

    def low(part: Any, x: Tensor, act: Any) -> Tensor:
        y = act(x @ part.down.weight[k]) @ part.up.weight[k]
        return y if part.up.bias is None else y + part.up.bias[k]

    def same(y: Tensor) -> Tensor:
        return y

    gains = mixer.channels
    r, key, v = (mixed(n) @ getattr(mixer, m).weight[k] for n, m in (("r", "receptance"), ("k", "key"), ("v", "value")))
    if mixer.value_share is not None:
        v = v + (shared[0] - v) * torch.sigmoid(low(mixer.value_share, mixed("v"), same))
    v = v * mask
    w = torch.exp(-math.exp(-0.5) * torch.sigmoid(low(mixer.decay, mixed("w"), torch.tanh)))
    a = torch.sigmoid(low(mixer.removal, mixed("a"), same))
    gate = low(mixer.gate, mixed("g"), torch.sigmoid)
    kappa = key * gains.read[k]
    key = key * (1 + (a - 1) * gains.replaced[k])
    rows = []
    for h in range(H):
        rh, kh, vh, wh, ah, kap = (split(one, H, h) for one in (r, key, v, w, a, kappa))
        S, outs = torch.zeros(D // H, D // H, dtype=torch.float64), []
        for t in range(len(x)):
            hat = kap[t] / kap[t].norm().clamp(min=1e-12)
            S = wh[t].diag() @ S - torch.outer(hat * ah[t], hat @ S) + torch.outer(kh[t], vh[t])
            o = S.mT @ rh[t]
            o = (o - o.mean()) / (o.var(correction=0) + D // H * 1e-5).sqrt()
            o = o * split(gains.weight[k], H, h) + split(gains.bias[k], H, h)
            outs.append(o + (rh[t] * kh[t] * split(gains.own[k], H, h)).sum() * vh[t])
        rows.append(torch.stack(outs))
    return (torch.cat(rows, 1) * gate) @ mixer.output.weight[k]


def mlstm(mixer: Any, k: int, x: Tensor, real: list[bool], shared: tuple[Tensor, ...]) -> Tensor:
    def gate(part: Any) -> Tensor:
        return 15 * torch.tanh((x @ part.weight[k] + part.bias[k]) / 15)

    i, f = gate(mixer.input), gate(mixer.forget)
    Q, K_, V = (x @ getattr(mixer, name).weight[k] for name in ("query", "key", "value"))
    heads = []
    for h in range(H):
        q, key, v = (split(one, H, h) for one in (Q, K_, V))
        C = torch.zeros(key.shape[1], v.shape[1], dtype=torch.float64)
        n, m, rows = torch.zeros(key.shape[1], dtype=torch.float64), torch.zeros((), dtype=torch.float64), []
        for t in range(len(x)):
            if real[t]:
                keep = F.logsigmoid(f[t, h])
                new = torch.maximum(keep + m, i[t, h])
                fade, write = (keep + m - new).exp(), (i[t, h] - new).exp()
                C, n, m = fade * C + write * torch.outer(key[t], v[t]), fade * n + write * key[t], new
            scaled = q[t] / math.sqrt(len(q[t]))
            row = (C.mT @ scaled) / (torch.maximum((n @ scaled).abs(), (-m).exp()) + 1e-6)
            rows.append((row - row.mean()) / (row.var(correction=0) + 1e-6).sqrt())
        heads.append(torch.stack(rows))
    normed = torch.cat(heads, 1) * mixer.norm.weight[k]
    return (normed * torch.sigmoid(x @ mixer.gate.weight[k])) @ mixer.output.weight[k]


LATER = replace(CONTEXT, layer=3)
FORMS: dict[str, tuple[Any, MixerSpec, LayerContext]] = {
    "gated_deltanet": (gated_deltanet, GatedDeltaNetSpec(), CONTEXT),
    "gated_deltanet, groups": (
        gated_deltanet,
        GatedDeltaNetSpec(heads=4, key_heads=2, key_width=3, value_width=5, taps=2, negative_eigenvalues=True),
        CONTEXT,
    ),
    "gated_deltanet, products": (
        gated_deltanet,
        GatedDeltaNetSpec(heads=4, key_heads=2, key_width=3, value_width=5, writes=3, negative_eigenvalues=True),
        CONTEXT,
    ),
    "kimi_delta_attention": (kimi, KimiDeltaAttentionSpec(), CONTEXT),
    "kimi_delta_attention, no gate": (kimi, KimiDeltaAttentionSpec(gate="none"), CONTEXT),
    "kimi_delta_attention, SiLU": (kimi, KimiDeltaAttentionSpec(gate="silu"), CONTEXT),
    "kimi_delta_attention, gate with bias": (kimi, KimiDeltaAttentionSpec(rank=2, gate_bias=True), CONTEXT),
    "mamba2": (mamba2, Mamba2Spec(state=5, head_width=4), CONTEXT),
    "mamba2, groups": (mamba2, Mamba2Spec(state=3, head_width=6, groups=2, taps=3), CONTEXT),
    "mamba3": (mamba3, Mamba3Spec(state=6, head_width=4), CONTEXT),
    "mamba3, ranks": (mamba3, Mamba3Spec(state=4, head_width=6, groups=2, ranks=3, rotary_fraction=1), CONTEXT),
    "mamba3, convolution": (mamba3, Mamba3Spec(state=5, head_width=8, taps=3, rotary_fraction=0, bias="none"), CONTEXT),
    "mamba3, one input": (
        mamba3,
        Mamba3Spec(state=4, head_width=12, trapezoid=False, bias="fixed", bias_start="symmetric"),
        CONTEXT,
    ),
    "rwkv7": (rwkv7, RWKV7Spec(), CONTEXT),
    "rwkv7, later layer": (rwkv7, RWKV7Spec(decay_rank=3, value_rank=2, gate_rank=5), LATER),
    "mlstm": (mlstm, MLSTMSpec(), CONTEXT),
    "mlstm, wide keys": (mlstm, MLSTMSpec(key_share=1), CONTEXT),
}


def call(mixer: Any, x: Tensor, padding: Tensor | None, shared: tuple[Tensor, ...]) -> Tensor:
    made = mixer(x, padding, shared=shared) if shared else mixer(x, padding)
    return made if isinstance(made, Tensor) else made[0]


@pytest.mark.independent_check(
    "mixers", "gated_deltanet kimi_delta_attention mamba2 mamba3 mlstm", against="the recurrence, token by token"
)
@pytest.mark.independent_check("mixers", "rwkv7", against="arXiv:2503.14456 eqs 3 to 18, token by token")
@pytest.mark.independent_check("models", "rwkv7", against="arXiv:2503.14456 eqs 3 to 18, token by token")
@pytest.mark.parametrize("length", [1, 37])
@pytest.mark.parametrize("name", FORMS)
def test_it_is_its_recurrence(name: str, length: int) -> None:
    """Rows with padding on the right, on the left and without any; decoding has none, and gives the same."""
    slow, spec, told = FORMS[name]
    place, rows = torch.arange(length), 2
    right, left, none = place < max(1, length - 3), place >= length // 3, place >= 0
    real = torch.stack([right, left, none, right]).view(K, rows, length)
    mixer, x = perturbed(spec, told), noise("x", K, rows, length, D).requires_grad_()
    shared = tuple(noise(one.name, K, rows, length, *one.sizes) for one in spec.reads(told))
    fast = call(mixer, x, real, shared)
    reference = torch.stack(
        [torch.stack([slow(mixer, k, x[k, b], real[k, b].tolist(), tuple(one[k, b] for one in shared))
                      for b in range(rows)]) for k in range(K)]
    )  # fmt: skip
    torch.testing.assert_close(fast[real], reference[real], rtol=1e-8, atol=1e-8)
    direction = noise("direction", *fast.shape) * real[..., None]
    names, tensors = ["x", *(n for n, _ in mixer.named_parameters())], [x, *mixer.parameters()]
    gradients = [torch.autograd.grad((y * direction).sum(), tensors, allow_unused=True, materialize_grads=True)
                 for y in (fast, reference)]  # fmt: skip
    for one, ours, theirs in zip(names, *gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7, msg=lambda text, one=one: f"{one}: {text}")


@pytest.mark.parametrize("name", FORMS)
def test_it_decodes_token_by_token(name: str) -> None:
    _, spec, told = FORMS[name]
    mixer, x = perturbed(spec, told), noise("x", K, B, 37, D)
    shared = tuple(noise(one.name, K, B, 37, *one.sizes) for one in spec.reads(told))
    whole, state = call(mixer, x, None, shared), ()
    for t in range(37):
        now = tuple(one[:, :, t : t + 1] for one in shared)
        y, state, *_ = mixer.step(x[:, :, t : t + 1], t, state, **({"shared": now} if now else {}))
        torch.testing.assert_close(y, whole[:, :, t : t + 1], rtol=1e-8, atol=1e-8)
    kept = sum(one[0, 0].numel() for one in state)
    assert kept == spec.cache(told, 37)


def test_decays_of_rwkv7_start_by_the_share_of_the_depth_below_their_layer() -> None:
    def started(layer: int, depth: int) -> Tensor:
        mixer = RWKV7Spec().build(LayerContext(1, 12, 3, depth=depth, context=7, causal=True, layer=layer))
        initialise(mixer, [0])
        return mixer.decay.up.bias.detach()  # type: ignore[union-attr, operator, return-value]

    assert torch.equal(started(0, 1), started(0, 5))
    assert torch.equal(started(1, 2), started(4, 5))
    assert torch.equal(started(1, 3), started(2, 5))
    assert not torch.allclose(started(0, 5), started(4, 5))


def test_the_library_of_kernels_is_no_dependency() -> None:
    """What runs here is the form in torch."""
    assert not installed()


@pytest.mark.independent_check("mixers", "channel_mixing", against="arXiv:2503.14456 eqs 22 and 23, token by token")
@pytest.mark.independent_check("models", "rwkv7", against="arXiv:2503.14456 eqs 22 and 23, token by token")
def test_channel_mixing_is_its_equation() -> None:
    """Equations 22 and 23 of arXiv:2503.14456, token by token, with padding; and step by step."""
    mixer = perturbed(ChannelMixingSpec(ratio=1.5), CONTEXT)
    x, place = noise("x", K, B, 7, D), torch.arange(7)
    padding = torch.stack([place < 5, place >= 2, place >= 0]).expand(K, B, 7)
    y = mixer(x, padding)
    for k in range(K):
        for b in range(B):
            before = torch.zeros(D, dtype=torch.float64)
            for t in range(7):
                now = x[k, b, t] * padding[k, b, t]
                mixed = now + (before - now) * mixer.share[k]
                expected = F.relu(mixed @ mixer.key.weight[k]) ** 2 @ mixer.value.weight[k]
                torch.testing.assert_close(y[k, b, t], expected)
                before = now
    whole, state = mixer(x), ()
    for t in range(7):
        step, state = mixer.step(x[:, :, t : t + 1], t, state)
        torch.testing.assert_close(step, whole[:, :, t : t + 1])


THEIRS: dict[str, tuple[MixerSpec, tuple[float, float, float]]] = {
    "gated_deltanet": (
        GatedDeltaNetSpec(
            heads=4, key_heads=2, key_width=3, value_width=6, taps=3, negative_eigenvalues=True, eps=1e-3
        ),
        (0.03385539179239, -0.2329498171804, 5.672880211877),
    ),
    "deltaproduct": (
        GatedDeltaNetSpec(
            heads=4, key_heads=2, key_width=3, value_width=6, writes=3, negative_eigenvalues=True, eps=1e-3
        ),
        (-0.3155630642243, 0.002962809259555, 3.058163362485),
    ),
    "deltaproduct, no convolution": (
        GatedDeltaNetSpec(heads=4, key_heads=2, key_width=3, value_width=6, writes=2, taps=0, eps=1e-3),
        (-0.6474280733634, 1.06574967945, 1.539599060896),
    ),
    "kimi_delta_attention": (
        KimiDeltaAttentionSpec(gate_bias=True, heads=2, head_width=5, taps=3, eps=1e-3),
        (-0.3075676903506, -0.08693575347748, 12.89812573322),
    ),
    "mamba3": (
        Mamba3Spec(state=6, head_width=4, rotary_fraction=1),
        (0.4709243037222, -0.5344839098625, 1.928209830451),
    ),
    "mamba3, half rotated": (Mamba3Spec(state=8, head_width=8), (-0.3963772532684, 0.8176974059285, -1.405165225883)),
    "mamba3, ranks": (
        Mamba3Spec(state=6, head_width=8, ranks=2, rotary_fraction=1),
        (1.621156841099, -7.965268620245, -0.2980222069208),
    ),
}


@pytest.mark.independent_check(
    "mixers",
    "gated_deltanet kimi_delta_attention mamba3",
    against="numbers made by the layers of `flash-linear-attention` and the references of `state-spaces/mamba`",
)
@pytest.mark.parametrize("name", THEIRS)
def test_outputs_and_gradients_are_those_of_the_published_layers(name: str) -> None:
    """Sums of outputs and of gradients of the input and of all parameters, each entry with its own weight.

    The numbers are of flash-linear-attention at bc3b101 (`fla/layers`: gated_deltanet, deltaproduct, kda, mamba3),
    with these parameters, its kernels replaced by `fla/ops/*/naive.py` and by the references of state-spaces/mamba at
    e9594ce (`tests/ops`, `rotate_pairwise=True`), and single precision replaced by double.
    """
    spec, expected = THEIRS[name]
    mixer = perturbed(spec, replace(CONTEXT, pack=1))

    def entries(tensor: Tensor) -> Tensor:
        return torch.arange(tensor.numel(), dtype=torch.float64)

    with torch.no_grad():
        for place, (parameter_name, parameter) in enumerate(mixer.named_parameters()):
            values = 0.5 * torch.cos(1 + place + 1.7 * entries(parameter)).view(parameter.shape)
            parameter.copy_(values + ("norm" in parameter_name or "gain" in parameter_name))
    x = torch.sin(0.37 * torch.arange(2 * 7 * D, dtype=torch.float64) ** 1.1).view(1, 2, 7, D).requires_grad_()
    y = mixer(x)
    made = (y.flatten() * torch.sin(2 + 0.9 * entries(y))).sum()
    summed = [
        (g.flatten() * torch.sin(3 + 0.7 * entries(g))).sum()
        for g in torch.autograd.grad(made, [x, *mixer.parameters()])
    ]
    numbers = torch.stack([made.detach(), summed[0], torch.stack(summed[1:]).sum()])
    torch.testing.assert_close(numbers, torch.tensor(expected, dtype=torch.float64), rtol=1e-10, atol=1e-11)


def test_rwkv7_starts_at_the_values_of_its_authors() -> None:
    """`RWKV_Tmix_x070.__init__` of BlinkDL/RWKV-LM: one channel after the other."""
    width, head_width, layer, depth = 12, 4, 1, 4
    context = LayerContext(1, width, width // head_width, depth=depth, context=8, causal=True, layer=layer)
    ratio = layer / (depth - 1)
    decay, removal = torch.zeros(width), torch.zeros(width)
    for n in range(width):
        zigzag = ((n % head_width) - (head_width - 1) / 2) / ((head_width - 1) / 2)
        zigzag *= abs(zigzag)
        decay[n] = -6 + 6 * (n / (width - 1)) ** (1 + ratio**0.3) + 0.5 + zigzag * 2.5
        removal[n] = -0.19 + zigzag * 0.3 + (n / (width - 1) - 0.5) * 0.4
    for rule, wanted in ((_decay_bias, decay), (_removal_bias, removal)):
        torch.testing.assert_close(rule(context)(torch.empty(width), torch.Generator()), wanted)
