"""Short convolutions at the places of a block (Canon layers), against torch's `conv1d` put into the paper's block."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from torch import Tensor, nn

from ablate.kinds.mixers.gated_deltanet import GatedDeltaNetSpec
from ablate.kinds.mixers.kimi_delta_attention import KimiDeltaAttentionSpec
from ablate.kinds.mixers.mamba2 import Mamba2Spec
from ablate.nn.model import build_model
from ablate.nn.model.block import Block
from ablate.nn.model.decoder import Decoder, States
from ablate.nn.model.pricing import price
from ablate.nn.pack.initial import initialise, stream
from ablate.spec.layer import LayerContext
from ablate.spec.model import ModelSpec
from ablate.spec.sublayers import MIXERS, MixerSpec

T, V = 11, 17
CANON = {"before_mixer": 4, "on_qkv": 4, "before_mlp": 4, "in_mlp": 4}
SMALL: dict[str, Any] = {"family": "decoder", "depth": 2, "width": 16, "heads": 2, "positions": "none"}


def decoder(**block: Any) -> Decoder:
    """In double precision, away from its initial values."""
    spec = ModelSpec.model_validate(SMALL | {"block": {"mixer": "attention", "mlp": "gated"} | block})
    model = build_model(spec, vocabulary=V, context=T, seeds=[0, 1]).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=stream(0, name, parameter.shape)).double()
    assert isinstance(model, Decoder)
    return model


def convolve(x: Tensor, weight: Tensor) -> Tensor:
    """The published helper: torch's depthwise `Conv1d` padded on both sides, cut, and the residual."""
    taps = weight.shape[-1]
    y = F.conv1d(x.mT, weight.unsqueeze(1), padding=taps - 1, groups=len(weight))[..., : x.shape[1]]
    return torch.add(x, y.mT)


def canon_block(model: Decoder, layer: int, x: Tensor) -> Tensor:
    """Block `layer` of member 0 with all four Canon layers: x [B, T, D] to the same."""
    weights = {name: value[0] for name, value in model.blocks[layer].named_parameters()}

    def heads(y: Tensor) -> Tensor:
        return y.view(*y.shape[:-1], 2, -1).transpose(1, 2)

    def normed(y: Tensor, gain: str) -> Tensor:
        return F.rms_norm(y, y.shape[-1:], weights[gain], eps=model.spec.block.norm.eps)  # type: ignore[attr-defined]

    y = convolve(normed(x, "norm_mixer.weight"), weights["before_mixer.weight"])
    qkv = torch.cat([y @ weights[f"mixer.{name}.weight"] for name in ("query", "key", "value")], -1)
    q, k, v = convolve(qkv, weights["mixer.convolution.weight"]).chunk(3, -1)
    mixed = F.scaled_dot_product_attention(heads(q), heads(k), heads(v), is_causal=True)
    x = x + mixed.transpose(1, 2).flatten(2) @ weights["mixer.output.weight"]
    y = convolve(normed(x, "norm_mlp.weight"), weights["before_mlp.weight"])
    both = torch.cat([y @ weights["mlp.gate.weight"], y @ weights["mlp.up.weight"]], -1)
    gate, up = convolve(both, weights["mlp.convolution.weight"]).chunk(2, -1)
    return x + (F.silu(gate) * up) @ weights["mlp.down.weight"]


