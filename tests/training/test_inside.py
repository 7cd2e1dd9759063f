"""What is recorded inside the blocks, against Jacobians of torch's own, gradients taken by hand, and known kernels."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from families import a_family_for
from random_tokens import CPU, RandomTokens, losses, points, variant
from test_checkpoint import pack, state_at, told
from torch import Tensor, nn

from ablate.nn.model import build_model
from ablate.spec.block import BlockSpec
from ablate.spec.model import ModelSpec
from ablate.spec.named import NamedBlock, block_names, named_block
from ablate.spec.sublayers import MIXERS
from ablate.training.block_recordings import DIRECTIONS, _real, mixing_maps, weight_norms
from ablate.training.loop import train
from ablate.training.members import Member
from ablate.training.pack import Pack

T = 9


def model_of(block: Any, width: int = 6, seeds: tuple[int, ...] = (0,), **more: Any) -> nn.Module:
    plain = {"family": "decoder", "depth": 2, "width": width, "heads": 2, "block": block, "init_std": 0.4, **more}
    spec = ModelSpec.model_validate(plain)
    return build_model(spec, vocabulary=17, context=T, classes=2, seeds=seeds)


def tokens(members: int = 1) -> Tensor:
    drawn = torch.randint(17, (1, T), generator=torch.Generator().manual_seed(3))
    return drawn.expand(members, 1, T)


def maps(model: nn.Module, members: int = 1, **options: Any) -> dict[str, Tensor]:
    return mixing_maps(model, lambda: model(tokens(members)), **options)


def exact(mixer: nn.Module, x: Tensor) -> Tensor:
    """The whole Jacobian of [1, 1, T, D] to the same, its norms by pairs of tokens."""
    jacobian = torch.autograd.functional.jacobian(mixer, x)[0, 0, :, :, 0, 0]
    return jacobian.square().sum((1, 3)).div(x.shape[-1]).sqrt()


def given_to(mixer: nn.Module, model: nn.Module) -> Tensor:
    seen: list[Tensor] = []
    hook = mixer.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach()))
    with torch.no_grad():
        model(tokens())
    hook.remove()
    return seen[0]


@pytest.mark.parametrize("block", ["pre_ln", "simple_res", "gated_linear_attention", "parallel"])
def test_a_map_is_the_jacobian(block: str) -> None:
    model = model_of(block)
    for number, mixing_map in enumerate(maps(model).values()):
        mixer = model.blocks[number].mixer
        torch.testing.assert_close(mixing_map[0], exact(mixer, given_to(mixer, model)), rtol=1e-4, atol=1e-6)


def test_of_a_wide_model_the_map_is_an_estimate_without_bias() -> None:
    model = model_of("pre_ln", width=64)
    (estimate, _), mixer = maps(model).values(), model.blocks[0].mixer
    expected = exact(mixer, given_to(mixer, model))
    assert DIRECTIONS < 64
    seen = expected > 0
    ratio = estimate[0][seen] / expected[seen]
    assert ratio.mean() == pytest.approx(1.0, abs=0.08)
    assert ratio.std() < 0.3
    assert estimate[0].std().item() == pytest.approx(expected.std().item(), rel=0.08)


def test_an_extractor_shows_its_kernel() -> None:
    model = model_of("me")
    weight = dict(model.blocks[0].mixer.named_parameters())["weight"][0].detach()  # by lag
    mixing_map = maps(model)["block 1 mixer"][0]
    for i in range(T):
        for j in range(T):
            assert mixing_map[i, j].item() == pytest.approx(abs(weight[i - j].item()) if j <= i else 0.0, abs=1e-5)


BLOCKS = {name: named_block(name) for name in block_names()} | {
    kind: NamedBlock(description=kind, source="", block={"mixer": kind})
    for kind in ("native_sparse_attention", "path_attention")
}


@pytest.mark.parametrize("name", BLOCKS)
def test_no_mixer_shows_what_it_may_not_see(name: str) -> None:
    family = a_family_for(name) if name in block_names() else "decoder"
    named = BLOCKS[name]
    model = model_of({**named.block, "dropout": 0.5}, width=12, family=family, exceptions=named.exceptions)
    with torch.no_grad():  # some mixers start with an output map of 0
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
    random = torch.get_rng_state()
    drawn = maps(model)
    assert torch.equal(torch.get_rng_state(), random)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert list(drawn) == ["block 1 mixer", "block 2 mixer"]
    for found_map in drawn.values():
        assert found_map.shape == (1, T, T)
        assert found_map.isfinite().all()
        assert found_map.max() > 0
        if family == "decoder":
            assert found_map[0].triu(1).max() < 1e-5 * found_map.max()  # convolutions by FFT leave rounding errors


def test_every_kind_of_mixer_was_looked_at() -> None:
    looked_at = {BlockSpec.model_validate(named.block).mixer.kind_name() for named in BLOCKS.values()}
    ours = {kind for kind, spec in MIXERS.members().items() if spec.__module__.startswith("ablate.")}
    assert ours - looked_at == {"channel_mixing"}, "it sees one token back"


def test_members_of_a_pack_have_their_own_maps_and_norms() -> None:
    together = model_of("sas", seeds=(4, 7))
    for place, seed in enumerate((4, 7)):
        alone = model_of("sas", seeds=(seed,))
        for part, mixing_map in maps(together, 2).items():
            torch.testing.assert_close(mixing_map[place], maps(alone)[part][0])
        for part, norms in weight_norms(together).items():
            assert norms[place] == pytest.approx(weight_norms(alone)[part][0])


def test_a_map_is_of_the_real_tokens_among_the_first() -> None:
    of, padding = torch.zeros(1, 1, 4, 2), torch.tensor([[[True, False, True, True]]])
    assert [_real(of, mask, 3).tolist() for mask in (None, padding, padding & False)] == [[0, 1, 2], [0, 2], [0]]


def test_a_cross_attention_mixes_the_source() -> None:
    model = model_of("pre_ln", family="encoder_decoder", decoder={"depth": 1, "mixer": "attention"})
    source, target = tokens(), tokens()[..., :5]
    mixing = mixing_maps(model, lambda: model(source, target), tokens=7)
    assert {part: tuple(one.shape[1:]) for part, one in mixing.items()} == {
        "block 1 mixer": (7, 7),
        "block 2 mixer": (7, 7),
        "decoder block 1 mixer": (5, 5),
        "decoder block 1 cross": (5, 7),
    }
    assert mixing["decoder block 1 cross"].min() > 0  # it sees all of the source
    assert mixing["decoder block 1 mixer"][0].triu(1).max() == 0


def test_norms_are_those_of_gradients_taken_by_hand_before_clipping() -> None:
    spec = variant({"depth": 2}, steps=1, record_blocks=True, optimizer={"clip": 1e-3})
    members, task = [Member(spec, 5), Member(spec, 2)], RandomTokens()
    with Pack(members, task, CPU) as fresh:
        batch = fresh.batches.get([5, 2], 1)
        task.loss(task.outputs(fresh.model, batch).float(), batch).sum().backward()
    squares: dict[str, list[float]] = {}
    for number, block in enumerate(fresh.model.blocks, 1):
        for name, parameter in block.named_parameters():
            part = name.partition(".")[0]
            into = squares.setdefault(f"block {number} {part if part in ('mixer', 'mlp') else 'rest'}", [0.0, 0.0])
            for k in range(2):
                into[k] += float(parameter.grad[k].square().sum())
    expected = {part: [math.sqrt(square) for square in of_part] for part, of_part in squares.items()}
    begin, end = points(list(train(members, RandomTokens(), CPU)))
    assert set(begin.inside) == {"weights", "spread"}
    assert set(end.inside) == {"weights", "gradients", "spread", "map"}
    assert end.inside["gradients"].keys() == expected.keys()
    for part, norms in expected.items():
        assert end.inside["gradients"][part] == pytest.approx(norms, rel=1e-4)
        assert min(norms) > 1e-3


@pytest.mark.parametrize("seeds", [[5], [5, 2]])
def test_recording_changes_no_result(seeds: list[int]) -> None:
    model = {"dropout": 0.3, "depth": 2}
    plain, recorded = variant(model, steps=6), variant(model, steps=6, record_blocks=True)
    assert plain.content_hash() == recorded.content_hash()
    without, with_it = (list(train(pack(spec, *seeds), RandomTokens(), CPU)) for spec in (plain, recorded))
    assert torch.equal(losses(without), losses(with_it))
    assert all(point.inside == {} for point in points(without))
    assert all(point.inside for point in points(with_it))


def test_what_was_recorded_before_a_checkpoint_is_reported_again() -> None:
    spec = variant({"depth": 2}, steps=8, evaluations=4, record_blocks=True)
    whole = list(train(pack(spec, 5, 2), RandomTokens(), CPU))
    again = list(train(pack(spec, 5, 2), RandomTokens(), CPU, start=state_at(spec, [5, 2], 5)))
    assert told(again) == told(whole)
    assert [point.inside for point in points(again)] == [point.inside for point in points(whole)]


def test_a_member_that_left_is_not_recorded() -> None:
    spec = variant({"depth": 2}, steps=4, record_blocks=True)
    end = points(list(train(pack(spec, 0, 1), RandomTokens({1: 2}), CPU)))[-1]
    assert all(math.isfinite(values[0]) and math.isnan(values[1]) for values in end.inside["weights"].values())
