"""Norms at every place and every kind of residual against their equations, written layer by layer, in float64."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.kinds.residuals.hyper_connections import ManifoldHyperConnections
from ablate.kinds.residuals.vector_gains import LayerScaleSpec
from ablate.nn.model import build_model, model_cost
from ablate.nn.model.decoder import Decoder
from ablate.nn.model.pricing import price
from ablate.nn.pack import initialise
from ablate.nn.pack.initial import stream
from ablate.spec.block import ResidualSpec
from ablate.spec.layer import LayerContext
from ablate.spec.model import ModelSpec
from ablate.spec.sublayers import NormSpec

V, T, D, DEPTH = 11, 7, 12, 5
IDS = torch.randint(V, (1, 2, T), generator=stream(0, "ids"))


def spec_of(block: dict[str, Any], **model: Any) -> ModelSpec:
    plain = {"family": "decoder", "depth": DEPTH, "width": D, "heads": 3, "positions": "none", "init_std": 0.3, **model}
    return ModelSpec.model_validate({**plain, "block": {"mixer": "attention", **block}})


def scattered(spec: ModelSpec) -> Decoder:
    """A model in float64 whose every parameter is random."""
    model = build_model(spec, vocabulary=V, context=T, seeds=[3]).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=stream(5, name), dtype=torch.float64)
    return cast(Decoder, model)


def check(block: dict[str, Any], layer: Any, model: Any = None, **parts: Any) -> None:
    """Logits and gradients of a model against its blocks run by hand: `layer(block, x, i, before)` is one of them."""
    ours = scattered(spec_of(block, **parts))
    logits = ours(IDS)
    x = embedding = ours.embedding(IDS)
    given = [embedding]
    for index, one in enumerate(ours.blocks):
        x = layer(one, x, index, given)
        given.append(x)
    expected = ours.logits(ours.norm(x if model is None else model(x)))
    torch.testing.assert_close(logits, expected)
    gradients = [
        torch.autograd.grad(y.sin().sum(), list(ours.parameters()), allow_unused=True) for y in (logits, expected)
    ]
    for left, right in zip(*gradients, strict=True):
        torch.testing.assert_close(left, right)
    cost = model_cost(ours.spec, vocabulary=V, context=T)
    assert cost.parameters == sum(parameter.numel() for parameter in ours.parameters())


def plain_layer(one: Any, x: Tensor, index: int = 0, given: Any = None) -> Tensor:
    x = x + one.mixer(one.norm_mixer(x))
    return cast(Tensor, x + one.mlp(one.norm_mlp(x)))


def test_output_norms_stand_where_olmo_2_has_them() -> None:
    def layer(one: Any, x: Tensor, *_: Any) -> Tensor:
        x = x + one.norm_mixer(one.mixer(x))
        return cast(Tensor, x + one.norm_mlp(one.mlp(x)))

    check({"norm": {"kind": "rms", "place": "output"}}, layer)


def test_a_sandwich_has_four_norms() -> None:
    def layer(one: Any, x: Tensor, *_: Any) -> Tensor:
        x = x + one.norm_mixer_output(one.mixer(one.norm_mixer(x)))
        return cast(Tensor, x + one.norm_mlp_output(one.mlp(one.norm_mlp(x))))

    check({"norm": {"kind": "layer", "place": "sandwich"}}, layer)


def test_sub_layers_may_have_norms_at_other_places() -> None:
    def layer(one: Any, x: Tensor, *_: Any) -> Tensor:
        x = x + one.norm_mixer(one.mixer(x))
        return cast(Tensor, one.norm_mlp(x + one.mlp(x)))

    check({"norm": {"kind": "rms", "place": "output"}, "norm_mlp": {"place": "post"}}, layer)


def test_the_mlp_may_stand_first() -> None:
    def layer(one: Any, x: Tensor, *_: Any) -> Tensor:
        x = x + one.mlp(one.norm_mlp(x))
        return cast(Tensor, x + one.mixer(one.norm_mixer(x)))

    check({"arrangement": "mlp_first"}, layer)


def test_some_layers_may_have_no_mlp() -> None:
    def layer(one: Any, x: Tensor, index: int, given: Any) -> Tensor:
        return plain_layer(one, x) if index in (1, 3) else cast(Tensor, x + one.mixer(one.norm_mixer(x)))

    check({}, layer, pattern=[{"mlp": "none", "skips": {"mlp": 0}}, {}])


@pytest.mark.independent_check("norms", "layer", against="torch `nn.LayerNorm`")
@pytest.mark.independent_check("norms", "rms", against="torch `nn.RMSNorm`")
@pytest.mark.parametrize(
    ("norm", "theirs"),
    [
        ({"kind": "rms", "gain": False, "eps": 1e-5}, nn.RMSNorm(D, 1e-5, elementwise_affine=False)),
        ({"kind": "layer", "bias": False, "eps": 1e-5}, nn.LayerNorm(D, 1e-5, bias=False)),
        ({"kind": "layer", "gain": False, "bias": False, "eps": 1e-5}, nn.LayerNorm(D, 1e-5, elementwise_affine=False)),
    ],
)
def test_norms_without_gain_or_bias_are_torchs(norm: dict[str, Any], theirs: nn.Module) -> None:
    ours = NormSpec.parse(norm).build(1, D)
    initialise(ours, [0])
    x = torch.randn(1, 3, D, generator=stream(0, "x"))
    torch.testing.assert_close(ours(x), theirs(x))
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
    assert sum(p.numel() for p in theirs.parameters()) == NormSpec.parse(norm).cost(D, 3).parameters


@pytest.mark.independent_check("norms", "dynamic_tanh", against="arXiv:2503.10622 eq. 1")
def test_dynamic_tanh_is_equation_1() -> None:
    def layer(one: Any, x: Tensor, *_: Any) -> Tensor:
        def dyt(norm: Any, x: Tensor) -> Tensor:
            return cast(Tensor, norm.weight[0] * torch.tanh(norm.alpha[0] * x) + norm.bias[0])

        x = x + one.mixer(dyt(one.norm_mixer, x))
        return cast(Tensor, x + one.mlp(dyt(one.norm_mlp, x)))

    check({"norm": {"kind": "dynamic_tanh", "alpha": 0.8}}, layer)
    fresh = NormSpec.parse({"kind": "dynamic_tanh", "alpha": 0.8, "bias": False}).build(1, D)
    initialise(fresh, [0])
    x = torch.randn(1, 3, D, generator=stream(0, "x"))
    torch.testing.assert_close(fresh(x), (0.8 * x).tanh())


def test_derf_is_its_equation_1() -> None:
    def layer(one: Any, x: Tensor, *_: Any) -> Tensor:
        def derf(norm: Any, x: Tensor) -> Tensor:
            return cast(Tensor, norm.weight[0] * torch.erf(norm.alpha[0] * x + norm.shift[0]) + norm.bias[0])

        x = x + one.mixer(derf(one.norm_mixer, x))
        return cast(Tensor, x + one.mlp(derf(one.norm_mlp, x)))

    check({"norm": {"kind": "dynamic_tanh", "function": "erf", "shift": True}}, layer)


def test_gated_norm_is_that_of_marin() -> None:
    def layer(one: Any, x: Tensor, *_: Any) -> Tensor:
        def gated(made: Any, x: Tensor) -> Tensor:
            y = torch.nn.functional.rms_norm(x, x.shape[-1:], made.norm.weight[0], eps=1e-5)
            hidden = y @ made.down.weight[0]
            return cast(Tensor, y / (1 + torch.exp(-(hidden / (1 + torch.exp(-hidden))) @ made.up.weight[0])))

        x = x + one.mixer(gated(one.norm_mixer, x))
        return cast(Tensor, x + one.mlp(gated(one.norm_mlp, x)))

    check({"norm": {"kind": "rms", "eps": 1e-5, "gate_rank": 3}}, layer)


def test_norms_may_be_divided_by_the_root_of_the_layer() -> None:
    def layer(one: Any, x: Tensor, index: int, *_: Any) -> Tensor:
        x = x + one.mixer(one.norm_mixer(x) / math.sqrt(index + 1))
        return cast(Tensor, x + one.mlp(one.norm_mlp(x) / math.sqrt(index + 1)))

    check({"norm": {"kind": "rms", "place": "pre_scaled"}}, layer)


@pytest.mark.independent_check("residuals", "layer_scale", against="arXiv:2103.17239 eq. 4")
def test_layer_scale_is_equation_4() -> None:
    def layer(one: Any, x: Tensor, *_: Any) -> Tensor:
        x = x + one.residual.scales["mixer"].value[0] * one.mixer(one.norm_mixer(x))
        return cast(Tensor, x + one.residual.scales["mlp"].value[0] * one.mlp(one.norm_mlp(x)))

    check({"residual": "layer_scale"}, layer)
    assert [LayerScaleSpec().initial(depth) for depth in (18, 24, 25)] == [0.1, 1e-5, 1e-6]


def test_layer_scale_of_a_parallel_block_and_of_one_without_mlp_has_one_vector() -> None:
    def parallel(one: Any, x: Tensor, *_: Any) -> Tensor:
        assert [*one.residual.scales] == ["mixer"]
        normed = one.norm_mixer(x)
        return cast(Tensor, x + one.residual.scales["mixer"].value[0] * (one.mixer(normed) + one.mlp(normed)))

    def mixer(one: Any, x: Tensor, *_: Any) -> Tensor:
        return cast(Tensor, x + one.residual.scales["mixer"].value[0] * one.mixer(one.norm_mixer(x)))

    check({"residual": "layer_scale", "arrangement": "parallel", "skips": {"mlp": 0}}, parallel)
    check({"residual": "layer_scale", "mlp": "none", "skips": {"mlp": 0}}, mixer)


@pytest.mark.independent_check("residuals", "unet_skip", against="its equation")
@pytest.mark.parametrize("embedding", [False, True])
def test_unet_skips_push_and_pop(embedding: bool) -> None:
    """The record of 2024-11-10: outputs of the first half are pushed, and popped by the layers of the second half."""
    pushed: list[Tensor] = []

    def layer(one: Any, x: Tensor, index: int, given: list[Tensor]) -> Tensor:
        if index >= DEPTH - DEPTH // 2:
            x = x + one.residual.skip.value * pushed.pop()
        if embedding:
            x = one.residual.stream.value * x + one.residual.embedding.value * given[0]
        x = plain_layer(one, x)
        if index < DEPTH // 2:
            pushed.append(x)
        return x

    trained = {"init": 0.7, "trainable": True}
    check(
        {"residual": {"kind": "unet_skip", **({"stream": trained, "embedding": trained} if embedding else {})}}, layer
    )
    assert not pushed


@pytest.mark.independent_check("residuals", "hyper_connections", against="arXiv:2409.19606 eqs 1 to 14")
@pytest.mark.parametrize("dynamic", [True, False])
def test_hyper_connections_are_equations_1_to_14(dynamic: bool) -> None:
    n = 3

    def connect(connection: Any, streams: Tensor, sub_layer: Any) -> Tensor:
        alpha = torch.cat([connection.enter[0], connection.mix[0]], -1).expand(*streams.shape[:-1], 1 + n)
        beta = connection.leave[0, :, 0].expand(streams.shape[:-1])
        if dynamic:
            normed = streams / (streams.square().mean(-1, keepdim=True) + 1e-6).sqrt()
            weight = torch.cat([connection.enter_map[0], connection.mix_map[0]], -1)
            alpha = alpha + connection.alpha_scale[0] * torch.tanh(normed @ weight)
            beta = beta + connection.beta_scale[0] * torch.tanh(normed @ connection.leave_map[0, :, 0])
        mixed = torch.einsum("kbtnm,kbtnd->kbtmd", alpha, streams)
        y = sub_layer(mixed[..., 0, :])
        return mixed[..., 1:, :] + torch.einsum("kbtn,kbtd->kbtnd", beta, y)

    def layer(one: Any, streams: Tensor, index: int, given: Any) -> Tensor:
        if index == 0:
            streams = torch.stack([streams] * n, -2)
        streams = connect(one.residual.connections["mixer"], streams, lambda x: one.mixer(one.norm_mixer(x)))
        return connect(one.residual.connections["mlp"], streams, lambda x: one.mlp(one.norm_mlp(x)))

    block = {"residual": {"kind": "hyper_connections", "streams": n, "dynamic": dynamic}}
    check(block, layer, lambda streams: streams.sum(-2))


def test_hyper_connections_start_as_one_stream() -> None:
    """The sum of n equal streams is n times one of them, and the final norm takes n out again."""
    ours = build_model(spec_of({"residual": "hyper_connections"}), vocabulary=V, context=T, seeds=[3]).double()
    plain = build_model(spec_of({}), vocabulary=V, context=T, seeds=[3]).double()
    torch.testing.assert_close(ours(IDS), plain(IDS), rtol=1e-5, atol=1e-6)
    connections = [one.residual.connections[part] for one in cast(Any, ours).blocks for part in ("mixer", "mlp")]
    assert [one.enter[0, :, 0].argmax().item() for one in connections] == [0, 1, 2, 3] * 2 + [0, 1]


@pytest.mark.parametrize(
    "residual",
    [
        *({"kind": kind} for kind in ("hyper_connections", "manifold_hyper_connections", "normalised", "unet_skip")),
        *({"kind": kind} for kind in ("attention_residuals", "depth_average", "layer_embeddings")),
        {"kind": "ngram_memory", "heads": 2},
        {"kind": "depth_average", "of_input": True, "ways": 4},
    ],
    ids=str,
)
def test_decoding_token_by_token_gives_what_the_whole_text_gives(residual: dict[str, Any]) -> None:
    norm = {"norm": "none"} if residual["kind"] == "normalised" else {}
    model = scattered(spec_of({"residual": residual, **norm})).eval()
    states: Any = ()
    for place in range(T):
        logits, states = model.step(IDS[:, :, place : place + 1], place, states)
        torch.testing.assert_close(logits, model(IDS)[:, :, place : place + 1])


def put(theirs: Any, ours: Any, names: list[str], prefix: str) -> None:
    """F, b and s of `transformers`, which contain ours."""
    with torch.no_grad():
        getattr(theirs, f"{prefix}fn").copy_(torch.cat([getattr(ours, f"{name}_map")[0].T for name in names]))
        getattr(theirs, f"{prefix}base").copy_(torch.cat([getattr(ours, f"{name}_bias")[0] for name in names]))
        getattr(theirs, f"{prefix}scale").copy_(torch.cat([getattr(ours, f"{name}_scale")[0] for name in names]))


@pytest.mark.independent_check("residuals", "manifold_hyper_connections", against="DeepSeek-V4 of `transformers`")
def test_manifold_hyper_connections_are_those_of_deepseek_v4() -> None:
    """Theirs compute in float32."""
    from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4HyperConnection, DeepseekV4HyperHead

    n = 4
    context = LayerContext(1, D, 3, depth=2, context=T, causal=True, init_std=0.3, layer=1)
    ours = cast(ManifoldHyperConnections, ResidualSpec.parse("manifold_hyper_connections").build(context))
    initialise(ours, [0])
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            parameter += 0.5 * torch.randn(parameter.shape, generator=stream(0, name))
    config = cast(Any, SimpleNamespace(hc_mult=n, hc_sinkhorn_iters=20, hc_eps=1e-6, rms_norm_eps=1e-6, hidden_size=D))
    theirs, head = DeepseekV4HyperConnection(config), DeepseekV4HyperHead(config)
    put(theirs, ours.connections["mlp"], ["pre", "post", "comb"], "")
    put(head, ours.end, ["pre"], "hc_")
    streams = torch.randn(2, T, n, D, generator=stream(0, "streams"))
    inputs = [streams.clone().requires_grad_(), streams.clone().requires_grad_()]

    entered = ours.enter(inputs[0][None], "mlp")
    left = ours.close(ours.join(inputs[0][None], entered.sin(), lambda x: x, "mlp"))[0]
    post, comb, collapsed = theirs(inputs[1])
    # As in its decoder layer.
    mixed = post.unsqueeze(-1) * collapsed.sin().unsqueeze(-2) + torch.matmul(comb.transpose(-1, -2), inputs[1])
    right = head(mixed)
    torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)
    for y in (left, right):
        y.cos().sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad, rtol=1e-3, atol=1e-4)
    sums = comb.sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("kind", ["hyper_connections", "manifold_hyper_connections", "normalised", "layer_scale"])
def test_a_model_counts_the_parameters_of_each_layer(kind: str) -> None:
    spec = spec_of({"residual": kind, **({"norm": "none"} if kind == "normalised" else {})})
    model = build_model(spec, vocabulary=V, context=T, seeds=[3])
    priced = price(spec, context=T, vocabulary=V).total.parameters
    assert priced == model_cost(spec, vocabulary=V, context=T).parameters == sum(p.numel() for p in model.parameters())


@pytest.mark.independent_check("norms", "none", against="arXiv:2410.01131, a block without norms")
@pytest.mark.independent_check("residuals", "normalised", against="arXiv:2410.01131 eqs 10 and 11")
def test_the_normalised_residual_is_equations_10_and_11() -> None:
    def turn(h: Tensor, y: Tensor, rate: Tensor) -> Tensor:
        return F.normalize(h + rate.abs() * 0.05 * math.sqrt(D) * (F.normalize(y, dim=-1) - h), dim=-1)

    def layer(one: Any, x: Tensor, index: int, given: Any) -> Tensor:
        x = F.normalize(x, dim=-1) if index == 0 else x
        x = turn(x, one.mixer(x), one.residual.rates["mixer"].value[0])
        return turn(x, one.mlp(x), one.residual.rates["mlp"].value[0])

    check({"residual": "normalised", "norm": "none"}, layer)
    fresh = build_model(spec_of({"residual": "normalised", "norm": "none"}), vocabulary=V, context=T, seeds=[3])
    value = cast(Any, fresh).blocks[0].residual.rates["mixer"].value
    torch.testing.assert_close(value, torch.full_like(value, 1 / math.sqrt(D)))


def mixed_over_depth(read: Any, sources: list[Tensor], spec: dict[str, Any]) -> Tensor:
    """The naive form: one source after the other, member 0 of [1, B, T, D]."""
    if "window" in spec:
        sources = [sources[0], *sources[max(1, len(sources) - spec["window"]) :]]
    heads, parts = spec.get("heads", 1), []
    for head in range(heads):
        place = slice(head * D // heads, (head + 1) * D // heads)
        logits = []
        for index, source in enumerate(sources):
            if spec.get("query") == "none":
                logits.append(read.logit[0, index, head].expand(source.shape[:-1]))
                continue
            query = read.query[0] if spec.get("query") != "of_input" else sources[-1] @ read.map.weight[0]
            key = source
            if spec.get("key_norm", True):
                key = source / (source.square().mean(-1, keepdim=True) + 1e-6).sqrt() * read.gain[0]
            logits.append((query[..., place] * key[..., place]).sum(-1))
        table = torch.stack(logits)
        weights = table.sigmoid() if spec.get("weights") == "sigmoid" else table.exp() / table.exp().sum(0)
        parts.append(sum(w[..., None] * v[..., place] for w, v in zip(weights, sources, strict=True)))
    return torch.cat(cast(list[Tensor], parts), -1)


@pytest.mark.independent_check(
    "residuals", "attention_residuals", against="arXiv:2603.15031 section 3, source by source"
)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"block_size": 3},
        {"block_size": 4, "heads": 3},
        {"query": "of_input"},
        {"query": "none"},
        {"weights": "sigmoid"},
        {"key_norm": False},
        {"window": 3, "query": "none", "heads": 2},
    ],
    ids=str,
)
def test_attention_residuals_read_all_earlier_outputs(settings: dict[str, Any]) -> None:
    outputs: list[Tensor] = []
    lasts: list[Any] = []

    def sources(first: Tensor) -> list[Tensor]:
        size = settings.get("block_size", 1)
        sums = [sum(outputs[i : i + size][1:], outputs[i]) for i in range(0, len(outputs), size)]
        return [first, *sums]

    def layer(one: Any, x: Tensor, index: int, given: Any) -> Tensor:
        lasts[:] = [one.residual.last]
        if index == 0:
            outputs.clear()
        for part in ("mixer", "mlp"):
            h = mixed_over_depth(one.residual.mixes[part], sources(given[0]), settings)
            outputs.append(getattr(one, part)(getattr(one, f"norm_{part}")(h)))
        return cast(Tensor, given[0])

    check(
        {"residual": {"kind": "attention_residuals", **settings}},
        layer,
        lambda first: mixed_over_depth(lasts[0], sources(first), settings),
    )


@pytest.mark.independent_check("residuals", "layer_embeddings", against="Gemma 4 of `transformers`")
@pytest.mark.parametrize("projected", [True, False])
def test_layer_embeddings_are_those_of_gemma_4(projected: bool) -> None:
    """The text model's own methods give p, and its norm class the norms, without the rounding to float32."""
    from transformers.models.gemma4.modeling_gemma4 import Gemma4RMSNorm, Gemma4TextModel

    w = 6
    end: list[Any] = []

    def added(one: Any, x: Tensor, embedding: Tensor) -> Tensor:
        theirs: Any = SimpleNamespace(
            hidden_size_per_layer_input=w,
            config=SimpleNamespace(num_hidden_layers=1),
            embed_tokens_per_layer=lambda ids: F.embedding(ids, one.table.weight[0]) * w**0.5,
            per_layer_input_scale=2.0**-0.5,
            per_layer_model_projection_scale=D**-0.5,
        )
        p = Gemma4TextModel.get_per_layer_inputs(theirs, IDS[0])
        if projected:
            theirs.per_layer_model_projection = lambda x: x @ one.map.weight[0]
            theirs.per_layer_projection_norm = normed(one.map_norm)
            p = Gemma4TextModel.project_per_layer_inputs(theirs, embedding[0], p)
        inner = F.gelu(x[0] @ one.gate.weight[0], approximate="tanh") * p[:, :, 0]
        return x + normed(one.norm)(inner @ one.up.weight[0])[None]

    def normed(own: Any) -> Any:
        def run(x: Tensor) -> Tensor:
            return cast(Tensor, Gemma4RMSNorm(x.shape[-1])._norm(x) * own.weight[0])

        return run

    def layer(one: Any, x: Tensor, index: int, given: list[Tensor]) -> Tensor:
        end[:] = [one.residual.last, given[0]]
        return plain_layer(one, added(one.residual.first, x, given[0]) if index else x)

    block = {"residual": {"kind": "layer_embeddings", "width": w, "projected": projected}}
    check(block, layer, lambda x: added(end[0], x, end[1]))


