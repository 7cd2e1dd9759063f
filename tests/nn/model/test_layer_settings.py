"""Positions, window, head width and norms belong to a layer; the model's are where a layer sets none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from ablate.kinds.mixers.patterns import LocalSpec
from ablate.kinds.positions.rotary import RotarySpec
from ablate.nn.kernels.softmax_attention import rotate
from ablate.nn.model import build_model, model_cost
from ablate.nn.model.block import block_cost, build_block
from ablate.nn.pack import LayerNorm, RMSNorm, initialise
from ablate.spec.block import BlockSpec
from ablate.spec.layer import LayerContext
from ablate.spec.model import ModelSpec
from ablate.spec.sentences import describe

T, D, H = 9, 12, 2


def spec(**parts: Any) -> ModelSpec:
    plain = {"family": "decoder", "depth": 3, "width": D, "heads": H, "init_std": 0.3, "positions": "none"}
    return ModelSpec.model_validate({**plain, "block": {"mixer": "attention"}, **parts})


def logits(spec: ModelSpec) -> Tensor:
    model = build_model(spec, vocabulary=11, context=T, seeds=[3]).double().eval()
    ids = torch.arange(T).view(1, 1, T) % 11
    made: Tensor = model(ids)
    return made


def test_a_layer_is_reported_its_own_settings() -> None:
    model = spec(
        positions="rotary",
        head_width=4,
        exceptions={"1": {"positions": "none", "window": 5}, "last": {"positions": {"kind": "rotary", "base": 100}}},
    )
    told = [model.layer_context(T, layer=layer) for layer in range(3)]
    assert [context.layer for context in told] == [0, 1, 2]
    assert [context.positions for context in told] == [RotarySpec(), None, RotarySpec(base=100)]
    assert [context.window for context in told] == [None, 5, None]
    assert [context.head_width for context in told] == [4, 4, 4]
    assert spec().layer_context(T).head_width == D // H


def test_rotary_in_every_layer_is_rotary_in_the_model() -> None:
    everywhere = spec(positions="rotary")
    layer_by_layer = spec(exceptions={"0-2": {"positions": "rotary"}})
    assert torch.equal(logits(everywhere), logits(layer_by_layer))
    nowhere = spec(positions="rotary", pattern=[{"positions": "none"}])
    assert torch.equal(logits(nowhere), logits(spec()))
    mixed = spec(positions="rotary", pattern=[{}, {}, {"positions": "none"}])
    for other in (everywhere, nowhere, spec(positions={"kind": "rotary", "base": 50})):
        assert (logits(mixed) - logits(other)).abs().max() > 1e-6


def test_windows_reach_as_far_as_their_layers_together() -> None:
    """Three layers of windows of 2 tokens: the output at t reads tokens t - 3 to t."""
    model = build_model(spec(block={"mixer": "attention", "window": 2}), vocabulary=11, context=T, seeds=[3]).eval()
    ids = torch.arange(T).view(1, 1, T)
    changed = ids.clone()
    changed[..., 2] = 10
    moved = (model(ids) - model(changed)).abs().amax((0, 1, 3)) > 1e-7
    assert moved.nonzero()[:, 0].tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("parts", "equal"),
    [
        ({"head_width": D // H}, True),
        ({"head_width": D}, False),
        ({"positions": {"kind": "none"}}, True),
        ({"block": {"mixer": "attention", "window": 2}}, False),
        ({"exceptions": {"1": {"positions": "rotary"}}}, False),
    ],
)
def test_what_changes_the_model_changes_its_hash(parts: dict[str, Any], equal: bool) -> None:
    assert (spec(**parts).content_hash() == spec().content_hash()) is equal


def test_wide_heads_have_the_parameters_that_they_cost() -> None:
    model = spec(head_width=10, pattern=[{}, {"mixer": "local"}, {"mixer": "performer"}])
    built = build_model(model, vocabulary=11, context=T, seeds=[0])
    real = sum(parameter.numel() for parameter in built.parameters())
    assert model_cost(model, vocabulary=11, context=T).parameters == real
    assert real - sum(parameter.numel() for parameter in build_model(spec(pattern=model.pattern), vocabulary=11,
                      context=T, seeds=[0]).parameters()) == 3 * 4 * D * (H * 10 - D)  # fmt: skip


def test_a_kind_that_attends_in_blocks_rotates_its_queries_and_keys() -> None:
    """Local attention over the whole text is softmax attention of turned queries and keys."""
    context = LayerContext(1, D, H, depth=1, context=T, causal=True, init_std=0.5, positions=RotarySpec(base=30))
    mixer: Any = LocalSpec(window=T).build(context)
    initialise(mixer, [0])
    x = torch.randn(1, 2, T, D, generator=torch.Generator().manual_seed(0))
    q, k, v = (m(x).view(1, 2, T, H, -1).transpose(2, 3) for m in (mixer.query, mixer.key, mixer.value))
    a = rotate(q, base=30) @ rotate(k, base=30).mT / (D // H) ** 0.5
    a = a.masked_fill(torch.ones(T, T).triu(1) > 0, -torch.inf).softmax(-1)
    torch.testing.assert_close(mixer(x), mixer.output((a @ v).transpose(2, 3).flatten(3)))


CONTEXT = LayerContext(1, 8, 2, depth=2, context=5, causal=True, init_std=0.4)


def block(**parts: Any) -> BlockSpec:
    return BlockSpec.model_validate({"mixer": "attention", **parts})


def norms(spec: BlockSpec) -> list[type[nn.Module]]:
    built = build_block(spec, CONTEXT)
    return [type(norm) for norm in (built.norm_mixer, built.norm_mlp)]


def test_norm_is_that_of_both() -> None:
    assert norms(block(norm="layer")) == [LayerNorm, LayerNorm]
    assert norms(block(norm="none", norm_mixer="rms")) == [RMSNorm, nn.Identity]
    assert norms(block(norm_mlp={"kind": "layer", "eps": 1e-5})) == [RMSNorm, LayerNorm]


def test_one_norm_before_attention_of_the_first_block() -> None:
    """The released no-norm model of arXiv:2311.01906: all norms are gone but that one."""
    plain = {"family": "decoder", "depth": 3, "width": 8, "heads": 2, "block": {"mixer": "attention", "norm": "none"}}
    spec = ModelSpec.model_validate({**plain, "exceptions": {"first": {"norm_mixer": "rms"}}})
    assert [[norm.kind_name() for norm in one.norms] for one in spec.blocks] == [["rms", "none"], *[["none"] * 2] * 2]


def test_each_has_its_own_place() -> None:
    spec = block(norm_mlp={"place": "post", "eps": 1e-3})
    module: Any = build_block(spec, CONTEXT)
    initialise(module, [0])
    x = torch.randn(1, 2, 5, 8, generator=torch.Generator().manual_seed(0))
    y = x + module.mixer(module.norm_mixer(x))
    torch.testing.assert_close(module(x), module.norm_mlp(y + module.mlp(y)))
    assert module.norm_mlp.eps == 1e-3
    rest = block_cost(spec, CONTEXT, 5)["rest"]
    assert rest.parameters == sum(p.numel() for n in (module.norm_mixer, module.norm_mlp) for p in n.parameters())


def test_settings_without_a_kind_change_those_of_norm() -> None:
    spec = block(norm={"kind": "layer", "eps": 1e-5}, norm_mixer={"place": "post"})
    assert spec.norms[0] == type(spec.norms[0])(place="post", eps=1e-5)
    assert block(norm_mixer="rms") == block(norm_mixer={"eps": 1e-8}) == block()
    assert block(norm_mixer="rms").content_hash() == block().content_hash()


def test_the_norm_of_the_mixer_is_the_only_norm_of_a_parallel_block() -> None:
    """Then one setting of a switch, `norm: none` with `exceptions.first.norm_mixer`, fits both arrangements."""
    parallel = {"arrangement": "parallel", "skips": {"mlp": 0}}
    found = block(**parallel, norm="none", norm_mixer="rms")
    assert found == block(**parallel, norm="rms")
    assert found.content_hash() == block(**parallel).content_hash()


@pytest.mark.parametrize(
    ("parts", "path", "said"),
    [
        ({"norm_mixer": "layer", "norm_mlp": "none"}, "norm_mixer", "the norm of no sub-layer"),
        ({"mlp": "none", "skips": {"mlp": 0}, "norm_mlp": "layer"}, "norm_mlp", "a block without MLP"),
        ({"mlp": "none", "skips": {"mlp": 0}, "norm_mixer": "layer"}, "norm_mixer", "the norm of no sub-layer"),
        ({"arrangement": "parallel", "skips": {"mlp": 0}, "norm_mlp": "layer"}, "norm_mlp", "parallel block"),
    ],
)
def test_a_norm_of_nothing_is_refused(parts: dict[str, Any], path: str, said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        block(**parts)
    ((loc, sentence),) = describe(caught.value)
    assert ".".join(map(str, loc)) == path
    assert said in sentence


@pytest.mark.parametrize(
    "stored",
    [
        {"norm": {"kind": "none", "place": "pre", "eps": 1e-8}},
        {"mlp": {"kind": "none", "ratio": 4.0, "activation": "relu", "bias": False}, "skips": {"mixer": 1, "mlp": 0}},
    ],
)
def test_settings_of_absent_parts_that_earlier_versions_stored_are_read(stored: dict[str, Any]) -> None:
    short = {name: value.get("kind", value) for name, value in stored.items()}
    assert block(**stored) == block(**short)
    assert block(**stored).content_hash() == block(**short).content_hash()