@pytest.mark.independent_check("blocks", "convolutions", against="torch's `Conv1d` in the block of arXiv:2512.17351")
def test_all_four_places_are_those_of_canon_layers() -> None:
    model = decoder(convolutions=CANON, mlp={"kind": "gated", "activation": "silu"})
    x = torch.randn(2, 3, T, 16, generator=stream(1, "x")).double().requires_grad_()
    weights = list(model.blocks.parameters())
    made = model.blocks[1](model.blocks[0](x))[0]
    expected = canon_block(model, 1, canon_block(model, 0, x[0]))
    torch.testing.assert_close(made, expected, rtol=1e-12, atol=1e-12)
    upstream = torch.randn(made.shape, generator=stream(2, "g")).double()
    for ours, theirs in zip(
        torch.autograd.grad((made * upstream).sum(), [x, *weights]),
        torch.autograd.grad((expected * upstream).sum(), [x, *weights]),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def marin_block(model: Decoder, layer: int, x: Tensor) -> Tensor:
    """Block `layer` of member 0 with SConv on keys and on both outputs: x [B, T, D] to the same."""
    weights = {name: value[0] for name, value in model.blocks[layer].named_parameters()}

    def heads(y: Tensor) -> Tensor:
        return y.view(*y.shape[:-1], 2, -1).transpose(1, 2)

    def convolved(y: Tensor, weight: Tensor) -> Tensor:
        lags = range(weight.shape[-1])
        return sum(F.pad(y, (0, 0, lag, 0))[:, : y.shape[1]] * weight[:, -1 - lag] for lag in lags)  # type: ignore[return-value]

    def normed(y: Tensor, gain: str) -> Tensor:
        return F.rms_norm(y, y.shape[-1:], weights[gain], eps=1e-8)

    y = normed(x, "norm_mixer.weight")
    q, v = (heads(y @ weights[f"mixer.{name}.weight"]) for name in ("query", "value"))
    k = heads(convolved(y @ weights["mixer.key.weight"], weights["mixer.key_convolution.weight"]))
    q, k = (
        F.rms_norm(part, part.shape[-1:], weights[f"mixer.{name}_norm.weight"], eps=1e-6)
        for part, name in ((q, "query"), (k, "key"))
    )
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
    x = x + convolved(mixed @ weights["mixer.output.weight"], weights["after_mixer.weight"])
    y = normed(x, "norm_mlp.weight")
    made = (F.silu(y @ weights["mlp.gate.weight"]) * (y @ weights["mlp.up.weight"])) @ weights["mlp.down.weight"]
    return x + convolved(made, weights["after_mlp.weight"])


def test_keys_and_outputs_are_convolved_as_by_marin() -> None:
    conv = {"taps": 4, "residual": False, "start": [1, 0, 0, 0]}
    places = {"on_key": conv, "after_mixer": conv, "after_mlp": conv}
    block = {"mixer": {"kind": "attention", "query_key_norm": "rms"}, "mlp": {"kind": "gated", "activation": "silu"}}
    model = decoder(convolutions=places, **block)
    x = torch.randn(2, 3, T, 16, generator=stream(1, "x")).double().requires_grad_()
    made, expected = model.blocks[0](x)[0], marin_block(model, 0, x[0])
    torch.testing.assert_close(made, expected, rtol=1e-12, atol=1e-12)
    leaves = [x, *model.blocks[0].parameters()]
    upstream = torch.randn(made.shape, generator=stream(2, "g")).double()
    ours, theirs = (torch.autograd.grad((y * upstream).sum(), leaves) for y in (made, expected))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-10)


HAVING = sorted(
    kind
    for kind, member in MIXERS.members().items()
    if issubclass(member, MixerSpec)
    and member.causal_form
    and MixerSpec.parse({"kind": kind}).convolved_width(LayerContext(1, 16, 2, depth=2, context=T, causal=True))
)
BLOCKS: dict[str, dict[str, Any]] = {
    **{kind: {"mixer": kind, "convolutions": CANON} for kind in HAVING},
    "grouped": {"mixer": {"kind": "attention", "kv_heads": 1, "query_key_norm": "rms"}, "convolutions": CANON},
    "plain": {"mlp": "plain", "convolutions": {"in_mlp": {"taps": 2, "activation": "silu"}}},
    "any mixer": {"mixer": "rwkv7", "convolutions": {"before_mixer": {"residual": False}, "before_mlp": 3}},
    "inputs again": {"mixer": "hyena", "convolutions": {"before_mixer": 3}},
    "parallel": {"arrangement": "parallel", "skips": {"mlp": 0}, "convolutions": CANON},
    "after": {"convolutions": {"after_mixer": {"residual": False}, "after_mlp": 3, "on_key": 2, "on_qkv": 3}},
    "on keys": {"mixer": {"kind": "attention", "kv_heads": 1, "query_key_norm": "rms"}, "convolutions": {"on_key": 4}},
    "after a parallel": {
        "arrangement": "parallel",
        "skips": {"mlp": 0},
        "convolutions": {"after_mixer": 2, "after_mlp": 3},
    },
    "fixed": {"convolutions": {"before_mixer": {"trained": False, "taps": 3, "start": [0.4, 0.2, 0.1]}}},
    "no own": {"mixer": {"kind": "gated_deltanet", "taps": 0}, "convolutions": CANON},
    "no own in mamba": {"mixer": {"kind": "mamba2", "taps": 0, "state": 4}},
}


def test_which_mixers_have_the_place_on_queries_keys_and_values() -> None:
    assert {"attention", "gated_deltanet", "kimi_delta_attention", "linear", "performer"} <= set(HAVING)


