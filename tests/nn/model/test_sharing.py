"""Layers publish tensors that later layers read: residuals that read the embedding, mixers that read values."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from ablate.nn.model import build_model, model_cost
from ablate.nn.model.decoder import Decoder
from ablate.nn.pack import State, linear
from ablate.nn.pack.initial import stream
from ablate.spec.block import RESIDUALS
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext, SharedTensor
from ablate.spec.model import ModelSpec
from ablate.spec.sentences import describe
from ablate.spec.sublayers import MIXERS, MLPS, MixerSpec, MLPSpec
from ablate.training.block_recordings import mixing_maps

T, D = 7, 6
PLAIN: dict[str, Any] = {"family": "decoder", "depth": 4, "width": D, "heads": 2, "init_std": 0.3}


@pytest.fixture(autouse=True)
def more_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    for family in (MIXERS, MLPS, RESIDUALS):
        monkeypatch.setattr(family, "_members", dict(family.members()))
    define_kinds()


def define_kinds() -> None:
    """Running means of values, to which those of the first layer are added: a value residual (arXiv:2410.17897)."""

    class ValueResidualSpec(MixerSpec):
        source: ClassVar[str] = "arXiv:2410.17897"
        complexity: ClassVar[str] = "Ld"
        bidirectional_form: ClassVar[bool] = False
        kind: Literal["value_residual"] = "value_residual"
        from_layer: int = 0
        steps: bool = True
        wide: bool = False

        def reads(self, context: LayerContext) -> tuple[SharedTensor, ...]:
            size = 2 * context.width if self.wide else context.width
            if context.layer == 0 and self.from_layer == 0:
                return ()
            return (SharedTensor("value", self.from_layer, (size,)),)

        def publishes(self, context: LayerContext) -> tuple[SharedTensor, ...]:
            return (context.shared("value", context.width),) if context.layer == self.from_layer else ()

        def build(self, context: LayerContext) -> nn.Module:
            return (Stepped if self.steps else Means)(context, gives=bool(self.publishes(context)))

        def cost(self, context: LayerContext, length: int) -> Cost:
            return linear_cost(length, context.width, context.width)

    class DoubleSpec(MLPSpec):
        source: ClassVar[str] = "none"
        kind: Literal["of_embedding"] = "of_embedding"

        def reads(self, context: LayerContext) -> tuple[SharedTensor, ...]:
            return (context.stream(-1), context.stream(context.layer - 1))

        def build(self, context: LayerContext) -> nn.Module:
            return Product()

        def cost(self, context: LayerContext, length: int) -> Cost:
            return Cost(multiplications=length * context.width)


class Product(nn.Module):
    def forward(self, x: Tensor, shared: tuple[Tensor, ...]) -> Tensor:
        embedding, before = shared
        return x * embedding + before


class Means(nn.Module):
    def __init__(self, context: LayerContext, gives: bool) -> None:
        super().__init__()
        self.value = linear(context, context.width, context.width)
        self.gives = gives

    def forward(self, x: Tensor, padding: Tensor | None = None, shared: tuple[Tensor, ...] = ()) -> Any:
        value = self.value(x)
        summed = value + shared[0] if shared else value
        y = summed.cumsum(2) / torch.arange(1, x.shape[2] + 1)[:, None]
        return (y, (value,)) if self.gives else y


class Stepped(Means):
    def step(self, x: Tensor, place: int, state: State, shared: tuple[Tensor, ...] = ()) -> Any:
        value = self.value(x)
        total = (value + shared[0] if shared else value) + (state[0] if state else 0)
        return (total / (place + 1), (total,), (value,)) if self.gives else (total / (place + 1), (total,))


def model_of(**parts: Any) -> Decoder:
    spec = ModelSpec.model_validate({**PLAIN, **parts})
    model = build_model(spec, vocabulary=11, context=T, seeds=[3, 5])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=stream(0, name, parameter.shape))
    assert isinstance(model, Decoder)
    return model.eval()


def refused(**parts: Any) -> tuple[str, str]:
    with pytest.raises(ValidationError) as caught:
        ModelSpec.model_validate({**PLAIN, **parts})
    ((loc, sentence),) = describe(caught.value)
    return ".".join(map(str, loc)), sentence


VALUES: dict[str, Any] = {"mixer": "value_residual", "norm": "none", "mlp": "none", "skips": {"mlp": 0}}
IDS = torch.randint(11, (2, 3, T), generator=stream(1, "ids"))


def test_later_layers_read_the_values_of_the_first() -> None:
    model: Any = model_of(block=VALUES, positions="none", final_norm="none")
    x = model.embedding(IDS)
    first = x @ model.blocks[0].mixer.value.weight[:, None]
    count = torch.arange(1, T + 1)[:, None]
    for index, block in enumerate(model.blocks):
        value = x @ block.mixer.value.weight[:, None]
        x = x + (value + first if index else value).cumsum(2) / count
    torch.testing.assert_close(model(IDS), model.embedding.logits(x))


@pytest.mark.parametrize("kind", [{"steps": True}, {"steps": False}], ids=["recurrent", "all inputs again"])
@pytest.mark.parametrize("more", [{}, {"residual": "embedding_skip"}, {"mlp": "of_embedding", "skips": {}}], ids=str)
def test_a_shared_tensor_in_cached_decoding(kind: dict[str, Any], more: dict[str, Any]) -> None:
    exceptions = {"first": {"mlp": "plain"}} if "mlp" in more else {}
    block = {**VALUES, "mixer": {"kind": "value_residual", **kind}, **more}
    model = model_of(block=block, exceptions=exceptions)
    states: Any = ()
    for place in range(T):
        logits, states = model.step(IDS[..., place : place + 1], place, states)
        torch.testing.assert_close(logits, model(IDS)[:, :, place : place + 1])


def test_members_of_a_pack_share_nothing_with_each_other() -> None:
    spec = ModelSpec.model_validate({**PLAIN, "block": {**VALUES, "residual": "embedding_skip"}})
    packed, alone = (build_model(spec, vocabulary=11, context=T, seeds=seeds) for seeds in ([3, 5], [5]))
    torch.testing.assert_close(packed(IDS)[1], alone(IDS[1:])[0])


def test_gradients_reach_the_layer_that_publishes() -> None:
    model: Any = model_of(block=VALUES)
    last = model.blocks[-1]
    kept: list[Tensor] = []
    model.blocks[0].mixer.value.register_forward_hook(lambda *given: kept.append(given[2]))
    seen: list[Tensor] = []
    last.mixer.register_forward_hook(lambda *given: seen.append(given[2]))
    model(IDS)
    assert torch.autograd.grad(seen[0].sum(), kept[0])[0].abs().min() > 0


@pytest.mark.independent_check("residuals", "embedding_skip", against="its equation")
def test_an_embedding_skip_is_its_equation() -> None:
    model: Any = model_of(block={"mixer": "attention", "residual": "embedding_skip"})
    x = begun = model.embed(IDS)
    for block in model.blocks:
        lam, mu = (gain.value.view(2, 1, 1, 1) for gain in (block.residual.stream, block.residual.embedding))
        x = lam * x + mu * begun
        x = x + block.mixer(block.norm_mixer(x))
        x = x + block.mlp(block.norm_mlp(x))
    torch.testing.assert_close(model(IDS), model.logits(model.norm(x)))
    assert not torch.equal(x, begun)


def test_an_embedding_skip_starts_as_none_and_costs_what_it_adds() -> None:
    plain, skipping = (
        ModelSpec.model_validate({**PLAIN, "block": {"mixer": "attention", "residual": kind}})
        for kind in ("plain", "embedding_skip")
    )
    models = [build_model(spec, vocabulary=11, context=T, seeds=[0, 1]) for spec in (plain, skipping)]
    assert torch.equal(models[0](IDS), models[1](IDS))
    costs = [model_cost(spec, vocabulary=11, context=T) for spec in (plain, skipping)]
    real = [sum(parameter[0].numel() for parameter in model.parameters()) for model in models]
    assert costs[1].parameters - costs[0].parameters == real[1] - real[0] == 2 * PLAIN["depth"]
    assert costs[1].multiplications - costs[0].multiplications == PLAIN["depth"] * 2 * T * D


def test_mixing_maps_of_mixers_that_share() -> None:
    model = build_model(ModelSpec.model_validate({**PLAIN, "block": VALUES}), vocabulary=11, context=T, seeds=[0])
    maps = mixing_maps(model, lambda: model(IDS[:1, :1]))
    assert len(maps) == PLAIN["depth"]
    assert all(one.triu(1).abs().max() == 0 for one in maps.values())


@pytest.mark.parametrize(
    ("parts", "path", "said"),
    [
        (
            {"block": {**VALUES, "mixer": {"kind": "value_residual", "from_layer": 2}}},
            "block.mixer",
            "layer 0 reads `value` of layer 2, but a layer reads only what an earlier layer publishes",
        ),
        (
            {"block": VALUES, "exceptions": {"first": {"mixer": "attention"}}},
            "block.mixer",
            "layer 1 reads `value` of layer 0, but layer 0 publishes nothing of this name",
        ),
        (
            {"block": VALUES, "exceptions": {"last": {"mixer": {"kind": "value_residual", "wide": True}}}},
            "exceptions.last.mixer",
            "layer 0 publishes it with the sizes (6,), and (12,) are wanted",
        ),
        (
            {"family": "encoder_decoder", "decoder": {"depth": 2, "mixer": "attention"},
             "block": {"mixer": "attention", "mlp": "of_embedding"}},
            "block.mlp",
            "the decoder of an encoder-decoder shares no tensors",
        ),
        (
            {"family": "encoder_decoder", "decoder": {"depth": 2, "mixer": "attention"},
             "block": {"mixer": "attention", "residual": "embedding_skip"}},
            "block.residual",
            "have plain residuals",
        ),
    ],
)  # fmt: skip
def test_what_no_earlier_layer_publishes_is_refused(parts: dict[str, Any], path: str, said: str) -> None:
    where, sentence = refused(**parts)
    assert where == path
    assert said in sentence


def test_a_part_that_shares_keeps_the_pack_axis_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MIXERS.member("value_residual"), "pack_aware", False)
    where, sentence = refused(block=VALUES)
    assert where == "block.mixer"
    assert "must keep the pack axis apart" in sentence
