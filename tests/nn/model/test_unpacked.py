"""A user's mixer without a pack axis: wrapped, seeded, trained, never packed."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from ablate.nn.model import build_model
from ablate.nn.pack import Unpacked
from ablate.spec.base import Family
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext
from ablate.spec.model import ModelSpec
from ablate.spec.sublayers import MixerSpec


class Recurrent(nn.Module):
    """Stock torch on [B, T, D], with initial values that torch draws."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.GRU(width, width, batch_first=True)
        self.scale = nn.Parameter(torch.rand(width))

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        y: Tensor = self.inner(x)[0]
        return y * self.scale


class RecurrentSpec(MixerSpec):
    """Kept out of the family of real mixers."""

    family = Family("mixer of the tests")
    source = "none"
    complexity = "Ld²"
    pack_aware = False
    bidirectional_form = False
    kind: Literal["recurrent"] = "recurrent"

    def build(self, context: LayerContext) -> nn.Module:
        return Recurrent(context.width)

    def cost(self, context: LayerContext, length: int) -> Cost:
        return Cost(parameters=6 * context.width * (context.width + 1) + context.width)


def build(seeds: list[int], norm: str = "rms") -> nn.Module:
    block = {"mixer": RecurrentSpec(), "norm": norm}
    spec = ModelSpec.model_validate({"family": "decoder", "depth": 2, "width": 6, "block": block})
    return build_model(spec, vocabulary=11, context=5, seeds=seeds)


def test_it_is_wrapped_and_maps_the_shape() -> None:
    model = build([0])
    assert isinstance(model.blocks[0].mixer, Unpacked)
    assert model(torch.zeros(1, 3, 5, dtype=torch.int64)).shape == (1, 3, 5, 11)


def test_its_initial_values_come_from_the_seed_alone() -> None:
    torch.manual_seed(1)
    one = build([7])
    torch.manual_seed(2)
    two, other = build([7], norm="layer"), build([8])
    for (name, values), theirs, strange in zip(
        one.blocks[0].mixer.named_parameters(),
        two.blocks[0].mixer.parameters(),
        other.blocks[0].mixer.parameters(),
        strict=True,
    ):
        assert torch.equal(values, theirs), name
        assert not torch.equal(values, strange), name
    assert not torch.equal(one.blocks[0].mixer.module.scale, one.blocks[1].mixer.module.scale)


def test_it_is_never_fused() -> None:
    with pytest.raises(ValueError, match="pack of one"):
        build([0, 1])
