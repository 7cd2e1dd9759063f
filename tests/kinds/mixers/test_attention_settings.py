"""Every setting of attention, its positions and cross-attention against their equations, one row at a time.

Everything in float64. Shapes: K pack, B batch, T tokens, S tokens of the memory, D width, H heads, G heads of keys and
values, d head width.
"""

from __future__ import annotations

import cmath
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from every_pair import every_pair
from slow_forms import assert_equal_forms, assert_token_by_token, perturbed
from torch import Tensor

from ablate.contracts.mixer import CONTRACT
from ablate.kinds.mixers.attention import AttentionSpec
from ablate.kinds.mixers.attention_module import Attention
from ablate.kinds.mixers.attention_settings import _shared_names
from ablate.kinds.positions.logit_biases import AlibiSpec
from ablate.kinds.positions.rotary import RotarySpec
from ablate.nn.kernels.softmax_attention import alibi_bias, rotate
from ablate.nn.model import build_model, model_cost
from ablate.nn.model.decoder import Decoder
from ablate.nn.pack.initial import stream
from ablate.spec.layer import LayerContext, PositionSpec
from ablate.spec.model import ModelSpec

K, B, T, S, D, H = 2, 2, 7, 5, 20, 4
CONTEXT = LayerContext(K, D, H, depth=5, context=T, causal=True, init_std=0.5)
ROTARY, ALIBI = RotarySpec(base=50.0), AlibiSpec()


def attention(settings: dict[str, Any], **context: Any) -> Attention:
    """A mixer in float64 whose every parameter is random."""
    mixer: Attention = perturbed(AttentionSpec.model_validate(settings), replace(CONTEXT, **context))
    return mixer


def noise(name: str, *shape: int) -> Tensor:
    return torch.randn(shape, generator=stream(1, name), dtype=torch.float64).requires_grad_()


def normed(x: Tensor, norm: Any, k: int, h: int) -> Tensor:
    """Queries or keys [T, d] of head h (or [T, H·d] of all) through their norm."""
    spec = norm.spec
    if spec.kind == "rms":
        x = x / (x.pow(2).mean(1, keepdim=True) + spec.eps).sqrt()
    elif spec.kind == "layer":
        x = x - x.mean(1, keepdim=True)
        x = x / (x.pow(2).mean(1, keepdim=True) + spec.eps).sqrt()
    elif spec.kind == "l2":
        x = x / x.pow(2).sum(1, keepdim=True).sqrt().clamp(min=spec.eps)
    for name, combine in (("weight", torch.mul), ("bias", torch.add)):
        gain = getattr(norm, name)
        if gain is not None:
            x = combine(x, gain[k, h] if spec.gain == "heads" else gain[k])
    return x


def gates(mixer: Any, k: int, h: int, x: Tensor) -> Tensor:
    """The factors of head h at one token [D]: one, or [d]."""
    made = 1 / (1 + (-(x[: mixer.spec.gate.inputs] @ mixer.gate.map.weight[k])).exp())
    return made[h] if mixer.spec.gate.kind == "headwise" else made.view(H, -1)[h]