@pytest.mark.parametrize("name", BLOCKS)
def test_token_by_token_and_the_cost(name: str) -> None:
    model = decoder(**BLOCKS[name])
    ids = torch.randint(V, (2, 3, T), generator=stream(1, "ids"))
    with torch.no_grad():
        full = model(ids)
        states: States = ()
        for place in range(T):
            logits, states = model.step(ids[..., place : place + 1], place, states)
            torch.testing.assert_close(logits, full[:, :, place : place + 1], rtol=1e-4, atol=1e-4)
    counted = price(model.spec, context=T, vocabulary=V).total
    trained = sum(parameter[0].numel() for parameter in model.parameters() if parameter.requires_grad)
    assert counted.parameters == trained
    without = decoder(**{key: value for key, value in BLOCKS[name].items() if key != "convolutions"}).spec
    cached, others = (price(spec, context=T, vocabulary=V, inference=True).cache for spec in (model.spec, without))
    blocks = [cast(Block, block) for block in model.blocks]
    slots = [state[: block.carried] for state, block in zip(states[1:], blocks, strict=True)]
    assert cached - others == sum(tensor[0, 0].numel() for kept in slots for tensor in kept)


@pytest.mark.parametrize("place", [*CANON, "on_key", "after_mixer", "after_mlp"])
def test_no_document_and_no_padding_reaches_another_token(place: str) -> None:
    model = decoder(mixer={"kind": "attention", "softmax": True}, convolutions={place: 4})
    ids = torch.randint(V, (2, 1, T), generator=stream(1, "ids"))
    numbers = torch.tensor([3] * 5 + [0] * (T - 5)).expand(2, 1, T)
    with torch.no_grad():
        apart = torch.cat([model(ids[..., :5]), model(ids[..., 5:])], 2)
        torch.testing.assert_close(model(ids, numbers), apart)
        padding = torch.arange(T).expand(2, 1, T) >= 3
        other = torch.where(padding, ids, (ids + 1) % V)
        torch.testing.assert_close(model(ids, padding)[..., 3:, :], model(other, padding)[..., 3:, :])


def test_fixed_weights_start_as_given_and_are_not_trained() -> None:
    model = decoder(**BLOCKS["fixed"])
    assert not any("before_mixer" in name for name, _ in model.named_parameters())
    torch.testing.assert_close(
        dict(model.named_buffers())["blocks.0.before_mixer.weight"][1, 7].float(), torch.tensor([0.1, 0.2, 0.4])
    )


@pytest.mark.parametrize("spec", [GatedDeltaNetSpec, KimiDeltaAttentionSpec, Mamba2Spec])
def test_a_mixer_without_its_convolution_is_one_whose_convolution_does_nothing(spec: type[Any]) -> None:
    context = LayerContext(1, 16, 2, depth=1, context=T, causal=True)
    x = torch.randn(1, 2, T, 16, generator=stream(1, "x"))
    modules: list[nn.Module] = [spec(taps=taps).build(context) for taps in (0, 1)]
    for module in modules:
        initialise(module, [0])
    with torch.no_grad():
        for name, parameter in modules[1].named_parameters():
            if "convolution.weight" in name:
                parameter.fill_(1.0)
        torch.testing.assert_close(modules[0](x), modules[1](x))
    one, none = (spec(taps=taps).cost(context, T) for taps in (1, 0))
    assert one.parameters > none.parameters == sum(value.numel() for value in modules[0].parameters())


@pytest.mark.parametrize(
    ("family", "block", "path"),
    [
        ("encoder", {"convolutions": {"before_mixer": 4}}, "block.convolutions"),
        ("decoder", {"mixer": "rwkv7", "convolutions": {"on_qkv": 4}}, "block.convolutions.on_qkv"),
        ("decoder", {"mixer": "rwkv7", "convolutions": {"on_key": 4}}, "block.convolutions.on_key"),
        *(
            (
                "decoder",
                {"mixer": {"kind": "attention", "shared_kv": 0}, "convolutions": {name: 4}},
                f"block.convolutions.{name}",
            )
            for name in ("on_qkv", "on_key")  # later layers, which share the block, have no keys of their own
        ),
        ("decoder", {"mlp": "mixture", "convolutions": {"in_mlp": 4}}, "block.convolutions.in_mlp"),
        (
            "decoder",
            {"mlp": "none", "skips": {"mlp": 0}, "convolutions": {"before_mlp": 4}},
            "block.convolutions.before_mlp",
        ),
        ("decoder", {"convolutions": {"in_mlp": {"taps": 2, "start": [1.0]}}}, "block.convolutions.in_mlp.start"),
    ],
)
def test_places_that_a_block_does_not_have_are_refused(family: str, block: dict[str, Any], path: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ModelSpec.model_validate(SMALL | {"family": family, "block": {"mixer": "attention"} | block})
    assert ".".join(map(str, caught.value.errors()[0]["loc"])) == path