@pytest.mark.parametrize("ways", [1, 4])
def test_weights_of_the_input_are_those_of_mudd(ways: int) -> None:
    """arXiv:2502.12170, eqs 3 to 8, way by way; each of queries, keys and values has a norm, and heads by hand."""

    def averaged(total: Any, given: list[Tensor], ways: int) -> list[Tensor]:
        own, count = given[-1], len(given)
        normed = own / (own.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        hidden = normed @ total.inner.weight[0]
        weights = (hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2) @ total.outer.weight[0] + total.weight.flatten()
        return [
            cast(Tensor, sum(weights[..., way * count + j, None] * x for j, x in enumerate(given)))
            for way in range(ways)
        ]

    def attended(mixer: Any, by_query: Tensor, by_key: Tensor, by_value: Tensor) -> Tensor:
        inputs = {"query": by_query, "key": by_key, "value": by_value}
        q, k, v = ((x @ getattr(mixer, name).weight[0]).unflatten(-1, (3, -1)) for name, x in inputs.items())
        logits = torch.einsum("kbthd,kbshd->kbhts", q, k) / math.sqrt(D / 3)
        weights = logits.masked_fill(torch.ones(T, T).triu(1) > 0, -torch.inf).softmax(-1)
        return torch.einsum("kbhts,kbshd->kbthd", weights, v).flatten(-2) @ cast(Tensor, mixer.output.weight[0])

    ends: list[Any] = []
    outputs: list[Tensor] = []

    def layer(one: Any, x: Tensor, index: int, given: list[Tensor]) -> Tensor:
        if index == 0:
            outputs[:] = [x]
        *read, skipped = averaged(one.residual.first, outputs, ways) if index else [x]
        norms = [one.norm_mixer, *one.norms_apart.values()]
        inputs = [norm(y) for norm, y in zip(norms, read or [skipped], strict=True)]
        x = skipped + attended(one.mixer, *(inputs if len(inputs) > 1 else inputs * 3))
        outputs.append(x + one.mlp(one.norm_mlp(x)))
        ends[:] = [one.residual.last]
        return outputs[-1]

    residual = {"kind": "depth_average", "of_input": True, "ways": ways}
    check({"residual": residual}, layer, lambda x: averaged(ends[0], outputs, 1)[0])


def test_four_ways_need_a_mixer_that_has_three_inputs() -> None:
    residual = {"kind": "depth_average", "ways": 4}
    for block, refused in (
        ({"mixer": "mamba2"}, "mamba2 has one input"),
        ({"arrangement": "mlp_first"}, "the mixer is the first"),
        ({"convolutions": {"before_mixer": {}}}, "the mixer has three inputs"),
    ):
        with pytest.raises(ValueError, match=refused):
            spec_of({"residual": residual, **block})


@pytest.mark.independent_check("residuals", "depth_average", against="arXiv:2402.02622 eqs 1 and 2, source by source")
@pytest.mark.parametrize(
    "settings",
    [{}, {"dilation": 2}, {"dilation": 3, "alone": True}, {"period": 2, "dilation": 3, "alone": True}, {"period": 5}],
    ids=str,
)
def test_depth_averages_are_equations_1_and_2(settings: dict[str, Any]) -> None:
    """With `alone` they are those of `denseformer.py` of epfml/DenseFormer, which weighs outputs read alone, too."""
    raw: list[Tensor] = []
    ends: list[Any] = []

    def averaged(read: Any, layers: int) -> Tensor:
        if layers == 0 or layers % settings.get("period", 1):
            return raw[layers]
        chosen = [j for j in range(layers + 1) if (layers - j) % settings.get("dilation", 1) == 0]
        if len(chosen) == 1 and "alone" not in settings:
            return raw[layers]
        return cast(Tensor, sum(read.weight[0, index] * raw[j] for index, j in enumerate(chosen)))

    def layer(one: Any, x: Tensor, index: int, given: Any) -> Tensor:
        if index == 0:
            raw[:] = [given[0]]
        raw.append(plain_layer(one, averaged(one.residual.first, index)))
        ends[:] = [one.residual.last]
        return x

    check({"residual": {"kind": "depth_average", **settings}}, layer, lambda x: averaged(ends[0], DEPTH))


@pytest.mark.parametrize("kind", ["hyper_connections", "manifold_hyper_connections"])
@pytest.mark.parametrize(
    "off", [("pre_map",), ("post_map",), ("res_map",), ("pre_map", "post_map", "res_map")], ids=str
)
def test_each_map_between_streams_can_be_switched_off(kind: str, off: tuple[str, ...]) -> None:
    """A map that is off is the mean, ones and the identity; with all off the model is one with a single stream."""
    model = scattered(spec_of({"residual": {"kind": kind, **dict.fromkeys(off, False)}}))
    assert model_cost(model.spec, vocabulary=V, context=T).parameters == sum(p.numel() for p in model.parameters())
    x = model.embedding(IDS)
    streams = x.unsqueeze(-2).expand(*x.shape[:-1], 4, D)
    residual = cast(Any, model.blocks[0]).residual
    if "pre_map" in off:
        torch.testing.assert_close(residual.enter(streams, "mixer"), streams.mean(-2))
    branch = x.sin()
    moved = residual.join(streams, branch, lambda y: y, "mixer") - residual.join(
        streams, branch * 0, lambda y: y, "mixer"
    )
    if "post_map" in off:
        torch.testing.assert_close(moved, branch.unsqueeze(-2).expand_as(moved))
    if "res_map" in off:
        torch.testing.assert_close(residual.join(streams, branch * 0, lambda y: y, "mixer"), streams)
    if len(off) == 3:
        plain = scattered(spec_of({}))
        factor = 4 if kind == "hyper_connections" else 1  # its streams are summed at the end
        hidden = plain.norm(factor * plain.hidden(plain.embedding(IDS), None))
        torch.testing.assert_close(model(IDS), plain.logits(hidden))


@pytest.mark.independent_check("residuals", "ngram_memory", against="arXiv:2601.07372 section 2, token by token")
@pytest.mark.parametrize(
    "settings",
    [{}, {"gate": False}, {"taps": 0}, {"orders": [1, 3, 4], "heads": 3, "width": 6, "dilation": 2, "taps": 3}],
    ids=str,
)
def test_ngram_memory_is_section_2(settings: dict[str, Any]) -> None:
    memory = {"kind": "ngram_memory", "rows": 40, "heads": 2, **settings}
    orders, heads = memory.get("orders", [2, 3]), memory["heads"]
    found: list[list[int]] = []

    def primes(start: int, count: int) -> list[int]:
        made: list[int] = []
        while len(made) < count:
            start += 1
            if not any(start % d == 0 for d in range(2, start)):
                made.append(start)
        return made

    def normed(x: Tensor, norm: Any) -> Tensor:
        return cast(Tensor, x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight[0])

    def layer(one: Any, x: Tensor, index: int, given: Any) -> Tensor:
        residual, count = one.residual, len(orders) * heads
        sizes = primes(40, (index + 1) * count)[-count:]
        found.append(sizes)
        rows = torch.zeros(2, T, count, dtype=torch.long)
        for b in range(2):
            for t in range(T):
                for place, (n, _) in enumerate((n, j) for n in orders for j in range(heads)):
                    mixed = 0
                    for k in range(n):
                        mixed ^= (int(IDS[0, b, t - k]) + 1 if t >= k else 0) * residual.factors[k]
                    rows[b, t, place] = mixed % sizes[place] + sum(sizes[:place])
        e = residual.table.weight[0][rows].flatten(-2)[None]
        y = e @ residual.value.weight[0]
        if memory.get("gate", True):
            alike = normed(x, residual.query_norm) * normed(e @ residual.key.weight[0], residual.key_norm)
            y = torch.sigmoid(alike.sum(-1, keepdim=True) / math.sqrt(D)) * y
        taps, apart = memory.get("taps", 4), memory.get("dilation", max(orders))
        if taps:
            read, weight = normed(y, residual.convolution_norm), residual.convolution.weight[0].flip(-1)
            made = torch.zeros_like(y)
            for t in range(T):
                for tap in range(taps):
                    if t - tap * apart >= 0:
                        made[:, :, t] = made[:, :, t] + weight[:, tap] * read[:, :, t - tap * apart]
            y = y + made * torch.sigmoid(made)
        return plain_layer(one, x + y)

    check({"residual": memory}, layer)
    start = build_model(spec_of({"residual": memory}), vocabulary=V, context=T, seeds=[0]).state_dict()
    assert not any(tensor.any() for name, tensor in start.items() if "convolution.weight" in name)  # section 4.1
    everything = [size for sizes in found for size in sizes]
    assert len(set(everything)) == len(everything)  # no table has the size of another
