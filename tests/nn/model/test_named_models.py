"""The named models: they validate, draw, cost and train; some are compared with their equations, written again."""

from __future__ import annotations

import copy
import math
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from torch import Tensor

from ablate.errors import SpaceError
from ablate.nn.model import build_model, model_cost, outline
from ablate.nn.model.decoder import Decoder
from ablate.nn.model.pricing import price
from ablate.nn.pack import auxiliary_losses
from ablate.nn.pack.initial import stream
from ablate.render.drawing import layout, to_svg
from ablate.spec.block import BlockSpec
from ablate.spec.lookup import find_block, find_model, is_model
from ablate.spec.model import ModelSpec
from ablate.spec.named import block_names, model_names

NAMES = sorted(model_names())
SMALL = [name for name in NAMES if name.endswith("_small")]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_priced_and_drawn(name: str) -> None:
    """Its parameters are those of its modules, and as many as are published."""
    found = find_model(f"models/{name}")
    sizes = {"vocabulary": found.named.vocabulary, "context": found.named.context}
    count = sum(parameter.numel() for parameter in outline(found.spec, **sizes).parameters())
    assert model_cost(found.spec, **sizes, length=1).parameters == count
    assert price(found.spec, **sizes).total.parameters == count
    if name in SMALL:
        assert found.named.parameters is None
        assert count < 4e6
        assert name.removesuffix("_small") in NAMES
    else:
        assert found.named.parameters == count
    block = find_block(f"models/{name}")
    assert "<svg" in to_svg(layout(name, block.block, bool(block.exceptions)))


def test_a_block_keeps_its_name() -> None:
    """A model of the same name is named by its folder."""
    both = sorted({*NAMES} & {*block_names()})
    assert both == ["mamba2", "rwkv7"]
    for name in both:
        assert not is_model(name)
        assert is_model(f"models/{name}")
        assert find_block(name).block.mixer.kind_name() == name
    with pytest.raises(SpaceError, match="Did you mean `gpt2`"):
        find_model("gpt3")


@pytest.mark.parametrize("name", SMALL)
def test_the_small_one_trains(name: str) -> None:
    """It learns a text by heart: in 10 steps the loss falls below that of a uniform guess."""
    found, vocabulary = find_model(name), 19
    spec = ModelSpec.model_validate({**found.named.model, "dropout": 0.0})
    model = build_model(spec, vocabulary=vocabulary, context=16, seeds=[0]).train()
    tokens = torch.randint(vocabulary, (1, 2, 16), generator=stream(1, "tokens"))
    optimizer = torch.optim.Adam(model.parameters(), lr=6e-3)
    losses = []
    for _ in range(10):
        with auxiliary_losses() as others:
            logits = model(tokens, tokens) if spec.family == "encoder_decoder" else model(tokens)
        if spec.family != "encoder":
            loss = F.cross_entropy(logits[:, :, :-1].flatten(0, 2), tokens[:, :, 1:].flatten())
        else:
            loss = F.cross_entropy(logits.flatten(0, 2), tokens.flatten())
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        (loss + sum(one.sum() for one in others)).backward()
        optimizer.step()
    assert losses[-1] < 0.95 * math.log(vocabulary), losses


def scattered(name: str, vocabulary: int, context: int, **parts: Any) -> Decoder:
    """A named model in float64, its every parameter random."""
    spec = ModelSpec.model_validate({**find_model(name).named.model, **parts})
    model = build_model(spec, vocabulary=vocabulary, context=context, seeds=[0]).double().eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=stream(7, key), dtype=torch.float64) / 4)
    return cast(Decoder, model)


