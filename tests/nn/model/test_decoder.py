"""The decoder around its blocks: embedding, positions, final norm, head, counted parameters, initial values."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from ablate.errors import AblateError
from ablate.nn.model import build_model
from ablate.nn.pack.initial import stream
from ablate.spec.model import ModelSpec

V, D, T = 13, 10, 7


def build(seeds: list[int] | None = None, **fields: Any) -> nn.Module:
    return build_model(spec_of(**fields), vocabulary=V, context=T, seeds=seeds or [0])


def spec_of(**fields: Any) -> ModelSpec:
    plain = {"family": "decoder", "depth": 2, "width": D, "heads": 2, "block": "pre_ln", **fields}
    return ModelSpec.model_validate(plain)


def tokens(pack: int = 1, length: int = T) -> torch.Tensor:
    return torch.randint(V, (pack, 2, length), generator=stream(0, "tokens"))


@pytest.mark.independent_check("positions", "sinusoidal", against="arXiv:1706.03762 sec. 3.5")
@pytest.mark.parametrize("width", [10, 7])
def test_sinusoidal_positions_are_their_equation(width: int) -> None:
    table = build(positions="sinusoidal", width=width, heads=1).positions.table
    for position in range(T):
        for i in range(width):
            angle = position / 10000 ** ((i - i % 2) / width)
            expected = math.cos(angle) if i % 2 else math.sin(angle)
            assert table[position, i].item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("left", "right"),
    [("pre_ln", "parallel"), ("pre_ln", "sas"), ("sas", "sas_p_no_norm"), ("shaped", "value_skipinit")],
)
def test_two_variants_of_one_seed_start_equal_where_they_can(left: str, right: str) -> None:
    """Equal name and shape give equal initial values, but where the blocks start them by different rules."""
    one, other = (dict(build(seeds=[9], block=block).named_parameters()) for block in (left, right))
    shared = {name for name in one.keys() & other.keys() if one[name].shape == other[name].shape}
    assert {"embedding.weight", "positions.weight", "blocks.1.mixer.key.weight", "blocks.0.mlp.up.weight"} <= shared
    started_otherwise = {f"blocks.{i}.mixer.query.weight" for i in range(2)}  # W_Q = 0 in shaped attention
    started_otherwise |= {f"blocks.{i}.mixer.gains.beta.value" for i in range(2)}
    for name in shared - started_otherwise:
        assert torch.equal(one[name], other[name]), name


def test_blocks_of_one_model_start_differently() -> None:
    model = build()
    assert not torch.equal(model.blocks[0].mlp.up.weight, model.blocks[1].mlp.up.weight)


def test_an_input_longer_than_the_context_is_no_silent_mistake() -> None:
    with pytest.raises(AblateError, match=f"at most {T} tokens; got {T + 1}"):
        build()(tokens(length=T + 1))
