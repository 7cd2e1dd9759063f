"""Embeddings that look back, heads with caps and further losses, and loops of layers, against slow forms in float64."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.nn.model import build_model, model_cost
from ablate.nn.model.decoder import Decoder
from ablate.nn.model.embedding import pairs
from ablate.nn.model.pricing import price
from ablate.nn.pack import auxiliary_losses
from ablate.nn.pack.initial import stream
from ablate.spec.model import ModelSpec
from ablate.tasks.scores import nats

V, T, D, DEPTH = 11, 7, 12, 3
IDS = torch.randint(V, (2, 3, T), generator=stream(0, "ids"))
PLAIN: dict[str, Any] = {
    "family": "decoder",
    "depth": DEPTH,
    "width": D,
    "heads": 3,
    "positions": "rotary",
    "init_std": 0.3,
}
PLAIN["block"] = "pre_ln"


def spec_of(**parts: Any) -> ModelSpec:
    return ModelSpec.model_validate({**PLAIN, **parts})


def scattered(spec: ModelSpec, seeds: tuple[int, ...] = (3, 4)) -> Decoder:
    """A model in float64 whose every parameter is random, by its seed."""
    model = build_model(spec, vocabulary=V, context=T, seeds=seeds).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            for member, seed in enumerate(seeds):
                generator = stream(seed, name)
                parameter[member] += 0.2 * torch.randn(parameter.shape[1:], generator=generator, dtype=torch.float64)
    return cast(Decoder, model)


EVERYTHING = {
    "bigram": {"factor": 3, "width": 5},
    "smear": {"inputs": 4},
    "embedding_scale": "sqrt_width",
    "logit_cap": 2.0,
    "z_loss": 0.1,
    "multi_token": {"weights": [0.3, 0.1]},
    "loops": [{"first": 1, "last": 1, "times": 3}],
    "segments": 2,
    "embedding_norm": "layer",
    "embedding_map": True,
    "head_transform": {"norm": "layer"},
    "head_bias": True,
}


@pytest.mark.parametrize("rows", [2, 23, 5 * V])
def test_pairs_are_hashed_as_the_record_does(rows: int) -> None:
    hashed = pairs(IDS, None, rows)
    for member, batch, place in ((0, 0, 0), (1, 2, 0), (0, 1, 3), (1, 2, 6)):
        now = IDS[member, batch, place].item()
        before = IDS[member, batch, place - 1].item()
        expected = rows - 1 if place == 0 else ((36313 * now) ^ (27191 * before)) % (rows - 1)
        assert hashed[member, batch, place].item() == expected
    assert torch.equal(pairs(IDS[..., 3:], IDS[..., 2:3], rows), hashed[..., 3:])


@pytest.mark.parametrize("width", [None, 5])
def test_rows_of_pairs_are_added_to_the_embedding(width: int | None) -> None:
    model = scattered(spec_of(bigram={"factor": 2, "width": width}, positions="none"))
    assert model.bigrams is not None
    rows = pairs(IDS, None, 2 * V)
    for member in (0, 1):
        added = model.bigrams.table.weight[member][rows[member]]
        if width is not None:
            assert model.bigrams.widen is not None
            added = added @ model.bigrams.widen.weight[member]
        torch.testing.assert_close(model.embed(IDS)[member], model.embedding.weight[member][IDS[member]] + added)


def test_smear_takes_in_a_share_of_the_embedding_before() -> None:
    model = scattered(spec_of(smear={"inputs": 4}, positions="none"))
    assert model.smear is not None
    made = model.embed(IDS)
    for member in (0, 1):
        e = model.embedding.weight[member][IDS[member]]
        gate, scale = model.smear.gate[member], model.smear.scale[member]
        for t in range(T):
            before = e[:, t - 1] if t else 0
            expected = e[:, t] + scale * torch.sigmoid(e[:, t, :4] @ gate) * before
            torch.testing.assert_close(made[member, :, t], expected)


def test_tables_of_pairs_and_smears_start_as_if_they_were_not_there() -> None:
    plain = build_model(spec_of(), vocabulary=V, context=T, seeds=[3])
    more = build_model(spec_of(bigram={}, smear={}), vocabulary=V, context=T, seeds=[3])
    torch.testing.assert_close(more(IDS[:1]), plain(IDS[:1]))


def test_decoding_token_by_token_gives_what_the_whole_text_gives() -> None:
    model = scattered(spec_of(**EVERYTHING)).eval()
    whole, states = model(IDS), cast(Any, ())
    for place in range(T):
        logits, states = model.step(IDS[:, :, place : place + 1], place, states)
        torch.testing.assert_close(logits, whole[:, :, place : place + 1])


def test_members_are_what_they_are_alone_also_in_their_losses() -> None:
    spec = spec_of(**EVERYTHING)
    both, alone = scattered(spec).train(), scattered(spec, (4,)).train()
    with auxiliary_losses() as of_both:
        logits = both(IDS)
    with auxiliary_losses() as of_one:
        torch.testing.assert_close(logits[1], alone(IDS[1:])[0])
    assert len(of_both) == len(of_one) == 3
    for left, right in zip(of_both, of_one, strict=True):
        torch.testing.assert_close(left[1], right[0])
    sum(of_both, logits.square().mean((1, 2, 3))).sum().backward()
    for name, parameter in both.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all()


def test_everything_is_counted() -> None:
    spec = spec_of(**EVERYTHING)
    model = scattered(spec, (3,))
    count = sum(parameter.numel() for parameter in model.parameters())
    assert model_cost(spec, vocabulary=V, context=T).parameters == count
    assert price(spec, vocabulary=V, context=T).total.parameters == count
    assert price(spec, vocabulary=V, context=T, inference=True).total.parameters == count


def test_logits_are_capped_as_in_gemma_2_and_their_size_costs_a_loss() -> None:
    plain, capped = scattered(spec_of()), scattered(spec_of(logit_cap=1.5, z_loss=0.2))
    z = plain(IDS)
    expected = torch.tanh(z / 1.5) * 1.5
    with auxiliary_losses() as losses:
        torch.testing.assert_close(capped(IDS), expected)
    torch.testing.assert_close(losses, [0.2 * expected.exp().sum(-1).log().square().mean((1, 2))])
    with auxiliary_losses() as losses:
        capped.eval()(IDS)
    assert losses == []


def test_modules_predict_the_tokens_after_the_next_one() -> None:
    """Equations 21 to 25 of arXiv:2412.19437, position by position."""
    model = scattered(spec_of(multi_token={"weights": [0.3, 0.1]}, positions="none"))
    with auxiliary_losses() as losses:
        model(IDS)
    e = model.embed(IDS)
    h = model.hidden(e, None)

    def norm(x: Tensor, gain: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gain[:, None, None]

    for k, (weight, module) in enumerate(zip((0.3, 0.1), cast(Any, model.further), strict=True), 1):
        joined = torch.cat(
            [norm(e[:, :, k:], module.norm_embedding.weight), norm(h[:, :, : T - k], module.norm_hidden.weight)], -1
        )
        h = module.block(joined @ module.join.weight.unsqueeze(1))
        logits = model.norm(h) @ model.embedding.weight.mT.unsqueeze(1)
        nats = []
        for i in range(T - 1 - k):  # position i predicts token i + k + 1
            right = logits[:, :, i].log_softmax(-1).gather(-1, IDS[:, :, i + k + 1].unsqueeze(-1))
            nats.append(-right.squeeze(-1))
        torch.testing.assert_close(losses[k - 1], weight * torch.stack(nats).mean((0, 2)), check_dtype=False)


@pytest.mark.parametrize("residual", ["hyper_connections", "manifold_hyper_connections"])
def test_modules_close_a_stream_of_several_widths(residual: str) -> None:
    """Their blocks are the last of their streams, so that all of their parameters have gradients and are counted."""
    spec = spec_of(multi_token={"weights": [0.3]}, block={"mixer": "attention", "residual": residual})
    model = scattered(spec)
    with auxiliary_losses() as losses:
        model(IDS)
    cast(Tensor, sum(losses)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.further.parameters())
    assert model_cost(spec, vocabulary=V, context=T).parameters == sum(one[0].numel() for one in model.parameters())


def test_the_logits_of_the_next_token_may_be_scored_on_those_after_it() -> None:
    model = scattered(spec_of(multi_token={"form": "same_logits", "weights": [0.5, 0.25]}))
    with auxiliary_losses() as losses:
        logits = model(IDS)
    assert len(model.further) == 0
    for ahead, weight, loss in zip((2, 3), (0.5, 0.25), losses, strict=True):
        for member in (0, 1):
            expected = F.cross_entropy(logits[member, :, : T - ahead].flatten(0, 1), IDS[member, :, ahead:].flatten())
            torch.testing.assert_close(loss[member], weight * expected)


def test_a_short_text_has_no_tokens_after_the_next() -> None:
    model = scattered(spec_of(multi_token={"weights": [0.3, 0.1]}))
    for length, count in ((1, 0), (2, 0), (3, 1), (4, 2)):
        with auxiliary_losses() as losses:
            model(IDS[:, :, :length])
        assert len(losses) == count
        assert all(loss.isfinite().all() for loss in losses)


def test_a_loop_is_a_deeper_model_whose_layers_share_weights() -> None:
    loops = [{"first": 1, "last": 2, "times": 2}]
    looped, deep = scattered(spec_of(depth=4, loops=loops)), scattered(spec_of(depth=6))
    order = (0, 1, 2, 1, 2, 3)
    assert looped.spec.order == order
    with torch.no_grad():
        deep.embedding.weight.copy_(looped.embedding.weight)
        deep.norm.weight.copy_(looped.norm.weight)
        for block, layer in zip(deep.blocks, order, strict=True):
            block.load_state_dict(looped.blocks[layer].state_dict())
    outputs = looped(IDS), deep(IDS)
    torch.testing.assert_close(*outputs)
    for y in outputs:
        y.sin().sum().backward()
    tied = [cast(Any, block).mlp.up.weight.grad for block in deep.blocks]
    torch.testing.assert_close(cast(Any, looped.blocks[1]).mlp.up.weight.grad, tied[1] + tied[3])

    costs = [model_cost(model.spec, vocabulary=V, context=T) for model in (looped, deep)]
    assert costs[0].flops == costs[1].flops
    assert costs[0].activations == costs[1].activations
    assert costs[0].parameters == sum(p.numel() for p in looped.parameters()) // 2
    both = [price(model.spec, vocabulary=V, context=T, inference=True) for model in (looped, deep)]
    assert both[0].cache == both[1].cache
    assert both[0].total.flops == both[1].total.flops


def test_loops_are_distinguished_by_their_hash_and_no_loop_is_none() -> None:
    assert spec_of(loops=[]).content_hash() == spec_of().content_hash()
    assert spec_of(loops=[{"first": 0, "last": 0, "times": 2}]).content_hash() != spec_of().content_hash()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_label_smoothing_is_a_mixture_of_targets(smoothing: float) -> None:
    logits = torch.randn(2, 3, T, V, generator=stream(0, "logits"), dtype=torch.float64)
    logs = logits.log_softmax(-1)
    wanted = (1 - smoothing) * F.one_hot(IDS, V) + smoothing / V
    torch.testing.assert_close(nats(logits, IDS, smoothing), -(wanted * logs).sum(-1).flatten(1))


def test_simpletron_starts_from_normal_tokens_zero_positions_and_torch_s_maps() -> None:
    """Tokens N(0, 1), positions 0 and nn.Linear's uniform values, as the released code of arXiv:2111.15588."""
    spec = ModelSpec.model_validate(
        {
            "family": "decoder",
            "depth": 1,
            "width": 64,
            "heads": 4,
            "block": "simple",
            "positions": {"kind": "learned", "start": "zero"},
            "init_std": 1.0,
            "initialiser": "fan_in",
        }
    )
    model = build_model(spec, vocabulary=300, context=16, seeds=[0])
    assert not model.positions.weight.any()
    assert model.embedding.weight.std().item() == pytest.approx(1.0, abs=0.02)
    torch.manual_seed(0)
    theirs = torch.nn.Linear(64, 256).weight
    ours = model.blocks[0].mlp.up.weight
    assert ours.abs().max().item() == pytest.approx(theirs.abs().max().item(), rel=1e-2)
    assert ours.std().item() == pytest.approx(theirs.std().item(), rel=2e-2)