@pytest.mark.independent_check(
    "residuals", "embedding_skip unet_skip", against="the record of modded-nanogpt written again"
)
@pytest.mark.independent_check("models", "speedrun", against="the record of modded-nanogpt written again")
def test_the_speedrun_is_its_record() -> None:
    """records/111024_UNetDoubleLr of modded-nanogpt, written again in its own symbols."""
    V, T, L, D, H = 13, 9, 5, 12, 2
    ours = scattered("speedrun", V, T, depth=L, width=D, heads=H)
    tokens = torch.randint(V, (3, T), generator=stream(2, "tokens"))
    parameters = {name: one[0] for name, one in ours.named_parameters()}

    def rms(x: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1.1920929e-7).sqrt()

    def rotated(x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        angle = torch.arange(T)[:, None] * 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        x1, x2 = x[..., :half], x[..., half:]
        # The record turns the other way, which is the same for a model whose halves are exchanged.
        return torch.cat([x1 * angle.cos() - x2 * angle.sin(), x2 * angle.cos() + x1 * angle.sin()], -1)

    x = x0 = rms(parameters["embedding.weight"][tokens])
    v1, pushed = torch.empty(0), []
    for layer in range(L):
        w = {name.split(".", 2)[2]: one for name, one in parameters.items() if name.startswith(f"blocks.{layer}.")}
        if layer >= L - L // 2:
            x = x + w["residual.skip.value"] * pushed.pop()
        x = w["residual.stream.value"] * x + w["residual.embedding.value"] * x0
        y = rms(x)
        q, k, v = (
            (y @ w[f"mixer.{name}.weight"]).unflatten(-1, (H, -1)).transpose(1, 2) for name in ("query", "key", "value")
        )
        v1 = v if layer == 0 else v1
        lamb = w["mixer.value_residual.first.value"] if layer else 0.5
        v = (1 - lamb) * v + lamb * v1
        logits = rotated(rms(q)) @ rotated(rms(k)).mT / math.sqrt(D // H)
        logits = logits.masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf)
        x = x + (logits.softmax(-1) @ v).transpose(1, 2).flatten(2) @ w["mixer.output.weight"]
        x = x + (rms(x) @ w["mlp.up.weight"]).relu().square() @ w["mlp.down.weight"]
        if layer < L // 2:
            pushed.append(x)
    expected = 30 * (rms(x) @ parameters["head.weight"] / 30).tanh()
    torch.testing.assert_close(ours(tokens[None])[0], expected, rtol=1e-9, atol=1e-9)
    scalars = sum(one.numel() for one in parameters.values() if one.dim() == 0)
    assert scalars == L // 2 + 2 * L + (L - 1)
    assert sum(one.numel() for one in parameters.values()) == 2 * V * D + L * 12 * D * D + scalars


@pytest.mark.independent_check("models", "rwkv7", against="BlinkDL/RWKV-LM, the whole model token by token")
def test_rwkv7_is_its_public_code() -> None:
    """The whole model as BlinkDL/RWKV-LM's inference code computes it token by token, written again in its symbols."""
    V, T, L, D, H = 13, 7, 6, 12, 3  # three layers of time mixing, each followed by one of channel mixing
    ours = scattered("models/rwkv7_small", V, T, depth=L, width=D, heads=H)
    tokens = torch.randint(V, (2, T), generator=stream(2, "tokens"))
    parameters = {name: one[0] for name, one in ours.named_parameters()}

    def layer_norm(x: Tensor, name: str) -> Tensor:
        x = (x - x.mean()) / (x.var(correction=0) + 1e-5).sqrt()
        return x * parameters[f"{name}.weight"] + parameters[f"{name}.bias"]

    def group_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        x = x.view(H, -1)
        x = (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True, correction=0) + D // H * 1e-5).sqrt()
        return x.flatten() * weight + bias

    def time_mixing(x: Tensor, v0: Tensor | None, last: Tensor, S: Tensor, p: dict[str, Tensor]) -> Any:
        xr, xw, xk, xv, xa, xg = (x + p[f"shift.share_{name}"] * (last - x) for name in "rwkvag")
        r, k, v = xr @ p["receptance.weight"], xk @ p["key.weight"], xv @ p["value.weight"]
        low = (xw @ p["decay.down.weight"]).tanh() @ p["decay.up.weight"] + p["decay.up.bias"]
        w = (-low.sigmoid() / math.e**0.5).exp()
        if v0 is None:
            v0 = v
        else:
            share = xv @ p["value_share.down.weight"] @ p["value_share.up.weight"] + p["value_share.up.bias"]
            v = v + (v0 - v) * share.sigmoid()
        a = (xa @ p["removal.down.weight"] @ p["removal.up.weight"] + p["removal.up.bias"]).sigmoid()
        g = (xg @ p["gate.down.weight"]).sigmoid() @ p["gate.up.weight"]
        kk = k * p["channels.read"]
        k = k + k * (a - 1) * p["channels.replaced"]
        r, w, k, v, kk, a, own = (one.view(H, -1, 1) for one in (r, w, k, v, kk, a, p["channels.own"]))
        kk = kk / kk.norm(dim=1, keepdim=True).clamp(min=1e-12)
        S = S * w.mT - S @ kk * (kk * a).mT + v * k.mT
        y = group_norm((S @ r).flatten(), p["channels.weight"], p["channels.bias"])
        y = y + ((r * k * own).sum(1, keepdim=True) * v).flatten()
        return (y * g) @ p["output.weight"], v0, S

    logits = []
    for text in tokens:
        before = {layer: torch.zeros(D, dtype=torch.float64) for layer in range(L)}
        states = {layer: torch.zeros(H, D // H, D // H, dtype=torch.float64) for layer in range(0, L, 2)}
        for token in text:
            x, v0 = layer_norm(parameters["embedding.weight"][token], "embedding_norm"), None
            for layer in range(L):
                start = f"blocks.{layer}.mixer."
                p = {name.removeprefix(start): one for name, one in parameters.items() if name.startswith(start)}
                now = layer_norm(x, f"blocks.{layer}.norm_mixer")
                if layer in states:
                    y, v0, states[layer] = time_mixing(now, v0, before[layer], states[layer], p)
                else:
                    k = (now + p["share"] * (before[layer] - now)) @ p["key.weight"]
                    y = k.clamp(min=0).square() @ p["value.weight"]
                x, before[layer] = x + y, now
            logits.append(layer_norm(x, "norm") @ parameters["head.weight"])
    torch.testing.assert_close(ours(tokens[None])[0].flatten(0, 1), torch.stack(logits), rtol=1e-9, atol=1e-9)


@pytest.mark.independent_check("models", "rwkv7", against="arXiv:2503.14456 appendix E, parameters")
@pytest.mark.parametrize(("V", "D", "L"), [(65536, 768, 12), (512, 128, 4)])
def test_rwkv7_has_the_parameters_that_its_paper_counts(V: int, D: int, L: int) -> None:
    """Appendix E of arXiv:2503.14456: 2DV + 4D + LD(12D + 2(d_w + d_a + d_v + d_g) + 19) - (2D·d_v + D)."""
    name = "rwkv7" if D == 768 else "rwkv7_small"
    found = find_model(f"models/{name}")
    decay, value, gate = cast(Any, found.spec.blocks[0].mixer).ranks(found.spec.layer_context(8))
    expected = 2 * D * V + 4 * D + L * D * (12 * D + 2 * (2 * decay + value + gate) + 19) - (2 * D * value + D)
    assert model_cost(found.spec, vocabulary=V, context=8).parameters == expected
    assert [block.mixer.kind_name() for block in found.spec.blocks[:3]] == ["rwkv7", "channel_mixing", "rwkv7"]


def test_a_space_changes_a_named_model() -> None:
    plain, changed = find_model("gemma3_small").spec, {"name": "gemma3_small", "depth": 3, "block": {"norm": "none"}}
    spec = ModelSpec.model_validate(changed)
    assert (spec.depth, spec.width, spec.block.norm.kind_name()) == (3, plain.width, "none")
    assert spec.block.mixer == plain.block.mixer
    assert ModelSpec.model_validate("gemma3_small") == plain
    other = ModelSpec.model_validate({"name": "gemma3_small", "block": "pre_ln"})
    assert set(other.blocks) == {BlockSpec.model_validate(find_block("pre_ln").block)}
    assert (other.depth, other.positions) == (plain.depth, plain.positions)


@pytest.mark.parametrize(
    ("model", "path", "message"),
    [
        ("gemma3_smal", (), "no model of this name"),
        ({"name": "gemma3_smal"}, ("name",), "no model of this name"),
        ({"name": "gemma3_small", "deph": 3}, ("deph",), "no key `deph`"),
        ({"name": "gpt2_small", "exceptions": {"9": {"norm": "none"}}}, ("exceptions", "9"), "numbered 0 to 3"),
    ],
)
def test_impossible_settings_are_refused(model: Any, path: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValidationError, match=message) as refused:
        ModelSpec.model_validate(model)
    assert refused.value.errors()[0]["loc"] == path


def test_layers_share_a_table_that_the_first_one_owns() -> None:
    """Its tensor has one name, also in a copy and in another precision, and gets the gradients of all layers."""
    parts = {"name": "gpt2_small", "depth": 3, "width": 8, "heads": 2, "positions": {"kind": "t5_buckets"}}
    own = build_model(ModelSpec.model_validate(parts), vocabulary=7, context=9, seeds=[0, 1]).double()
    parts["positions"] = {"kind": "t5_buckets", "shared": True}
    shared = copy.deepcopy(build_model(ModelSpec.model_validate(parts), vocabulary=7, context=9, seeds=[0, 1]).double())
    tables = [name for name in shared.state_dict() if ".mixer.bias" in name]
    assert tables == ["blocks.0.mixer.bias.weight"]
    table = shared.state_dict()[tables[0]]
    own.load_state_dict({**shared.state_dict(), **{f"blocks.{layer}.mixer.bias.weight": table for layer in (1, 2)}})
    tokens = torch.randint(7, (2, 1, 9), generator=stream(1, "tokens"))
    own.eval()(tokens).square().sum().backward()
    shared.eval()(tokens).square().sum().backward()
    gradients = [own.get_parameter(f"blocks.{layer}.mixer.bias.weight").grad for layer in range(3)]
    torch.testing.assert_close(shared.get_parameter(tables[0]).grad, sum(gradients))