def turned(rows: Tensor, base: float) -> Tensor:
    """Queries or keys [T, d]: the pair (i, i + d/2) as a complex number, times e^(i·t·θ) with θ = base^(-2i/d)."""
    length, width = rows.shape
    turns = [[cmath.exp(1j * t * base ** (-2 * i / width)) for i in range(width // 2)] for t in range(length)]
    pairs = torch.complex(*rows.split(width // 2, 1)) * torch.tensor(turns, dtype=torch.complex128)
    return torch.cat([pairs.real, pairs.imag], 1)


def slow(mixer: Any, k: int, x: Tensor, real: list[bool], memory: Tensor | None = None) -> Tensor:
    """One sequence [T, D] to the same; it reads `memory` [S, D], or itself. `real` marks what is visible of either."""
    source = x if memory is None else memory
    spec, d, G, window = mixer.spec, mixer.output.weight.shape[1] // H, mixer.kv_heads, mixer.window or T
    Q = x @ mixer.query.weight[k]
    K_, V = (source @ getattr(mixer, name).weight[k] for name in ("key", "value"))
    if spec.query_key_norm.over == "width":
        Q, K_ = normed(Q, mixer.query_norm, k, 0), normed(K_, mixer.key_norm, k, 0)
    scale = {"head_width": 1 / math.sqrt(d), "none": 1.0}.get(spec.scale, spec.scale)
    heads = []
    for h in range(H):
        q, key, v = Q[:, h * d : (h + 1) * d], *(m[:, h // (H // G) * d :][:, :d] for m in (K_, V))
        if spec.query_key_norm.over == "head":
            q, key = normed(q, mixer.query_norm, k, h), normed(key, mixer.key_norm, k, h // (H // G))
        if mixer.positions is not None:
            q, key = (turned(rows, mixer.positions.base) for rows in (q, key))
        if mixer.temperature is not None:
            q = q * mixer.temperature.value[k, h]
        rows = []
        for i in range(len(x)):
            seen = [j for j in range(len(source)) if real[j] or (memory is None and i == j)]
            if memory is None:
                seen = [j for j in seen if abs(i - j) < window and (j <= i or not mixer.causal)]
            logits = [q[i] @ key[j] * scale for j in seen]
            if spec.logits.soft_cap:
                logits = [spec.logits.soft_cap * torch.tanh(a / spec.logits.soft_cap) for a in logits]
            if mixer.bias is not None:
                logits = [a - 2 ** (-8 * (h + 1) / H) * abs(i - j) for a, j in zip(logits, seen, strict=True)]
            weights = torch.stack(logits).exp()
            total = weights.sum()
            if spec.logits.sinks:
                total = total + mixer.sinks.logit[k, h].exp()
            y = (weights / total) @ v[seen]
            if spec.exclusive:
                y = y - (y @ v[i]) / (v[i] @ v[i]) * v[i]
            rows.append(y if mixer.gate is None else y * gates(mixer, k, h, x[i]))
        heads.append(torch.stack(rows))
    return torch.cat(heads, 1) @ mixer.output.weight[k]


FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "as many groups as heads": ({"kv_heads": H}, {}),
    "groups": ({"kv_heads": 2}, {}),
    "alibi": ({}, {"positions": ALIBI}),
    "alibi, multi-query, norm": ({"kv_heads": 1, "query_key_norm": "rms"}, {"positions": ALIBI}),
    "rotary, groups, norm": ({"kv_heads": 2, "query_key_norm": "rms"}, {"positions": ROTARY, "head_width": 6}),
    "rotary, usual base": ({}, {"positions": RotarySpec(), "head_width": 6}),
    "window of one token, groups": ({"kv_heads": 2}, {"window": 1}),
    "window, alibi": ({}, {"window": 4, "positions": ALIBI}),
    "wide heads": ({}, {"head_width": 10}),
    "narrow heads, groups, rotary, window": ({"kv_heads": 2}, {"head_width": 2, "positions": ROTARY, "window": 2}),
    "l2 norm, temperature": ({"query_key_norm": {"kind": "l2", "temperature": 5}, "scale": "none"}, {}),
    "rms norm without gain": ({"query_key_norm": {"kind": "rms", "gain": "none"}, "scale": 0.1}, {}),
    "rms norm, gain by head, groups": ({"query_key_norm": {"kind": "rms", "gain": "heads"}, "kv_heads": 2}, {}),
    "layer norm, gain by head": ({"query_key_norm": {"kind": "layer", "gain": "heads", "eps": 0.1}}, {}),
    "rms norm over all heads": ({"query_key_norm": {"kind": "rms", "over": "width"}, "kv_heads": 2}, {}),
    "layer norm over all heads": ({"query_key_norm": {"kind": "layer", "over": "width"}}, {}),
    "l2 norm over all heads": ({"query_key_norm": {"kind": "l2", "over": "width", "gain": "none"}}, {}),
    "soft cap": ({"logits": {"soft_cap": 0.7}}, {}),
    "soft cap, alibi, window": ({"logits": {"soft_cap": 2}, "scale": 1.3}, {"positions": ALIBI, "window": 3}),
    "sinks": ({"logits": {"sinks": True}}, {}),
    "sinks, cap, groups, rotary, window": (
        {"logits": {"sinks": True, "soft_cap": 1.5}, "kv_heads": 1},
        {"positions": ROTARY, "window": 2, "head_width": 6},
    ),
    "single precision of logits": ({"logits": {"precision": "float32"}}, {}),
    "headwise gate": ({"gate": "headwise"}, {}),
    "gate of some channels": ({"gate": {"kind": "headwise", "inputs": 3}}, {}),
    "elementwise gate, wide heads": ({"gate": "elementwise"}, {"head_width": 6}),
    "exclusive": ({"exclusive": True}, {}),
    "exclusive, groups, gate, window": ({"exclusive": True, "kv_heads": 2, "gate": "elementwise"}, {"window": 3}),
    "everything": (
        {"exclusive": True, "kv_heads": 2, "gate": "headwise", "logits": {"soft_cap": 3, "sinks": True},
         "query_key_norm": {"kind": "rms", "temperature": 2}},
        {"positions": ROTARY, "head_width": 6},
    ),
}  # fmt: skip


@pytest.mark.independent_check("mixers", "attention", against="the equations of each setting, one row at a time")
@every_pair({"name": FORMS, "causal": [True, False], "padded": [False, True]})
def test_attention_is_its_equations(name: str, causal: bool, padded: bool) -> None:
    settings, context = FORMS[name]
    mixer = attention(settings, causal=causal, **context)
    x, real = assert_equal_forms(mixer, slow, T, D, padded)
    if mixer.gate is None and not mixer.spec.exclusive:  # what remains is the attention matrix
        by_matrix = mixer.matrix(x, real if padded else None) @ heads_of(mixer, mixer.value(x))
        joined = mixer.output(by_matrix.transpose(2, 3).flatten(3))
        torch.testing.assert_close(joined[real], mixer(x, real if padded else None)[real], rtol=1e-9, atol=1e-9)


def heads_of(mixer: Attention, values: Tensor) -> Tensor:
    """[K, B, S, G·d] to [K, B, H, S, d], each head of values for its group."""
    apart = values.unflatten(-1, (mixer.kv_heads, -1)).transpose(2, 3)
    return apart.repeat_interleave(H // apart.shape[2], 2)


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("settings", [{}, {"kv_heads": 2, "query_key_norm": "rms"}], ids=["plain", "groups and norm"])
def test_cross_attention_reads_the_memory(settings: dict[str, Any], padded: bool) -> None:
    mixer = attention(settings, cross=True, causal=False)
    x, memory = noise("x", K, B, T, D), noise("memory", K, B, S, D)
    lengths = torch.tensor([[3, 5], [1, 4]]) if padded else torch.full((K, B), S)
    real = torch.arange(S) < lengths[..., None]
    rows = [[slow(mixer, k, x[k, b], real[k, b].tolist(), memory[k, b]) for b in range(B)] for k in range(K)]
    ys = mixer(x, None, memory, real if padded else None), torch.stack([torch.stack(row) for row in rows])
    torch.testing.assert_close(*ys, rtol=1e-9, atol=1e-9)
    direction = torch.randn(ys[0].shape, generator=stream(0, "direction"), dtype=torch.float64)
    given = [x, memory, *mixer.parameters()]
    for ours, theirs in zip(*(torch.autograd.grad((y * direction).sum(), given) for y in ys), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", FORMS)
def test_decoding_token_by_token(name: str) -> None:
    settings, context = FORMS[name]
    mixer, x = attention(settings, **context), noise("x", K, B, T, D)
    assert_token_by_token(mixer, x)


@pytest.mark.parametrize(
    "settings",
    [
        FORMS["everything"][0],
        FORMS["rms norm over all heads"][0],
        {"shared_kv": 2},
        {"value_residual": {"own": 0.3}, "kv_heads": 1},
        {"value_embedding": {"own": {"init": 0.5, "trainable": True}}, "value_residual": {"from_layer": 1}},
    ],
    ids=str,
)
def test_it_keeps_the_contract(settings: dict[str, Any]) -> None:
    """At settings that are no named choices, and where layers share."""
    assert CONTRACT.check(AttentionSpec.model_validate(settings)) == []


def test_logits_in_single_precision_are_more_exact() -> None:
    """Of queries and keys in bfloat16, the logits lose nothing but what queries and keys have lost."""
    plain, exact = (attention(one).to(torch.bfloat16) for one in ({"logits": {"soft_cap": 1e6}},
                    {"logits": {"soft_cap": 1e6, "precision": "float32"}}))  # fmt: skip
    x = noise("x", K, B, T, D).to(torch.bfloat16)
    for mixer in (plain, exact):
        mixer.query.weight.data *= 20
    matrices = []
    with torch.no_grad():
        for mixer in (plain, exact):
            assert mixer(x).dtype == torch.bfloat16
            q, k, *_ = mixer._heads((x, x, x), ())
            true = (q.double() @ k.double().mT / math.sqrt(D // H)).masked_fill(
                ~torch.ones(T, T, dtype=torch.bool).tril(), -math.inf
            )
            matrices.append((mixer.matrix(x).double() - true.softmax(-1)).abs().max().item())
    assert matrices[1] < matrices[0] / 3


def test_dropout_applies_to_the_product_of_keys_and_values() -> None:
    """SimpleTRON: a dropped element of a bidirectional state is dropped for all queries."""
    settings = {"softmax": False, "matmul_order": "kv_first", "dropout": 0.5, "scale": "length"}
    mixer, x = attention(settings, causal=False).train(), noise("x", K, B, T, D)
    torch.manual_seed(3)
    y = mixer(x)
    torch.manual_seed(3)
    q, k, v = (getattr(mixer, name)(x).unflatten(-1, (H, -1)).transpose(2, 3) for name in ("query", "key", "value"))
    state = torch.nn.functional.dropout(k.mT @ v, 0.5)
    assert (state == 0).any()
    torch.testing.assert_close(y, mixer.output((q / math.sqrt(T) @ state).transpose(2, 3).flatten(3)))
    mixer.eval()
    torch.testing.assert_close(mixer(x), attention({**settings, "dropout": 0}, causal=False)(x))


@pytest.mark.parametrize("positions", [None, ALIBI], ids=["no positions", "alibi"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_a_fused_kernel_drops_the_same_weights(
    positions: PositionSpec | None, causal: bool, padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU torch's kernel applies dropout; torch's plain form of it draws the noise that we draw for the matrix."""
    mixer, x = attention({"dropout": 0.5}, causal=causal, positions=positions).train(), noise("x", K, B, T, D)
    padding = torch.arange(T).expand(K, B, T) < T - 2 if padded else None
    made = []
    for fused in (False, True):
        monkeypatch.setattr(Attention, "_drops_within_the_kernel", lambda self, device, fused=fused: fused)
        torch.manual_seed(3)
        made.append(mixer(x, padding))
    torch.testing.assert_close(made[1], made[0])
    assert not torch.allclose(made[0], mixer.eval()(x, padding))


def test_dropout_within_a_kernel_is_for_plain_softmax_on_a_gpu() -> None:
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    assert attention({"dropout": 0.5})._drops_within_the_kernel(cuda)
    assert not attention({"dropout": 0.5})._drops_within_the_kernel(cpu)
    for settings in ({"shaping": "shaped"}, {"softmax": False}):
        assert not attention({"dropout": 0.5, **settings})._drops_within_the_kernel(cuda)


SMALL: dict[str, Any] = {"family": "decoder", "depth": 4, "width": D, "heads": H, "init_std": 0.4, "final_norm": "none"}
BARE: dict[str, Any] = {"norm": "none", "mlp": "none", "skips": {"mlp": 0}}
V = 11
IDS = torch.randint(V, (K, B, T), generator=stream(1, "ids"))


def model_of(mixer: dict[str, Any], **more: Any) -> Any:
    block = {**BARE, "mixer": {"kind": "attention", **mixer}}
    spec = ModelSpec.model_validate({**SMALL, "positions": "rotary", "head_width": 6, "block": block, **more})
    spec.check_context(T)
    model = build_model(spec, vocabulary=V, context=T, seeds=[3, 5]).double()
    assert isinstance(model, Decoder)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=stream(0, name), dtype=torch.float64)
    real = sum(parameter[0].numel() for parameter in model.parameters())
    assert model_cost(spec, vocabulary=V, context=T).parameters == real
    return model.eval()


def mixed(mixer: Any, x: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Softmax attention of the queries of x over keys and values [K, B, G, T, d]."""
    q = rotate(mixer.query(x).unflatten(-1, (H, -1)).transpose(2, 3))
    k, v = (one.repeat_interleave(H // one.shape[2], 2) for one in (k, v))
    logits = (q @ k.mT / math.sqrt(6)).masked_fill(~torch.ones(T, T, dtype=torch.bool).tril(), -math.inf)
    return mixer.output((logits.softmax(-1) @ v).transpose(2, 3).flatten(3))  # type: ignore[no-any-return]


def split(x: Tensor) -> Tensor:
    return x.unflatten(-1, (-1, 6)).transpose(2, 3)


def gain(module: Any) -> Tensor:
    value: Tensor = module.value
    return value.view(-1, 1, 1, 1)


def residual(block: Any, x: Tensor, kept: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """ResFormer as in the speed run: v ← (1 - λ)·v + λ·v_first."""
    mixer, v = block.mixer, block.mixer.value(x)
    if "values" not in kept:
        kept["values"] = v
    else:
        share = gain(mixer.value_residual.first)
        v = (1 - share) * v + share * kept["values"]
    return rotate(split(mixer.key(x))), split(v)


def residual_of_two_gains(block: Any, x: Tensor, kept: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    mixer, v = block.mixer, block.mixer.value(x)
    if "values" not in kept:
        kept["values"] = v
    else:
        v = gain(mixer.value_residual.own) * v + gain(mixer.value_residual.first) * kept["values"]
    return rotate(split(mixer.key(x))), split(v)


def embedded(block: Any, x: Tensor, kept: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    mixer, v = block.mixer, block.mixer.value(x)
    share = gain(mixer.value_embedding.mixed.first)
    rows = torch.stack([mixer.value_embedding.table.weight[k][IDS[k]] for k in range(K)])
    return rotate(split(mixer.key(x))), split((1 - share) * v + share * rows)


def borrowed(block: Any, x: Tensor, kept: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Gemma 3n: layer 0 keeps its own; 1 gives its keys and values to 2 and 3."""
    mixer = block.mixer
    if not hasattr(mixer, "key"):
        return kept["keys"], kept["values"]
    kept["keys"], kept["values"] = rotate(split(mixer.key(x))), split(mixer.value(x))
    return kept["keys"], kept["values"]


PATHS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "value residual": (residual, {"value_residual": {}, "kv_heads": 2}, {}),
    "two gains": (
        residual_of_two_gains,
        {"value_residual": {"first": 0.5, "own": {"init": 0.5, "trainable": True}}},
        {},
    ),
    "value embeddings": (embedded, {"value_embedding": {}, "kv_heads": 2}, {}),
    "shared keys and values": (borrowed, {"kv_heads": 2}, {"exceptions": {"1-3": {"mixer": {"shared_kv": 1}}}}),
}


@pytest.mark.parametrize("name", PATHS)
def test_layers_share_as_the_equations_say(name: str) -> None:
    """Logits and gradients of a model of four layers, and the same token by token."""
    rule, mixer, more = PATHS[name]
    model = model_of(mixer, **more)
    x, kept = model.embedding(IDS), {}
    for block in model.blocks:
        x = x + mixed(block.mixer, x, *rule(block, x, kept))
    ours, reference = model(IDS), model.embedding.logits(x)
    torch.testing.assert_close(ours, reference, rtol=1e-9, atol=1e-9)
    direction = torch.randn(ours.shape, generator=stream(0, "direction"), dtype=torch.float64)
    gradients = [torch.autograd.grad((y * direction).sum(), list(model.parameters())) for y in (ours, reference)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)
    states: Any = ()
    for place in range(T):
        logits, states = model.step(IDS[..., place : place + 1], place, states)
        torch.testing.assert_close(logits, ours[:, :, place : place + 1], rtol=1e-9, atol=1e-9)


def test_hashes_of_earlier_versions_do_not_change() -> None:
    """What the settings of earlier versions are written as."""
    for settings in ({}, {"query_key_norm": "rms"}, {"query_key_norm": "layer", "scale": "length", "dropout": 0.1}):
        spec = AttentionSpec.model_validate(settings)
        assert spec.canonical() == {"kind": "attention", **settings}
    written = {"query_key_norm": {"kind": "none"}, "gate": "none", "logits": {"sinks": False}, "shared_kv": None}
    assert AttentionSpec.model_validate(written).canonical() == {"kind": "attention"}
    assert not AttentionSpec().shares


def test_a_layer_that_reads_shared_keys_and_values_has_no_maps_for_them() -> None:
    told = [replace(CONTEXT, layer=layer, pack=1) for layer in (1, 2)]
    giving, reading = (AttentionSpec(shared_kv=1).cost(context, T) for context in told)
    assert giving.parameters - reading.parameters == 2 * D * D
    assert giving.multiplications - reading.multiplications == 2 * T * D * D
    normed = AttentionSpec.model_validate({"shared_kv": 1, "query_key_norm": "rms"})
    assert normed.cost(told[1], T).parameters == sum(p.numel() for p in normed.build(told[1]).parameters())


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"dropout": 1e-9},
        {"dropout": 0.5, "logits": {"precision": "float32"}},
        {"logits": {"soft_cap": 3.0}},
        {"logits": {"sinks": True}, "dropout": 1e-9},
        {"scale": "length", "dropout": 1e-9},
        {"kv_heads": 2, "dropout": 1e-9},
        {"softmax": False, "dropout": 1e-9},
        {"softmax": False, "matmul_order": "kv_first"},
    ],
    ids=str,
)
def test_a_source_that_is_padding_only_adds_nothing(settings: dict[str, Any]) -> None:
    """Cross-attention in training: 0 and finite gradients for that row, the other row as if it were alone."""
    mixer = attention({"value": "dense", **settings}, causal=False, cross=True).train()
    x, memory = noise("input", K, 2, T, D), noise("source", K, 2, 5, D)
    real = torch.tensor([[True, True, True, False, False], [False] * 5]).expand(K, 2, 5)
    if settings.get("dropout", 0) < 0.1:
        alone = mixer(x[:, :1], None, memory[:, :1], real[:, :1])
        torch.testing.assert_close(mixer(x, None, memory, real)[:, :1], alone)
    y = mixer(x, None, memory, real)
    assert y.isfinite().all()
    assert not y[:, 1].any()
    y.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in mixer.parameters() if parameter.grad is not None)


@pytest.mark.parametrize("order", ["qk_first", "kv_first"])
def test_cross_attention_without_softmax_takes_the_length_of_the_memory(order: str) -> None:
    """SimpleTRON's (1/√S)·Q·(Kᵀ·V), S being the real tokens that are read, the padded ones apart."""
    settings = {"softmax": False, "scale": "length", "matmul_order": order}
    mixer = attention(settings, cross=True, causal=False, pack=1)
    x, memory = noise("x", 1, B, T, D), noise("memory", 1, B, S, D)
    real = (torch.arange(S) < 3).expand(1, B, S)
    Q, K_, V = (
        heads_of(mixer, m(source)) for m, source in ((mixer.query, x), (mixer.key, memory), (mixer.value, memory))
    )
    y = Q @ K_[..., :3, :].mT @ V[..., :3, :] / math.sqrt(3)
    torch.testing.assert_close(mixer(x, None, memory, real), mixer.output(y.transpose(2, 3).flatten(3)))


def test_half_precision_distinguishes_distant_positions() -> None:
    """bfloat16 counts to 256 only."""
    q = torch.ones(600, 8, dtype=torch.bfloat16)
    exact = rotate(q.double())
    assert (rotate(q).double() - exact).abs().max() < 0.02
    bias = alibi_bias(2, 600, torch.device("cpu"), torch.bfloat16)[1, 599]
    expected = -(2.0**-8) * torch.arange(599, -1, -1)
    torch.testing.assert_close(bias.float(), expected, rtol=2**-8, atol=0)


def test_keys_that_positions_turn_are_shared_only_with_keys_turned_alike() -> None:
    names = [
        _shared_names(replace(CONTEXT, positions=one))[0]
        for one in (None, AlibiSpec(), RotarySpec(), RotarySpec(base=5e5))
    ]
    assert names[0] == names[1]
    assert len(set(names)) == 3
