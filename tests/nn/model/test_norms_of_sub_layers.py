"""The norms of the two sub-layers of a block can differ."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from ablate.nn.model.block import block_cost, build_block
from ablate.nn.pack import LayerNorm, RMSNorm, initialise
from ablate.spec.block import BlockSpec
from ablate.spec.layer import LayerContext
from ablate.spec.model import ModelSpec
from ablate.spec.sentences import describe

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
