"""The decoder around its blocks: embedding, positions, final norm, head, counted parameters, initial values."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from ablate.nn.model.build import build_model, model_cost
from ablate.nn.pack import RMSNorm
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


def test_tied_head_is_the_embedding() -> None:
    tied, apart = build(), build(tied_head=False)
    assert tied.head is None
    assert {name for name, _ in apart.named_parameters()} - {name for name, _ in tied.named_parameters()} == {
        "head.weight"
    }
    with torch.no_grad():
        apart.head.weight.copy_(tied.embedding.weight.mT)
    torch.testing.assert_close(tied(tokens()), apart(tokens()))


def test_final_norm_stands_before_the_head() -> None:
    with_norm, without = build(final_norm="rms"), build(final_norm="none")
    norm = RMSNorm(1, D, 1e-8)
    norm.weight.data.fill_(1.0)
    seen: list[torch.Tensor] = []
    handle = without.blocks[-1].register_forward_hook(lambda module, inputs, output: seen.append(output))
    without(tokens())
    handle.remove()
    torch.testing.assert_close(with_norm(tokens()), without.embedding.logits(norm(seen[0])))


@pytest.mark.independent_check("positions", "sinusoidal", against="arXiv:1706.03762 sec. 3.5")
@pytest.mark.parametrize("width", [10, 7])
def test_sinusoidal_positions_are_their_equation(width: int) -> None:
    table = build(positions="sinusoidal", width=width, heads=1).positions.table
    for position in range(T):
        for i in range(width):
            angle = position / 10000 ** ((i - i % 2) / width)
            expected = math.cos(angle) if i % 2 else math.sin(angle)
            assert table[position, i].item() == pytest.approx(expected, abs=1e-6)


def test_without_positions_a_decoder_of_one_block_cannot_tell_order() -> None:
    """The last position sees the tokens before it as a set."""
    model = build(positions="none", depth=1)
    row = torch.tensor([[[1, 2, 3, 4, 5]]])
    swapped = torch.tensor([[[3, 1, 2, 4, 5]]])
    torch.testing.assert_close(model(row)[..., -1, :], model(swapped)[..., -1, :])
    positioned = build(positions="learned", depth=1)
    assert not torch.allclose(positioned(row)[..., -1, :], positioned(swapped)[..., -1, :], atol=1e-6)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
def test_shorter_inputs_give_the_first_logits(positions: str) -> None:
    model = build(positions=positions)
    torch.testing.assert_close(model(tokens())[:, :, :3], model(tokens()[:, :, :3]))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"positions": "none"},
        {"positions": "sinusoidal", "final_norm": "layer"},
        {"tied_head": False, "final_norm": "none"},
        {"block": {"mixer": "attention", "mlp": "none", "skips": {"mlp": 0}}},
        {"block": {"mixer": "attention", "mlp": {"kind": "gated", "bias": True}, "norm": "layer"}},
        {"block": "sas", "exceptions": {"last": {"norm": "layer"}}},
    ],
)
def test_counted_parameters_are_real(fields: dict[str, Any]) -> None:
    real = sum(parameter.numel() for parameter in build(**fields).parameters())
    assert model_cost(spec_of(**fields), vocabulary=V, context=T).parameters == real


def test_a_pack_counts_as_one_member() -> None:
    single, pack = build(), build(seeds=[0, 1, 2])
    assert sum(p.numel() for p in pack.parameters()) == 3 * sum(p.numel() for p in single.parameters())


def test_members_of_a_pack_are_the_models_of_their_seeds() -> None:
    pack = build(seeds=[3, 1, 4], block="sas")
    batch = tokens(pack=3)
    for k, seed in enumerate([3, 1, 4]):
        single = build(seeds=[seed], block="sas")
        torch.testing.assert_close(pack(batch)[k], single(batch[k : k + 1])[0], rtol=1e-5, atol=1e-6)


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
    with pytest.raises(RuntimeError):
        build()(tokens(length=T + 1))
